"""The group coordinator over a real log, while the leadership of its partition changes."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.coordinator import group_coordinator, internal_topic
from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.broker.coordinator.group_coordinator import GroupCoordinator
from odradek.broker.coordinator.txn_marker_channel import TxnMarkerChannels
from odradek.broker.coordinator.txn_markers import MarkerWriter
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.events import Commit, Join, Now, Sync
from odradek.groups.log_writer import build_batch
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.records import GroupValue, OffsetValue, group_key, group_value, offset_key, offset_value
from odradek.ipc import roles, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol.errors import Error
from odradek.storage.log import flush, leader_or_follower, truncate
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.coordination import TxnMarkerEntry

from ...groups.world import drain
from ..partitions import now_ms

OWN, OTHER = 0, 1
TP = ("t", 0)
TIMEOUT_MS = 5_000


class Place:
    """One partition of `__consumer_offsets`: the controller's writes to its slot, and the coordinator."""

    def __init__(self, folder: Path) -> None:
        self.config = configuration.resolve({"log.dirs": str(folder / "data"), "broker.id": str(OWN)})
        run_dir = folder / "run"
        for path in (run_dir, folder / "data" / f"{OFFSETS}-0"):
            path.mkdir(parents=True)
        self.shared = Shared.create(f"/odradek-test-{os.getpid()}-{time.monotonic_ns()}-", 1, 16)
        self.shared.slots[0].publish(SlotState(incarnation=1, state=slots.FOLLOWER, leader_epoch=-1, led_since=-1))
        self.catalog = Catalog(self.shared, run_dir, roles.COORDINATOR, self.config, self.config.log_dirs)
        self.now = Now(1_000, now_ms())
        row = self.shared.processes.row(roles.COORDINATOR)
        self.coordinator = GroupCoordinator(self.catalog, self.config, ControllerClient(run_dir), row, self.now)
        self.groups = self.coordinator.machine
        self.answers: list[Any] = []

    # -- the controller process

    @property
    def partition(self) -> Partition:
        found = self.catalog.log.get(OFFSETS, 0)
        assert found is not None
        return found

    def publish(self, leader: int, there: bool = True, others: tuple[str, ...] = (), topic_id: str = "02") -> None:
        """Send new metadata to the coordinator; `others`: existing topics of clients."""
        topic = {"id": "01" * 16, "internal": True, "config": {}, "partitions": [[0, 1, leader, 0, [0, 1], [0, 1], 0]]}
        version, before = self.shared.metadata.version + 1, self.catalog.snapshot
        topics = {name: {**topic, "id": topic_id * 16, "internal": False} for name in others}
        raw = raw_snapshot(version, "c", 0, [], {**topics, **({OFFSETS: topic} if there else {})}, {})
        self.shared.metadata.publish(version, json.dumps(raw).encode())
        self.catalog.follow()
        self.coordinator.follow(before, self.catalog.snapshot, self.now)
        self.turn()

    def lead(self, epoch: int, isr: tuple[int, ...] = (OWN,)) -> None:
        with self.partition.locked() as values:
            leader_or_follower.become_leader(self.partition, values, epoch, [OTHER], isr, self.now.steady_ms)

    def follow(self, epoch: int) -> None:
        with self.partition.locked() as values:
            leader_or_follower.become_follower(self.partition, values, epoch)

    def write(self, offset: int, group: str = "g") -> None:
        """A commit of another coordinator that arrives by replication."""
        self.write_record(offset_key(group, *TP), offset_value(value(offset)))

    def write_record(self, key: bytes, content: bytes) -> None:
        batch = bytearray(build_batch([(key, content)], self.now.wall_ms))
        with self.partition.locked() as values:
            append(self.partition, values, [Batch(memoryview(batch), 1, self.now.wall_ms)], self.now.wall_ms)

    def begin(self, epoch: int = 1, **options: Any) -> None:
        """Lead from `epoch` on, with everything loaded."""
        self.publish(-1)
        self.lead(epoch, **options)
        self.publish(OWN)

    # -- clients

    def turn(self, ms: int = 0) -> None:
        self.now = Now(self.now.steady_ms + ms, self.now.wall_ms + ms)
        while self.coordinator.topic.is_loading and self.coordinator.topic.step(self.now):
            pass
        self.coordinator.topic.answer_waiting(self.now)
        self.coordinator.turn(self.now, lambda answer: self.answers.append(answer.result))

    def commit(self, offset: int, group: str = "g") -> None:
        self.groups.commit(Commit(group, "", None, -1, {TP: value(offset)}), None, self.now)
        self.turn()

    def codes(self) -> list[Error]:
        """The results of commits so far."""
        found = [answer[TP] for answer in self.answers]
        self.answers.clear()
        return found

    def committed(self, group: str = "g") -> int | Error:
        error, found = self.groups.fetch(group, [TP], False)
        if error:
            return error
        known = found[TP][0]
        return -1 if known is None else known.offset

    def end(self) -> int:
        return self.partition.state().leo

    def close(self) -> None:
        self.catalog.log.close()
        self.shared.destroy()


def value(offset: int) -> OffsetValue:
    return OffsetValue(offset, -1, "", now_ms())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_led_partitions_are_loaded_and_lost_ones_not_served(place: Place) -> None:
    place.publish(OTHER)
    assert place.committed() is Error.NOT_COORDINATOR
    place.publish(OWN)  # but the slot does not have the leadership yet
    assert place.committed() is Error.COORDINATOR_LOAD_IN_PROGRESS
    place.lead(1)
    place.turn()
    place.commit(5)
    assert (place.codes(), place.committed()) == ([Error.NONE], 5)
    place.follow(2)
    place.publish(OTHER)
    place.commit(6)
    assert (place.codes(), place.committed()) == ([Error.NOT_COORDINATOR], Error.NOT_COORDINATOR)


def test_partition_lost_and_regained_between_snapshots_is_reloaded(place: Place) -> None:
    place.begin()
    place.commit(5)
    place.follow(2)
    place.lead(3)
    place.write(7)
    end = place.end()
    place.commit(6)  # with the former metadata
    assert (place.codes(), place.end()) == ([Error.NONE, Error.NOT_COORDINATOR], end)
    place.publish(OWN)
    assert place.committed() == 7
    place.commit(8)
    assert (place.codes(), place.committed()) == ([Error.NONE], 8)


def test_another_epoch_of_the_same_leader_changes_nothing(place: Place) -> None:
    place.begin()
    place.commit(5)
    group = place.groups.get("g")
    place.lead(2)
    place.publish(OWN)
    assert place.groups.get("g") is group
    place.commit(6)
    assert place.codes() == [Error.NONE, Error.NONE]


def test_offsets_above_the_high_watermark_are_not_returned(place: Place) -> None:
    place.publish(-1)
    place.lead(1)
    place.write(5)
    place.lead(2, isr=(OWN, OTHER))
    place.write(6)
    place.publish(OWN)
    assert place.partition.state().hw == 1
    assert place.committed() is Error.COORDINATOR_LOAD_IN_PROGRESS
    place.partition.slot.update(hw=2)
    place.turn()
    assert place.committed() == 6


def test_a_commit_is_answered_when_all_have_it(place: Place) -> None:
    place.begin(isr=(OWN, OTHER))
    place.commit(5)
    assert (place.codes(), place.committed(), place.end()) == ([], -1, 1)
    place.partition.slot.update(hw=1)
    place.turn()
    assert (place.codes(), place.committed()) == ([Error.NONE], 5)
    place.commit(6)
    place.turn(TIMEOUT_MS - 1)
    assert place.codes() == []
    place.turn(1)
    assert (place.codes(), place.committed()) == ([Error.REQUEST_TIMED_OUT], 5)


def test_too_few_in_sync(place: Place) -> None:
    place.begin(isr=(OWN, OTHER))
    place.partition.slot.update(min_isr=2)
    place.commit(5)
    place.partition.slot.update(isr_count=1, hw_quorum=1, hw=1)
    place.turn()
    assert place.codes() == [Error.COORDINATOR_NOT_AVAILABLE]  # the ISR was large enough at the write
    place.commit(6)
    assert (place.codes(), place.end()) == ([Error.COORDINATOR_NOT_AVAILABLE], 1)


@pytest.mark.parametrize("again", [False, True])
def test_leadership_that_is_lost_while_a_commit_waits(place: Place, again: bool) -> None:
    place.begin(isr=(OWN, OTHER))
    place.commit(5)
    place.follow(2)
    if again:
        place.lead(3)  # the high watermark passes the commit, but waiting clients must get an error
        assert place.partition.state().hw == 1
    place.publish(OWN if again else OTHER)
    assert place.codes() == [Error.NOT_COORDINATOR]


def test_commit_queued_before_a_leader_change_is_not_written(place: Place, tmp_path: Path) -> None:
    place.begin()
    others = PartitionLocks(tmp_path / "run" / "partition.lock")
    assert others.try_lock(0)
    place.commit(5)
    others.unlock(0)
    others.close()
    assert place.codes() == []
    place.follow(2)
    place.lead(3)
    place.publish(OWN)
    assert (place.codes(), place.end(), place.committed()) == ([Error.NOT_COORDINATOR], 0, -1)


def test_failed_topic_creation_is_logged_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place.publish(OWN, there=False)
    asked: list[int] = []
    answers: list[bool] = []
    topic = place.coordinator.topic

    def refuse() -> None:
        asked.append(place.now.steady_ms)
        topic.creation_failed("too few brokers", place.now)

    topic._create = refuse
    for _ in range(50):
        topic.when_ready(answers.append, ["g"], place.now)
        place.turn(100)
    assert (len(asked), answers) == (5, [False] * 50)
    assert [record.message for record in caplog.records if record.name == internal_topic.__name__] == [
        "creating __consumer_offsets", "cannot create __consumer_offsets: too few brokers",
    ]  # fmt: skip


def test_a_commit_that_is_synced_while_its_log_is_truncated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that replaces the commit at its offset did not exist when the fsync began."""
    place.begin()
    partition = place.partition
    partition.config = replace(partition.config, flush_messages=1)

    def truncated_meanwhile(_paths: object) -> None:
        monkeypatch.undo()
        place.follow(2)
        with partition.locked() as values:
            truncate.truncate(partition, values, 0)
        place.lead(3)
        place.write(7, "other")

    monkeypatch.setattr(flush, "sync_files", truncated_meanwhile)
    place.commit(5)
    assert (partition.state().leo, partition.state().flushed) == (1, 0)


# -- faults -------------------------------------------------------------------------------------------------------


def overflowing(group: str) -> tuple[bytes, bytes]:
    """A group in its last generation: the next one cannot be written. No other input makes the state machine fail."""
    return group_key(group), group_value(GroupValue("consumer", 2**31 - 1, None, None, -1, ()))


def joining(place: Place, group: str) -> None:
    request = Join(group, "", None, "c", "/h", 1_000, 10_000, "consumer", (("range", b""),))
    place.groups.join(request, "a token", place.now)
    place.turn()


def test_a_group_with_a_fault_is_read_again_and_the_others_go_on(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.publish(-1)
    place.lead(1)
    place.write(5, "bad")
    place.write_record(*overflowing("bad"))
    place.publish(OWN)
    joining(place, "good")
    place.turn(3_000)
    place.commit(7, "good-offsets")
    good = place.groups.get("good")
    assert good is not None and good.generation == 1
    joining(place, "bad")
    place.answers.clear()
    place.turn(3_000)  # the rebalance ends with an invalid generation
    place.groups.sync(Sync("bad", 2**31, leader_of(place, "bad"), assignments={}), "a token", place.now)
    place.turn()
    said = [answer.error for answer in place.answers]
    assert said == [Error.NONE, Error.UNKNOWN_SERVER_ERROR, Error.COORDINATOR_NOT_AVAILABLE]  # the second counts
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]
    assert place.committed("bad") is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert place.committed("good-offsets") == 7
    place.commit(8, "good-offsets")
    assert place.committed("good-offsets") == 8
    place.turn(RELOAD_PAUSE_MS)
    place.turn()
    assert place.committed("bad") == 5
    assert place.groups.get("good") is good
    place.commit(6, "bad")
    assert place.committed("bad") == 6


def leader_of(place: Place, name: str) -> str:
    group = place.groups.get(name)
    assert group is not None and group.leader is not None
    return group.leader


def test_an_effect_that_fails_costs_its_group_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failed group is reloaded after a pause; later effects of the same turn are carried out."""
    place.begin()
    for offset, name in enumerate(("bad", "worse", "good")):
        place.commit(offset, name)
    reload, failures = place.coordinator.topic.reload, iter([ValueError("a fault")])

    def fails(key: str) -> None:
        for failure in failures if key == "bad" else ():
            raise failure
        reload(key)

    monkeypatch.setattr(place.coordinator.topic, "reload", fails)
    place.groups.reset("bad", place.now)
    place.groups.reset("worse", place.now)
    place.turn(RELOAD_PAUSE_MS)
    place.commit(9, "good")
    assert (place.committed("worse"), place.committed("good")) == (1, 9)
    assert place.committed("bad") is Error.COORDINATOR_LOAD_IN_PROGRESS
    place.turn(RELOAD_PAUSE_MS)
    place.turn()
    assert place.committed("bad") == 0
    (said,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert said.exc_info and "bad" in said.message


def test_reset_group_is_read_after_its_pending_commits(place: Place, tmp_path: Path) -> None:
    """A commit that waits for the partition lock is written before the group is reloaded."""
    place.begin(isr=(OWN, OTHER))
    others = PartitionLocks(tmp_path / "run" / "partition.lock")
    assert others.try_lock(0)
    place.commit(5)
    place.groups.reset("g", place.now)
    place.turn(RELOAD_PAUSE_MS)
    assert (place.end(), place.committed()) == (0, Error.COORDINATOR_LOAD_IN_PROGRESS)
    others.unlock(0)
    others.close()
    place.turn()
    assert (place.end(), place.committed()) == (1, Error.COORDINATOR_LOAD_IN_PROGRESS)  # not replicated yet
    place.partition.slot.update(hw=1)
    place.turn()
    assert (place.codes(), place.committed()) == ([Error.NONE], 5)


def test_a_marker_waits_for_the_offsets_of_its_producer_alone(place: Place) -> None:
    """Other clients commit all the time, so some offset always waits for the high watermark."""
    place.begin(isr=(OWN, OTHER))
    links = TxnMarkerChannels(place.config, lambda *_: None)
    writer = MarkerWriter(place.catalog, place.groups, place.coordinator.holds_markers, links, lambda *_: None)
    done: list[Any] = []
    place.groups.commit(Commit("g", "", None, -1, {TP: value(7)}, producer=(5, 0)), None, place.now)
    place.turn()
    writer.add(TxnMarkerEntry(5, 0, 1, True, frozenset({(OFFSETS, 0)})), done.append, lambda: None, 0, place.now)
    writer.write(place.now)
    assert place.end() == 1, "the transaction's own offsets are still pending"
    for step in range(20):
        place.commit(step, "other")
        place.partition.slot.update(hw=place.end() - 1)
        place.turn(200)
        writer.write(place.now)
    assert done == [{(OFFSETS, 0): Error.NONE}]
    assert place.committed() == 7
    links.close()


def test_leadership_that_is_lost_while_a_group_is_read_again(place: Place) -> None:
    place.begin()
    place.commit(5)
    place.groups.reset("g", place.now)
    place.turn(RELOAD_PAUSE_MS - 1)
    place.follow(2)
    place.lead(3)
    place.write(7)
    place.turn(1)
    place.publish(OWN)
    assert place.committed() == 7


def test_a_group_of_a_topic_that_was_deleted_while_it_was_read_again(place: Place) -> None:
    place.begin()
    place.commit(5)
    place.groups.reset("g", place.now)
    drain(place.groups.forgetting({"t"}, place.now))
    place.turn(RELOAD_PAUSE_MS)
    place.turn()
    assert place.committed() == -1


def test_offsets_of_topics_that_were_deleted_while_the_partition_was_loaded(place: Place) -> None:
    place.publish(-1)
    place.lead(1)
    place.write(5)
    place.lead(2, isr=(OWN, OTHER))
    place.write(6, "other")
    place.publish(OWN)
    assert place.committed() is Error.COORDINATOR_LOAD_IN_PROGRESS
    drain(place.groups.forgetting({"t"}, place.now))
    place.partition.slot.update(hw=2)
    place.turn()
    assert (place.committed(), place.committed("other")) == (-1, -1)
    end = place.end()
    place.follow(3)
    place.lead(4)
    place.publish(OWN)  # the log has the tombstones
    assert (end, place.committed(), place.committed("other")) == (4, -1, -1)


def many_that_lose_a_topic(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Groups of which a turn handles one; their topic is deleted and the first turn is over."""
    names = ["a", "b", "c", "d"]
    place.begin()
    place.publish(OWN, others=("t",))
    for name in names:
        place.commit(1, name)
    monkeypatch.setattr(group_coordinator, "SLICE_S", 0.0)
    place.publish(OWN)
    return names


def test_offsets_of_a_deleted_topic_go_in_slices(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    names = many_that_lose_a_topic(place, monkeypatch)
    assert [place.committed(name) for name in names] == [-1, 1, 1, 1]
    assert place.coordinator.poll_timeout(place.now) == 0.0
    for _ in names:
        place.turn()
    assert [place.committed(name) for name in names] == [-1] * 4
    assert place.coordinator.poll_timeout(place.now) != 0.0


def test_offsets_committed_after_a_topic_is_created_again_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = many_that_lose_a_topic(place, monkeypatch)
    place.publish(OWN, others=("t",))
    assert [place.committed(name) for name in names] == [-1] * 4
    place.commit(7, "d")
    for _ in names:
        place.turn()
    assert [place.committed(name) for name in names] == [-1, -1, -1, 7]


def test_a_topic_whose_id_is_not_known_for_a_while_was_not_deleted(place: Place) -> None:
    """Old tools create a topic's node in ZooKeeper without its id; the elected controller adds the id again."""
    place.begin()
    place.publish(OWN, others=("t",))
    place.commit(5)
    for topic_id in ("00", "02"):
        place.publish(OWN, others=("t",), topic_id=topic_id)
        assert place.committed() == 5
    place.publish(OWN, others=("t",), topic_id="03")
    assert place.committed() == -1


def test_a_group_that_is_reset_before_a_deleted_topic_is_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = many_that_lose_a_topic(place, monkeypatch)
    place.groups.reset("d", place.now)
    for _ in names:
        place.turn()
    place.turn(RELOAD_PAUSE_MS)
    place.turn()
    assert [place.committed(name) for name in names] == [-1] * 4


def test_offsets_expire_in_slices(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.begin()
    for name in ("a", "b"):
        place.commit(1, name)
    monkeypatch.setattr(group_coordinator, "SLICE_S", 0.0)
    place.turn(7 * 24 * 3_600_000 + 60_000)
    assert [place.committed(name) for name in ("a", "b")] == [-1, 1]
    place.turn()
    assert [place.committed(name) for name in ("a", "b")] == [-1, -1]


def test_a_segment_that_is_missing_is_named_and_costs_no_time(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.publish(-1)
    place.lead(1)
    place.write(5)
    (Path(place.partition.directory) / "00000000000000000000.log").unlink()
    place.partition.close_files()
    place.publish(OWN)
    steps = []
    while place.coordinator.topic.is_loading:
        steps.append(place.coordinator.topic.step(place.now))
        time.sleep(0.005)  # the coordinator also sleeps after a step without work
    assert not any(steps[:-1])
    assert place.committed() is Error.COORDINATOR_NOT_AVAILABLE
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert "__consumer_offsets-0 cannot be read" in said and "Restore its files" in said
