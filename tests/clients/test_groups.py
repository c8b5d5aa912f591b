"""Groups of five members of each client share a topic while members join and leave."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from ..harness.process import wait_until
from .admin import create_topic, unique
from .drivers import DRIVERS
from .drivers.base import Driver, Member
from .raw.batches import batch
from .raw.calls import produce

pytestmark = pytest.mark.live

PARTITIONS = 6
EACH = [
    pytest.param(driver, id=name, marks=[pytest.mark.needs(driver.tool)] if driver.tool else [])
    for name, driver in DRIVERS.items()
]


class Feed:
    """Writes numbered values over all partitions until stopped."""

    def __init__(self, broker: Any, topic: str) -> None:
        self._stop = threading.Event()
        self.written: list[bytes] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(broker, topic), daemon=True)
        self._thread.start()

    def _run(self, broker: Any, topic: str) -> None:
        try:
            with broker.wire() as wire:
                while not self._stop.wait(0.01):
                    at = len(self.written)
                    values = [b"value-%d-%d" % (at, part) for part in range(3)]
                    answer = produce(wire, topic, batch(values), partition=at // 3 % PARTITIONS)
                    assert answer.error_code == 0, answer
                    self.written += values
        except BaseException as error:
            self._error = error

    def finish(self) -> set[bytes]:
        """Stop; returns all acknowledged values."""
        self._stop.set()
        self._thread.join(20)
        if self._error:
            raise self._error
        return set(self.written)


class Commits:
    """Watches the committed offsets of a group, which must never go back."""

    def __init__(self, broker: Any, group: str, topic: str) -> None:
        self.last = dict.fromkeys(range(PARTITIONS), -1)
        self.went_back: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(broker, group, topic), daemon=True)
        self._thread.start()

    def _run(self, broker: Any, group: str, topic: str) -> None:
        with broker.wire() as wire:
            while not self._stop.wait(0.05):
                for partition, offset in committed(wire, group, topic).items():
                    if offset < self.last[partition]:
                        self.went_back.append(f"{partition}: {self.last[partition]} → {offset}")
                    self.last[partition] = offset

    def finish(self) -> None:
        """Stop; AssertionError if one went back."""
        self._stop.set()
        self._thread.join(20)
        assert not self.went_back, self.went_back


def committed(wire: Any, group: str, topic: str) -> dict[int, int]:
    """{partition: committed offset}, empty while the coordinator is not ready."""
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    row = Request.OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(PARTITIONS)))
    answer = wire.call(Request[5](group_id=group, topics=[row]))
    if answer.error_code:
        assert answer.error_code in (14, 15, 16), answer
        return {}
    return {one.partition_index: one.committed_offset for one in answer.topics[0].partitions}


def assignment(wire: Any, group: str) -> list[list[int]]:
    """The partitions of each member of a stable group; empty while the group is not stable."""
    from kafka.protocol.admin import DescribeGroupsRequest as Request

    found = wire.call(Request[4](groups=[group], include_authorized_operations=False)).groups[0]
    if found.error_code or found.group_state != "Stable":
        return []
    return [_partitions(bytes(member.member_assignment)) for member in found.members]


def _partitions(data: bytes) -> list[int]:
    """The partitions of the first topic in a ConsumerProtocolAssignment (version, topics, user data)."""
    topics = int.from_bytes(data[2:6], "big") if len(data) > 6 else 0
    if not topics:
        return []
    start = 8 + int.from_bytes(data[6:8], "big")
    count = int.from_bytes(data[start : start + 4], "big")
    return [int.from_bytes(data[start + 4 + 4 * at :][:4], "big") for at in range(count)]


def shared_by(wire: Any, group: str, members: int) -> bool:
    """Is the group stable with so many members, and every partition assigned exactly once?"""
    parts = assignment(wire, group)
    return len(parts) == members and sorted(itertools.chain(*parts)) == list(range(PARTITIONS))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("driver", EACH)
def test_group_processes_all_records_while_members_join_and_leave(broker: Any, driver: Driver, tmp_path: Path) -> None:
    topic, group = create_topic(broker, "shared", PARTITIONS), unique("group")
    feed, commits = Feed(broker, topic), Commits(broker, group, topic)
    gone: list[Member] = []
    members: list[Member] = []

    def join(count: int) -> None:
        members.extend(driver.member(broker.bootstrap, topic, group, tmp_path) for _ in range(count))

    try:
        with broker.wire(60) as wire:
            join(5)
            wait_until(lambda: shared_by(wire, group, 5), 90, "five members share all partitions")
            gone += [members.pop(0), members.pop(0)]
            gone[0].kill() if driver.name == "kcat" else gone[0].leave()  # kcat skips a record when it is asked to end
            gone[1].kill()
            wait_until(lambda: shared_by(wire, group, 3), 60, "three members share all partitions")
            join(2)
            wait_until(lambda: shared_by(wire, group, 5), 90, "five members again")
            written = feed.finish()
            wait_until(lambda: written <= seen(members + gone), 60, fail=False)
            missing = written - seen(members + gone)
            assert not missing, f"{len(missing)} of {len(written)} never processed: {sorted(missing)[:5]}"
            wait_until(lambda: sum(committed(wire, group, topic).values()) == len(written), 30, "all committed")
    finally:
        feed.finish()
        leave_all(members)
    commits.finish()
    if driver.name != "kcat":  # SIGKILL may cut its last value short
        assert seen(members + gone) <= written


def leave_all(members: list[Member]) -> None:
    """Leave in parallel: some clients take a second."""
    threads = [threading.Thread(target=member.leave) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def seen(members: list[Member]) -> set[bytes]:
    """All values that a member processed."""
    return {value for member in members for value in member.seen()}


@pytest.mark.smoke
@pytest.mark.needs(*[driver.tool for driver in DRIVERS.values() if driver.tool and "java" not in driver.tool])
def test_different_client_libraries_share_a_group(broker: Any, tmp_path: Path) -> None:
    """librdkafka, kafka-python and aiokafka agree on `range`."""
    topic, group = create_topic(broker, "mixed", PARTITIONS), unique("mixed")
    feed = Feed(broker, topic)
    names = ["confluent-kafka", "kafka-python", "aiokafka", "kcat"]
    members = [DRIVERS[name].member(broker.bootstrap, topic, group, tmp_path) for name in names]
    try:
        with broker.wire(60) as wire:
            wait_until(lambda: shared_by(wire, group, 4), 120, "four members share all partitions")
        so_far = len(feed.written)
        wait_until(lambda: len(feed.written) >= so_far + 9 * PARTITIONS, 60, "records of all partitions")
        written = feed.finish()
        wait_until(lambda: written <= seen(members), 60, "everything is processed")
    finally:
        feed.finish()
        leave_all(members)
