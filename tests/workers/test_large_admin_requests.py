"""Large requests to the controller: each step of their handlers is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.cluster.configs import configdef
from odradek.cluster.decisions.planning import TopicDefaults, TopicPlan
from odradek.cluster.state import ClusterState
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.protocol.library import message_class
from odradek.security.quotas.mutations import MutationQuota
from odradek.workers.apis.table import load_rows
from odradek.workers.dispatch.context import Context

from ..harness import effort

MANY = 600
NAMES = [f"x{at}" for at in range(MANY)]
TOPIC = "many"


class Controller:
    """The controller's interface for handlers: the metadata of a single broker; nothing takes time."""

    def __init__(self, folder: Path) -> None:
        self._tree = EmbeddedTree(folder / "tree.db")
        state = ClusterState(self._tree, 0)
        state.prepare(None)
        state.become_controller(0)
        state.register({"PLAINTEXT": ("h", 1)}, {"PLAINTEXT": "PLAINTEXT"}, None, 0)
        state.create_topic(TopicPlan(TOPIC, {index: [0] for index in range(MANY)}, {}))
        values: Any = _Config({name: configdef.broker_default(name) for name in configdef.BROKER})
        self.config = values
        self.owner = MetadataOwner(state, None, None, values, lambda _: None)  # type: ignore[arg-type]  # a test double
        self.cancelled = 0

    @property
    def snapshot(self) -> Any:
        return self.owner.snapshot

    def defaults(self) -> TopicDefaults:
        return TopicDefaults()

    def mutations(self, _context: object) -> MutationQuota:
        return MutationQuota(None, lambda: 0, strict=True)

    def when_published(self, action: Callable[[], None]) -> None:
        action()

    def after(self, _milliseconds: int, _action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def security_protocol(self, _listener: str) -> str:
        return "SASL_SSL"

    def close(self) -> None:
        self._tree.close()


class _Config(dict[str, Any]):
    originals: dict[str, str] = {}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path)
    yield made
    made.close()


def create_topics() -> Any:
    request = message_class("CreateTopicsRequest")
    topics = [
        request.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in NAMES
    ]
    return request(topics=topics, timeout_ms=1000, validate_only=True)


def create_partitions() -> Any:
    request = message_class("CreatePartitionsRequest")
    topics = [request.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES]
    return request(topics=topics, timeout_ms=1000, validate_only=False)


def delete_topics() -> Any:
    return message_class("DeleteTopicsRequest")(topic_names=NAMES, timeout_ms=1000)


def delete_by_id() -> Any:
    request = message_class("DeleteTopicsRequest")
    topics = [request.DeleteTopicState(name=name, topic_id=None) for name in NAMES]
    return request(topics=topics, timeout_ms=1000)


def alter_configs() -> Any:
    request = message_class("AlterConfigsRequest")
    resources = [request.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES]
    return request(resources=resources, validate_only=False)


def incremental() -> Any:
    request = message_class("IncrementalAlterConfigsRequest")
    resource = request.AlterConfigsResource
    config = resource.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    resources = [resource(resource_type=4, resource_name=name, configs=[config]) for name in NAMES]
    return request(resources=resources, validate_only=False)


def elect() -> Any:
    request = message_class("ElectLeadersRequest")
    topics = [request.TopicPartitions(topic=TOPIC, partitions=list(range(MANY)))]
    return request(election_type=0, topic_partitions=topics, timeout_ms=1000)


def elect_in_topics() -> Any:
    request = message_class("ElectLeadersRequest")
    topics = [request.TopicPartitions(topic=name, partitions=[0]) for name in NAMES]
    return request(election_type=0, topic_partitions=topics, timeout_ms=1000)


def elect_in_no_way() -> Any:
    request = message_class("ElectLeadersRequest")
    topics = [request.TopicPartitions(topic=TOPIC, partitions=list(range(MANY)))]
    return request(election_type=7, topic_partitions=topics, timeout_ms=1000)


def reassign(replicas: list[int] | None) -> Any:
    request = message_class("AlterPartitionReassignmentsRequest")
    topic = request.ReassignableTopic
    parts = [topic.ReassignablePartition(partition_index=at, replicas=replicas) for at in range(MANY)]
    topics = [topic(name=TOPIC, partitions=parts)]
    return request(topics=topics, timeout_ms=1000, allow_replication_factor_change=False)


def describe_users() -> Any:
    request = message_class("DescribeUserScramCredentialsRequest")
    return request(users=[request.UserName(name=name) for name in NAMES])


def alter_users() -> Any:
    request = message_class("AlterUserScramCredentialsRequest")
    row = request.ScramCredentialUpsertion
    rows = [row(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p") for name in NAMES]
    return request(upsertions=rows, deletions=[])


def describe_tokens() -> Any:
    message_class("DescribeDelegationTokenResponse")  # it is made once
    request = message_class("DescribeDelegationTokenRequest")
    return request(
        owners=[request.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in NAMES]
    )


def steps(controller: Controller, key: int, version: int, request: Any) -> tuple[list[int], Any]:
    """The lines of code of each step, and the answer."""
    answers: list[Any] = []
    begun: list[Any] = []
    lines: list[int] = []
    context = Context(key, version, "c", "127.0.0.1", "PLAINTEXT", answers.append, begin=begun.append)
    handle = load_rows()[key].handle
    assert handle is not None
    lines.append(effort.lines(lambda: begun.append(handle(controller, request, context))))
    while begun:
        work, ended = begun.pop(0), list[bool]()
        while not any(ended):
            lines.append(effort.lines(lambda: ended.append(next(work, work) is work)))  # noqa: B023 (called at once)
    (answer,) = answers
    return lines, answer


@pytest.mark.parametrize(
    ("key", "version", "make", "errors"),
    [
        (19, 7, create_topics, lambda answer: [topic.error_code for topic in answer.topics]),
        (37, 3, create_partitions, lambda answer: [topic.error_code for topic in answer.results]),
        (20, 5, delete_topics, lambda answer: [topic.error_code for topic in answer.responses]),
        (20, 6, delete_by_id, lambda answer: [topic.error_code for topic in answer.responses]),
        (33, 1, alter_configs, lambda answer: [one.error_code for one in answer.responses]),
        (44, 1, incremental, lambda answer: [one.error_code for one in answer.responses]),
        (43, 2, elect, lambda answer: [one.error_code for one in answer.replica_election_results[0].partition_result]),
        (43, 2, elect_in_topics, lambda answer: [1 for one in answer.replica_election_results]),
        (43, 2, elect_in_no_way, lambda answer: [answer.error_code] * MANY),
        (45, 1, lambda: reassign([0]), lambda answer: [one.error_code for one in answer.responses[0].partitions]),
        (45, 1, lambda: reassign([0, 0]), lambda answer: [one.error_code for one in answer.responses[0].partitions]),
        (45, 1, lambda: reassign(None), lambda answer: [one.error_code for one in answer.responses[0].partitions]),
        (50, 0, describe_users, lambda answer: [one.error_code for one in answer.results]),
        (51, 0, alter_users, lambda answer: [one.error_code for one in answer.results]),
        (41, 3, describe_tokens, lambda answer: [answer.error_code] * MANY),
    ],
)
def test_no_step_is_a_large_part_of_a_request(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, key: int, version: int, make: Any, errors: Any
) -> None:
    monkeypatch.setattr("odradek.workers.apis.k43_elect_leaders.MANY", 100)
    lines, answer = steps(controller, key, version, make())
    assert max(lines) * 4 < sum(lines)
    expected = {20: 3, 33: 3, 37: 3, 44: 42, 43: 84}
    found = errors(answer)
    assert (len(found), len(set(found))) == (MANY, 1)
    if make in (create_topics, create_partitions, delete_topics, delete_by_id, alter_configs, incremental, elect):
        assert found[0] == expected.get(key, 0)


def test_election_of_all_partitions_changes_nothing(controller: Controller) -> None:
    request = message_class("ElectLeadersRequest")(election_type=0, topic_partitions=None, timeout_ms=1000)
    _, answer = steps(controller, 43, 2, request)
    assert (answer.error_code, answer.replica_election_results) == (0, [])
