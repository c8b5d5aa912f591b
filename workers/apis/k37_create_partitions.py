"""CreatePartitions (key 37), versions 0 to 3: adds partitions to existing topics (KIP-195).

`count` is the new total. Counts against the client's controller mutation quota; v3 may answer
THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.decisions.planning import check_total, plan_partitions
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED
from odradek.protocol.library import message_class
from odradek.security.quotas.mutations import MutationQuota
from odradek.workers.dispatch.administration import Controller, mutate, refuse_duplicate, throttled, twice
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.authorization import ALTER, TOPIC
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    repeated = twice(topic.name for topic in request.topics)
    requested = {topic.name: topic for topic in request.topics}
    topics = controller.snapshot.topics
    total = sum(max(0, topic.count - len(topics[name])) for name, topic in requested.items() if name in topics)
    quota = controller.mutations(context)
    results = []
    for topic in requested.values():
        code, message = NONE, None
        try:
            yield from _add(controller, topic, total, repeated, None if request.validate_only else quota, context)
        except ApiError as error:
            code, message = error.code, error.message
        result = message_class("CreatePartitionsResponse").CreatePartitionsTopicResult
        results.append(result(name=topic.name, error_code=code, error_message=message))
        yield
    response = message_class("CreatePartitionsResponse")(results=results)
    controller.when_published(lambda: context.reply(throttled(response, quota)))


def _add(
    controller: Controller, topic: Any, total: int, repeated: set[str], quota: MutationQuota | None, context: Context
) -> Iterator[None]:
    """`quota` is None if the request is only validated."""
    if topic.name in repeated:
        raise refuse_duplicate("Duplicate topic in request.")
    if not context.allows(ALTER, TOPIC, topic.name):
        raise ApiError(TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
    assignments = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    check_total(total)
    replicas = plan_partitions(topic.name, topic.count, assignments, controller.snapshot)
    if quota is not None:
        mutate(quota, len(replicas))
        yield from controller.owner.add_partitions(topic.name, replicas)
        context.changed(f"topic {topic.name} has {topic.count} partitions")


API = Api(key=37, name="CreatePartitions", versions=(0, 3), runs_in=CONTROLLER, handle=handle)
