"""CreatePartitions (key 37), versions 0 to 3: adds partitions to existing topics (KIP-195).

`count` is the new total. All versions behave alike here: there are no controller quotas (v3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.decisions.planning import check_total, plan_partitions
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import NONE
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, refuse_duplicate, twice
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    repeated = twice(topic.name for topic in request.topics)
    requested = {topic.name: topic for topic in request.topics}
    topics = controller.snapshot.topics
    total = sum(max(0, topic.count - len(topics[name])) for name, topic in requested.items() if name in topics)
    results = []
    for topic in requested.values():
        code, message = NONE, None
        try:
            yield from _add(controller, topic, total, repeated, request.validate_only)
        except ApiError as error:
            code, message = error.code, error.message
        result = message_class("CreatePartitionsResponse").CreatePartitionsTopicResult
        results.append(result(name=topic.name, error_code=code, error_message=message))
        yield
    response = message_class("CreatePartitionsResponse")(results=results)
    controller.when_published(lambda: context.reply(response))


def _add(controller: Controller, topic: Any, total: int, repeated: set[str], validate_only: bool) -> Iterator[None]:
    if topic.name in repeated:
        raise refuse_duplicate("Duplicate topic in request.")
    assignments = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    check_total(total)
    replicas = plan_partitions(topic.name, topic.count, assignments, controller.snapshot)
    if not validate_only:
        yield from controller.owner.add_partitions(topic.name, replicas)


API = Api(key=37, name="CreatePartitions", versions=(0, 3), runs_in=CONTROLLER, handle=handle)
