"""CreateTopics (key 19), versions 0 to 7.

v1+ have a validate-only mode and error messages, v4+ -1 for the broker's defaults (KIP-464; accepted from older clients
too), v5+ answer with the topic's configs (KIP-525), v7 with its id. Answered when every live worker knows the
topics, so that a client that continues at another worker finds them. Counts against the controller mutation quota
of the client, which from v6 on may get THROTTLING_QUOTA_EXCEEDED (KIP-599). There are no policies.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any
from uuid import UUID

from odradek.cluster.decisions import describe
from odradek.cluster.decisions.describe import StaticConfig
from odradek.cluster.decisions.planning import TopicPlan, TopicRequest, check_total, plan_topic
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_REQUEST, NONE, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, mutate, throttled, twice
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.authorization import CLUSTER, CREATE, DESCRIBE_CONFIGS, TOPIC
from odradek.workers.dispatch.context import Context

HAS_CONFIGS = 5


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    validate_only = context.version >= 1 and request.validate_only
    repeated = twice(topic.name for topic in request.topics)
    names = dict.fromkeys(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    total = sum(max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    quota = controller.mutations(context)
    results = []
    for name in names:
        try:
            check_total(total)
            _refuse(name, repeated)
            _authorize(context, name)
            plan, made = _planned(controller, topics[name], context)
            if not validate_only:
                mutate(quota, len(plan.replicas))
                made = yield from _create(controller, plan, made, request.timeout_ms, context)
            results.append(made)
        except ApiError as error:
            results.append(_failed(name, error, context))
        yield
    response = message_class("CreateTopicsResponse")(topics=results)
    controller.when_published(lambda: context.reply(throttled(response, quota)))


def _refuse(name: str, repeated: set[str]) -> None:
    if name == topicnames.KRAFT_METADATA:
        raise ApiError(INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in repeated:
        raise ApiError(INVALID_REQUEST, "Found multiple entries for this topic.")


def _authorize(context: Context, name: str) -> None:
    """ApiError TOPIC_AUTHORIZATION_FAILED unless the client may create any topic, or this one."""
    if not (context.sees(CREATE, CLUSTER) or context.allows(CREATE, TOPIC, name)):
        raise ApiError(TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def _planned(controller: Controller, topic: Any, context: Context) -> tuple[TopicPlan, Any]:
    """The plan of a topic, and the result of a request that only validates it."""
    plan = plan_topic(_request(topic), controller.snapshot, controller.defaults())
    if not context.sees(DESCRIBE_CONFIGS, TOPIC, plan.name):
        return plan, _undescribed(plan.name)
    return plan, _made(plan, _configs(controller, plan) if context.version >= HAS_CONFIGS else [])


def _create(
    controller: Controller, plan: TopicPlan, made: Any, timeout_ms: int, context: Context
) -> Generator[None, None, Any]:  # fmt: skip
    made.topic_id = UUID(bytes=(yield from controller.owner.create_topic(plan)))
    context.changed(f"created topic {plan.name}")
    if timeout_ms <= 0:  # the topic is created, but the client does not wait for it
        return _failed(plan.name, ApiError(REQUEST_TIMED_OUT, None))
    return made


def _request(topic: Any) -> TopicRequest:
    repeated = frozenset(twice(entry.partition_index for entry in topic.assignments))
    assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    configs = {entry.name: entry.value for entry in topic.configs}
    return TopicRequest(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs, repeated)


def _configs(controller: Controller, plan: TopicPlan) -> list[Any]:
    config = message_class("CreateTopicsResponse").CreatableTopicResult.CreatableTopicConfigs
    static = StaticConfig(controller.config, controller.config.originals)
    snapshot = controller.snapshot
    return [
        config(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe.topic_config_entries(plan.configs, snapshot, snapshot.controller_id, static)
    ]


def _made(plan: TopicPlan, configs: list[Any]) -> Any:
    return message_class("CreateTopicsResponse").CreatableTopicResult(
        name=plan.name,
        topic_id=UUID(int=0),
        error_code=NONE,
        error_message=None,
        num_partitions=len(plan.replicas),
        replication_factor=plan.factor,
        configs=configs,
    )


def _undescribed(name: str) -> Any:
    """The result for a client that may not see the configs of the topic: nor does it get the size."""
    made = _failed(name, ApiError(NONE, None))
    made.topic_config_error_code = TOPIC_AUTHORIZATION_FAILED
    return made


def _failed(name: str, error: ApiError, context: Context | None = None) -> Any:
    """`context`: of a topic that was refused before anything was looked at."""
    result = message_class("CreateTopicsResponse").CreatableTopicResult
    denied = context is not None and not context.sees(DESCRIBE_CONFIGS, TOPIC, name)
    refused = error.code == TOPIC_AUTHORIZATION_FAILED and denied
    return result(
        topic_config_error_code=TOPIC_AUTHORIZATION_FAILED if refused else NONE,
        name=name,
        topic_id=UUID(int=0),
        error_code=error.code,
        error_message=error.message,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


API = Api(key=19, name="CreateTopics", versions=(0, 7), runs_in=CONTROLLER, handle=handle)
