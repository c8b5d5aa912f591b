"""CreateTopics (key 19), versions 0 to 7.

v1+ have a validate-only mode and error messages, v4+ -1 for the broker's defaults (KIP-464; accepted from older clients
too), v5+ answer with the topic's configs (KIP-525), v7 with its id. Answered when every live worker knows the
topics, so that a client that continues at another worker finds them. There are no policies and no quotas.
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
from odradek.protocol.errors import INVALID_REQUEST, NONE, REQUEST_TIMED_OUT
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, twice
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context

HAS_CONFIGS = 5


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    validate_only = context.version >= 1 and request.validate_only
    repeated = twice(topic.name for topic in request.topics)
    names = dict.fromkeys(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    total = sum(max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    results = []
    for name in names:
        try:
            check_total(total)
            _refuse(name, repeated)
            created = yield from _create(controller, topics[name], validate_only, request.timeout_ms, context.version)
            results.append(created)
        except ApiError as error:
            results.append(_failed(name, error))
        yield
    response = message_class("CreateTopicsResponse")(topics=results)
    controller.when_published(lambda: context.reply(response))


def _refuse(name: str, repeated: set[str]) -> None:
    if name == topicnames.KRAFT_METADATA:
        raise ApiError(INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in repeated:
        raise ApiError(INVALID_REQUEST, "Found multiple entries for this topic.")


def _create(
    controller: Controller, topic: Any, validate_only: bool, timeout_ms: int, version: int
) -> Generator[None, None, Any]:
    plan = plan_topic(_request(topic), controller.snapshot, controller.defaults())
    configs = _configs(controller, plan) if version >= HAS_CONFIGS else []
    if validate_only:
        return _made(plan, None, configs)
    made = _made(plan, (yield from controller.owner.create_topic(plan)), configs)
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


def _made(plan: TopicPlan, topic_id: bytes | None, configs: list[Any]) -> Any:
    return message_class("CreateTopicsResponse").CreatableTopicResult(
        name=plan.name,
        topic_id=UUID(bytes=topic_id) if topic_id else UUID(int=0),
        error_code=NONE,
        error_message=None,
        num_partitions=len(plan.replicas),
        replication_factor=plan.factor,
        configs=configs,
    )


def _failed(name: str, error: ApiError) -> Any:
    result = message_class("CreateTopicsResponse").CreatableTopicResult
    return result(
        name=name,
        topic_id=UUID(int=0),
        error_code=error.code,
        error_message=error.message,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


API = Api(key=19, name="CreateTopics", versions=(0, 7), runs_in=CONTROLLER, handle=handle)
