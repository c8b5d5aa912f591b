"""Every group API in every version, from request bytes to response bytes, over real groups."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.configs.admitted import Admitted
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.groups.events import Answer, Append
from odradek.groups.records import OffsetValue
from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.apis.table import load_rows
from odradek.workers.dispatch.authorization import Authorization
from odradek.workers.dispatch.dispatch import serve

from .world import RANGE, World

TOPIC_ID = UUID(int=7)
COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = (
    8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47,
)  # fmt: skip


def versions(key: int) -> list[int]:
    first, last = load_rows()[key].versions
    return list(range(first, last + 1))


class FakeCoordinator:
    """The coordinator without processes: a world of groups, and one topic `t` of two partitions."""

    def __init__(self) -> None:
        self.world = World()
        self.groups = self.world.groups
        self.authorization = Authorization({})
        self.tree: dict[tuple[str, str, int], int] = {}
        self.topic_there = True
        rows = [[n, 1, 0, 0, [0], [0], 0] for n in range(2)]
        topics = {
            "t": {"id": TOPIC_ID.hex, "internal": False, "config": {}, "partitions": rows},
            "__consumer_offsets": {"id": UUID(int=8).hex, "internal": True, "config": {}, "partitions": rows[:1]},
        }
        brokers = [{"id": 0, "rack": None, "endpoints": {"PLAINTEXT": ["here", 9092]}}]
        self.snapshot = Snapshot(raw_snapshot(1, "c", 0, brokers, topics, {}, Admitted("PLAINTEXT", ["127.0.0.1"])))

    @property
    def now(self) -> Any:
        return self.world.now

    def offset(self, partition: int) -> OffsetValue:
        """The committed offset of the group."""
        found = self.world.group().offsets.get(("t", partition))
        assert found is not None
        return found

    def begin(self, work: Iterator[None]) -> None:
        """Run all steps at once."""
        for _ in work:
            pass

    def when_offsets_topic(self, ready: Callable[[bool], None], groups: Iterable[str] = ()) -> None:
        ready(self.topic_there)

    when_transactions_topic = when_offsets_topic

    def tree_commit(self, group: str, offsets: dict[tuple[str, int], int], done: Callable[[bool], None]) -> None:
        self.tree.update({(group, *tp): offset for tp, offset in offsets.items()})
        done(True)

    def tree_fetch(self, group: str, partitions: list[tuple[str, int]], done: Callable[[Any], None]) -> None:
        done({tp: self.tree[group, *tp] for tp in partitions if (group, *tp) in self.tree})

    def settle(self) -> None:
        """Deliver answers to the callables that came as tokens, as the process does."""
        while self.groups.effects:
            effects, self.groups.effects[:] = list(self.groups.effects), []
            for effect in effects:
                if isinstance(effect, Answer):
                    effect.token(effect.result)
                else:
                    assert isinstance(effect, Append)
                    self.world.writer.add(effect, self.now)
            self.world.writer.write(self.now)

    def wait(self, ms: int) -> None:
        self.world._move(self.now.steady_ms + ms)
        self.groups.tick(self.now)
        self.settle()

    def send(self, key: int, version: int, request: Any, wait_ms: int = 0, host: str = "127.0.0.1") -> Any:
        """The decoded response; the request is a library object or bytes."""
        row = load_rows()[key]
        body = request if isinstance(request, bytes) else bytes(request.encode(version=version))
        answers: list[tuple[int, bytes]] = []
        forwarded = Forwarded(1, key, version, "cl", host, "PLAINTEXT", body)
        serve(row, self, forwarded, lambda flags, data: answers.append((flags, data)))
        self.settle()
        if wait_ms:
            self.wait(wait_ms)
        ((flags, data),) = answers
        assert flags == forward.OK
        return message_class(row.name + "Response").decode(data, version=version)

    def join(self, version: int = 9, member_id: str = "", **fields: Any) -> Any:
        request = message_class("JoinGroupRequest")
        return self.send(
            JOIN,
            version,
            request(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[request.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in RANGE],
                **fields,
            ),
            wait_ms=3_000,
        )

    def member(self, version: int = 9) -> Any:
        """The JoinGroup answer of a single member, the leader."""
        answer = self.join(version)
        return self.join(version, answer.member_id) if answer.error_code == Error.MEMBER_ID_REQUIRED else answer

    def stable(self) -> Any:
        """The JoinGroup answer of the only member of a stable group."""
        member = self.member()
        self.sync(member, 5)
        return member

    def sync(self, member: Any, version: int) -> Any:
        request = message_class("SyncGroupRequest")
        part = request.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"part")
        return self.send(
            SYNC,
            version,
            request(
                group_id="g", generation_id=1, member_id=member.member_id, assignments=[part],
                **({"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}),
            ),
        )  # fmt: skip

    def commit(self, version: int, *partitions: int, topic: str = "t", group: str = "g", **fields: Any) -> Any:
        request = message_class("OffsetCommitRequest")
        topic_class = request.OffsetCommitRequestTopic
        rows = [
            topic_class.OffsetCommitRequestPartition(partition_index=n, committed_offset=n + 5, committed_metadata="md")
            for n in partitions
        ]
        name = {"topic_id": TOPIC_ID if topic == "t" else UUID(int=1)} if version >= 10 else {"name": topic}
        topics = [topic_class(partitions=rows, **name)]
        (answer,) = self.send(COMMIT, version, request(group_id=group, topics=topics, **fields)).topics
        assert answer.topic_id == name["topic_id"] if version >= 10 else answer.name == topic
        return [(row.partition_index, row.error_code) for row in answer.partitions]

    def fetch(
        self, version: int, *partitions: int, topic: str = "t", group: str = "g", all_topics: bool = False
    ) -> Any:
        request = message_class("OffsetFetchRequest")
        if version < 8:
            asked = [request.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
            return self.send(FETCH, version, request(group_id=group, topics=None if all_topics else asked))
        group_class = request.OffsetFetchRequestGroup
        name = {"topic_id": TOPIC_ID if topic == "t" else UUID(int=1)} if version >= 10 else {"name": topic}
        asked = [group_class.OffsetFetchRequestTopics(partition_indexes=list(partitions), **name)]
        groups = [group_class(group_id=group, topics=None if all_topics else asked)]
        return self.send(FETCH, version, request(groups=groups)).groups[0]


@pytest.fixture
def coordinator() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.mark.parametrize("version", versions(JOIN))
def test_join_forms_a_group(coordinator: FakeCoordinator, version: int) -> None:
    first = coordinator.join(version)
    if version >= 4:
        assert first.error_code == Error.MEMBER_ID_REQUIRED and first.member_id
        assert (first.protocol_name or "") == "" and first.leader == ""
        first = coordinator.join(version, first.member_id)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.leader == first.member_id and first.member_id.startswith("cl-")
    assert [(m.member_id, bytes(m.metadata)) for m in first.members] == [(first.member_id, RANGE[0][1])]
    assert version < 7 or first.protocol_type == "consumer"


@pytest.mark.parametrize("version", [v for v in versions(JOIN) if v >= 5])
def test_static_member_may_rejoin_with_its_instance_id(coordinator: FakeCoordinator, version: int) -> None:
    first = coordinator.join(version, group_instance_id="i")
    assert first.error_code == 0 and first.members[0].group_instance_id == "i"
    coordinator.sync(first, 3)
    again = coordinator.join(version, group_instance_id="i")
    assert again.error_code == 0 and again.member_id != first.member_id
    assert version < 9 or (again.skip_assignment and again.leader == again.member_id)


@pytest.mark.parametrize("version", versions(SYNC))
def test_sync_returns_the_assignment(coordinator: FakeCoordinator, version: int) -> None:
    member = coordinator.member()
    answer = coordinator.sync(member, version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"part")
    assert version < 5 or (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_heartbeat_checks_the_generation(coordinator: FakeCoordinator, version: int) -> None:
    member = coordinator.stable()
    request = message_class("HeartbeatRequest")
    for generation, error in ((1, Error.NONE), (9, Error.ILLEGAL_GENERATION)):
        asked = request(group_id="g", generation_id=generation, member_id=member.member_id)
        assert coordinator.send(HEARTBEAT, version, asked).error_code == error


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leave_removes_only_a_known_member(coordinator: FakeCoordinator, version: int) -> None:
    member = coordinator.stable()
    request = message_class("LeaveGroupRequest")

    def leave(member_id: str) -> int:
        if version < 3:
            return coordinator.send(LEAVE, version, request(group_id="g", member_id=member_id)).error_code
        asked = request(group_id="g", members=[request.MemberIdentity(member_id=member_id, group_instance_id=None)])
        answer = coordinator.send(LEAVE, version, asked)
        assert answer.error_code == 0 and answer.members[0].member_id == member_id
        return answer.members[0].error_code

    assert leave("who") == Error.UNKNOWN_MEMBER_ID
    assert leave(member.member_id) == 0


@pytest.mark.parametrize("version", [v for v in versions(COMMIT) if v])
def test_commit_stores_offsets_of_known_partitions(coordinator: FakeCoordinator, version: int) -> None:
    assert coordinator.commit(version, 0, 1, 2) == [(0, 0), (1, 0), (2, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    missing = Error.UNKNOWN_TOPIC_ID if version >= 10 else Error.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinator.commit(version, 0, topic="nix") == [(0, missing)]
    assert coordinator.world.committed(("t", 1)) == 6
    error = Error.GROUP_ID_NOT_FOUND if version >= 9 else Error.ILLEGAL_GENERATION
    answer = coordinator.commit(version, 0, group="none", generation_id_or_member_epoch=3, member_id="m")
    assert answer == [(0, error)]


def test_commit_stores_its_retention_and_timestamp(coordinator: FakeCoordinator) -> None:
    coordinator.commit(4, 0, retention_time_ms=50)
    value = coordinator.offset(0)
    assert value.expire_ms == coordinator.now.wall_ms + 50 and value.commit_ms == coordinator.now.wall_ms
    text = lambda s: struct.pack(">h", len(s)) + s  # noqa: E731
    v1 = text(b"g") + struct.pack(">i", -1) + text(b"") + struct.pack(">i", 1) + text(b"t")
    coordinator.send(COMMIT, 1, v1 + struct.pack(">iiqq", 1, 1, 9, 77) + text(b"md"))
    assert coordinator.offset(1).commit_ms == 77


@pytest.mark.parametrize("retention_ms", [(1 << 63) - 1, -(1 << 63), -2, 0])
def test_every_retention_time_can_be_encoded(coordinator: FakeCoordinator, retention_ms: int) -> None:
    """A time beyond the record's range becomes the largest one."""
    assert coordinator.commit(3, 0, retention_time_ms=retention_ms) == [(0, 0)]
    value = coordinator.offset(0)
    assert value.expire_ms == min(coordinator.now.wall_ms + retention_ms, (1 << 63) - 1)
    assert coordinator.commit(5, 0) == [(0, 0)]


@pytest.mark.parametrize("version", [v for v in versions(FETCH) if v])
def test_fetch_returns_committed_offsets(coordinator: FakeCoordinator, version: int) -> None:
    coordinator.commit(9, 0)
    answer = coordinator.fetch(version, 0, 1)
    (topic,) = answer.topics
    rows = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions]
    assert rows == [(0, 5, "md", 0), (1, -1, "", 0)]
    assert topic.topic_id == TOPIC_ID if version >= 10 else topic.name == "t"
    (topic,) = coordinator.fetch(version, 3, topic="nix").topics
    assert topic.partitions[0].error_code == (Error.UNKNOWN_TOPIC_ID if version >= 10 else 0)
    if version >= 2:
        (topic,) = coordinator.fetch(version, all_topics=True).topics
        assert [p.committed_offset for p in topic.partitions] == [5]
        assert coordinator.fetch(version, all_topics=True, group="none").topics == []


@pytest.mark.parametrize("version", [v for v in versions(FETCH) if v])
def test_fetch_from_an_unloaded_partition_is_not_coordinator(coordinator: FakeCoordinator, version: int) -> None:
    coordinator.groups.unload(0)
    answer = coordinator.fetch(version, 0)
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == Error.NOT_COORDINATOR
    else:
        assert answer.error_code == Error.NOT_COORDINATOR


def test_version_0_commits_and_fetches_in_the_tree(coordinator: FakeCoordinator) -> None:
    assert coordinator.commit(0, 0, 7) == [(0, 0), (7, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert coordinator.tree == {("g", "t", 0): 5} and coordinator.world.committed() is None
    (topic,) = coordinator.fetch(0, 0, 1).topics
    rows = [(p.committed_offset, p.error_code) for p in topic.partitions]
    assert rows == [(5, 0), (-1, Error.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", versions(FIND))
def test_find_coordinator_returns_this_broker_once_the_topic_exists(coordinator: FakeCoordinator, version: int) -> None:
    request = message_class("FindCoordinatorRequest")

    def find(kind: int = 0) -> Any:
        key = {"coordinator_keys": ["g", "h"]} if version >= 4 else {"key": "g"}
        answer = coordinator.send(FIND, version, request(key_type=kind, **key) if version else request(**key))
        assert version < 4 or [c.key for c in answer.coordinators] == ["g", "h"]
        return answer.coordinators[1] if version >= 4 else answer

    found = find()
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, "here", 9092)
    coordinator.topic_there = False
    assert find().error_code == Error.COORDINATOR_NOT_AVAILABLE
    if version:
        assert find(kind=1).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert find(kind=2).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_describe_returns_state_and_members(coordinator: FakeCoordinator, version: int) -> None:
    member = coordinator.stable()
    request = message_class("DescribeGroupsRequest")
    more = {"include_authorized_operations": True} if version >= 3 else {}
    group, none = coordinator.send(DESCRIBE, version, request(groups=["g", "none"], **more)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (row,) = group.members
    assert (row.member_id, row.client_id, row.client_host) == (member.member_id, "cl", "/127.0.0.1")
    assert (bytes(row.member_metadata), bytes(row.member_assignment)) == (RANGE[0][1], b"part")
    assert version < 3 or set(group.authorized_operations) == {3, 6, 8}
    assert (none.group_state, none.error_code) == ("Dead", Error.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions(LIST))
def test_list_filters_by_state_and_type(coordinator: FakeCoordinator, version: int) -> None:
    coordinator.stable()
    coordinator.commit(9, 0, group="simple")
    request = message_class("ListGroupsRequest")
    groups = coordinator.send(LIST, version, request()).groups
    assert [(g.group_id, g.protocol_type) for g in groups] == [("g", "consumer"), ("simple", "")]
    if version >= 4:
        (group,) = coordinator.send(LIST, version, request(states_filter=["stable"])).groups
        assert (group.group_id, group.group_state) == ("g", "Stable")
    if version >= 5:
        assert coordinator.send(LIST, version, request(types_filter=["consumer"])).groups == []
        assert coordinator.send(LIST, version, request(types_filter=["classic"])).groups[0].group_type == "classic"


@pytest.mark.parametrize("version", versions(DELETE))
def test_delete_groups_deletes_only_empty_groups(coordinator: FakeCoordinator, version: int) -> None:
    coordinator.stable()
    coordinator.commit(9, 0, group="simple")
    request = message_class("DeleteGroupsRequest")
    results = coordinator.send(DELETE, version, request(groups_names=["g", "simple", "none"])).results
    assert {row.group_id: row.error_code for row in results} == {
        "g": Error.NON_EMPTY_GROUP, "simple": 0, "none": Error.GROUP_ID_NOT_FOUND,
    }  # fmt: skip
    assert coordinator.send(DELETE, version, request(groups_names=[])).results == []


def test_delete_offsets_of_known_partitions(coordinator: FakeCoordinator) -> None:
    request = message_class("OffsetDeleteRequest")
    topic_class = request.OffsetDeleteRequestTopic

    def delete(group: str) -> Any:
        rows = [topic_class.OffsetDeleteRequestPartition(partition_index=n) for n in (0, 9)]
        return coordinator.send(
            OFFSET_DELETE, 0, request(group_id=group, topics=[topic_class(name="t", partitions=rows)])
        )

    assert (delete("none").error_code, delete("none").topics) == (Error.GROUP_ID_NOT_FOUND, [])
    coordinator.commit(9, 0, 1)
    answer = delete("g")
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(0, 0), (9, 3)]
    assert coordinator.world.committed() is None and coordinator.world.committed(("t", 1)) == 6
