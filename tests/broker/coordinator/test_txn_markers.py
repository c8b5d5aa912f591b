"""Transaction markers for partitions with a local leader, a remote leader, no leader, and changing leaders."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.coordinator import txn_markers
from odradek.broker.coordinator.txn_marker_channel import TxnMarkerChannels
from odradek.broker.coordinator.txn_markers import NO_SOURCE, MarkerWriter
from odradek.broker.interbroker import connection
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.groups.events import Now
from odradek.groups.groups import Groups
from odradek.ipc import roles, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol import requests
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.storage.log import control_batch, leader_or_follower
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.coordination import TxnMarkerEntry

from ...harness.effort import lines
from ...harness.process import refusing_socket, wait_until
from ..partitions import now_ms

OWN, OTHER = 0, 1
HERE, THERE = ("t", 0), ("t", 1)
SOURCE = 7
HOUR_MS = 3_600_000


class PlayedBroker:
    """Answers WriteTxnMarkers by `answer`: (producer id, coordinator epoch, partition) → error code."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, tuple[str, int]]] = []
        self.answer: Callable[..., int | None] = lambda *marker: 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            with sock:
                while self._one(sock):
                    pass

    def _one(self, sock: socket.socket) -> bool:
        """Whether the connection stays open: an answer of None closes it."""
        head = sock.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return False
        frame = sock.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        key, version, correlation, client = struct.unpack_from(">hhih", frame)
        assert (key, version) == (27, 1)
        request = requests.decode(
            message_class("WriteTxnMarkersRequest"), version, memoryview(frame)[10 + client + 1 :]
        )
        rows = [self._row(marker) for marker in request.markers]
        if None in rows:
            return False
        body = bytes(message_class("WriteTxnMarkersResponse")(markers=rows).encode(version=version))
        sock.sendall(struct.pack(">iiB", len(body) + 5, correlation, 0) + body)
        return True

    def _row(self, marker: Any) -> Any:
        row = message_class("WriteTxnMarkersResponse").WritableTxnMarkerResult
        topic_class = row.WritableTxnMarkerTopicResult
        part_class = topic_class.WritableTxnMarkerPartitionResult
        topics = []
        for topic in marker.topics:
            parts = []
            for index in topic.partition_indexes:
                asked = (marker.producer_id, marker.coordinator_epoch, (topic.name, index))
                self.asked.append(asked)
                code = self.answer(*asked)
                if code is None:
                    return None
                parts.append(part_class(partition_index=index, error_code=code))
            topics.append(topic_class(name=topic.name, partitions=parts))
        return row(producer_id=marker.producer_id, topics=topics)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


class Place:
    """A broker with topic `t` of two partitions, and its marker writer in an event loop."""

    def __init__(self, folder: Path, other: PlayedBroker) -> None:
        data, run_dir = folder / "data", folder / "run"
        self.run_dir = run_dir
        properties = {"log.dirs": str(data), "broker.id": str(OWN), "zookeeper.connect": "localhost:1"}
        self.config = configuration.resolve(properties)
        for path in (run_dir, data / "t-0", data / "t-1"):
            path.mkdir(parents=True)
        self.shared = Shared.create(f"/odradek-test-{os.getpid()}-{time.monotonic_ns()}-", 1, 16)
        for index in range(2):
            fields = {"incarnation": index + 1, "state": slots.FOLLOWER, "leader_epoch": -1, "led_since": -1}
            self.shared.slots[index].publish(SlotState(**fields))
        self.catalog = Catalog(self.shared, run_dir, roles.COORDINATOR, self.config, self.config.log_dirs)
        self.other = other
        self.ahead_ms = 0
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self.links = TxnMarkerChannels(self.config, self._watch)
        self.writer = MarkerWriter(self.catalog, Groups(), lambda *_: False, self.links, lambda *_: None)
        self.done: list[dict[Any, Error]] = []
        self.lost: list[TxnMarkerEntry] = []

    def _watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        if not events:
            self._epoll.unregister(fd)
            del self._ready[fd]
            return
        (self._epoll.modify if fd in self._ready else self._epoll.register)(fd, events)
        self._ready[fd] = ready

    def publish(self, *leaders: int, port: int | None = None) -> None:
        """Publish new metadata: the leaders of the partitions, and the address of the other broker."""
        rows = [[index, index + 1, leader, 0, [0, 1], [0, 1], 0] for index, leader in enumerate(leaders)]
        topic = {"id": "01" * 16, "internal": False, "config": {}, "partitions": rows}
        endpoint = ["127.0.0.1", self.other.address[1] if port is None else port]
        brokers = [{"id": OTHER, "rack": None, "endpoints": {"PLAINTEXT": endpoint}}]
        version = self.shared.metadata.version + 1
        raw = raw_snapshot(version, "c", 0, brokers, {"t": topic}, {})
        self.shared.metadata.publish(version, json.dumps(raw).encode())
        self.catalog.follow()
        self.links.follow(self.catalog.snapshot)
        self.writer.metadata_changed()

    def partition(self, index: int) -> Partition:
        found = self.catalog.log.get("t", index)
        assert found is not None
        return found

    def lead(self, index: int, epoch: int, isr: tuple[int, ...] = (OWN,)) -> None:
        partition = self.partition(index)
        with partition.locked() as values:
            leader_or_follower.become_leader(partition, values, epoch, [OTHER], isr, time.monotonic_ns() // 1_000_000)

    def follow(self, index: int, epoch: int) -> None:
        partition = self.partition(index)
        with partition.locked() as values:
            leader_or_follower.become_follower(partition, values, epoch)

    def end(self, index: int) -> int:
        return self.partition(index).state().leo

    def add(self, *partitions: Any, source: int = SOURCE, epoch: int = 3, producer: int = 5) -> None:
        wanted = TxnMarkerEntry(producer, 0, epoch, True, frozenset(partitions))
        self.writer.add(wanted, self.done.append, lambda: self.lost.append(wanted), source, self.now())
        self.turn()

    def now(self) -> Now:
        return Now(time.monotonic_ns() // 1_000_000 + self.ahead_ms, now_ms())

    def turn(self) -> None:
        for fd, events in self._epoll.poll(0.001):
            if fd in self._ready:
                self._ready[fd](events)
        self.writer.write(self.now())

    def await_done(self, count: int = 1) -> list[dict[Any, Error]]:
        def enough() -> bool:
            self.turn()
            return len(self.done) >= count

        wait_until(enough, 60, "the markers are written")
        return self.done

    def close(self) -> None:
        self.links.close()
        self.catalog.log.close()
        self._epoll.close()
        self.shared.destroy()


@pytest.fixture
def other() -> Iterator[PlayedBroker]:
    made = PlayedBroker()
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path, other: PlayedBroker) -> Iterator[Place]:
    made = Place(tmp_path, other)
    yield made
    made.close()


def test_markers_for_local_and_remote_leaders(place: Place, other: PlayedBroker) -> None:
    place.publish(OWN, OTHER)
    place.lead(0, 1)
    place.add(HERE, THERE)
    assert place.await_done() == [{HERE: Error.NONE, THERE: Error.NONE}]
    assert (place.end(0), place.end(1), other.asked) == (1, 0, [(5, 3, THERE)])


def test_a_marker_here_is_done_when_all_have_it(place: Place) -> None:
    place.publish(OWN, OTHER)
    place.lead(0, 1, isr=(OWN, OTHER))
    place.add(HERE)
    place.turn()
    assert (place.done, place.end(0)) == ([], 1)
    place.partition(0).slot.update(hw=1)
    place.turn()
    assert place.done == [{HERE: Error.NONE}]


def test_failure_of_one_marker_does_not_affect_others(place: Place) -> None:
    """The memory has no room for a new producer id."""
    place.publish(OWN, OWN)
    place.lead(0, 1)
    place.lead(1, 1)
    place.add(HERE, THERE, producer=1 << 70)
    place.add(HERE, THERE)
    assert place.await_done() == [{HERE: Error.NONE, THERE: Error.NONE}]
    assert [wanted.producer_id for wanted in place.lost] == [1 << 70]
    assert (place.end(0), place.end(1)) == (1, 1)


@pytest.mark.parametrize(
    "code", [Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS, None]
)
def test_remote_marker_is_retried_until_it_is_written(place: Place, other: PlayedBroker, code: Error | None) -> None:
    left = [code, code]
    other.answer = lambda *marker: left.pop() if left else 0
    place.publish(OTHER, OTHER)
    place.add(THERE)
    assert place.await_done() == [{THERE: Error.NONE}]
    assert other.asked == [(5, 3, THERE)] * 3


def test_marker_follows_the_leader(place: Place, other: PlayedBroker) -> None:
    other.answer = lambda *marker: Error.NOT_LEADER_OR_FOLLOWER
    place.publish(OTHER, -1)
    place.add(HERE, THERE)
    wait_until(lambda: place.turn() or other.asked, 10, "the first attempt is sent")
    place.lead(0, 2)
    other.answer = lambda *marker: 0
    place.publish(OWN, OTHER)
    assert place.await_done() == [{HERE: Error.NONE, THERE: Error.NONE}]
    assert (place.end(0), {marker[2] for marker in other.asked}) == (1, {HERE, THERE})


def test_broker_that_returns_at_another_address(place: Place, other: PlayedBroker) -> None:
    with refusing_socket() as silent:
        place.publish(OTHER, OTHER, port=silent.getsockname()[1])
        place.add(THERE)
        for _ in range(20):
            place.turn()
    assert not other.asked
    place.publish(OTHER, OTHER)
    assert place.await_done() == [{THERE: Error.NONE}]


def test_leadership_lost_before_all_have_it(place: Place, other: PlayedBroker) -> None:
    place.publish(OWN, OTHER)
    place.lead(0, 1, isr=(OWN, OTHER))
    place.add(HERE)
    place.add(HERE, source=NO_SOURCE)
    place.follow(0, 2)
    place.lead(0, 3)  # the high watermark passes the marker, but the waiting coordinator must retry
    place.turn()
    assert place.done == [{HERE: Error.NOT_LEADER_OR_FOLLOWER}]
    assert place.await_done(2)[1] == {HERE: Error.NONE}
    assert place.end(0) == 3


def test_request_of_another_broker_is_answered_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_markers, "FOREIGN_MS", 100)
    place.publish(OWN, OWN)
    place.lead(0, 1, isr=(OWN, OTHER))
    place.add(HERE, THERE, ("nowhere", 0), source=NO_SOURCE)
    (outcome,) = place.await_done()
    assert outcome == {
        HERE: Error.REQUEST_TIMED_OUT, THERE: Error.NOT_LEADER_OR_FOLLOWER,
        ("nowhere", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip


def test_repeated_request_of_another_broker_writes_once(place: Place) -> None:
    """The first request is still pending; written late, its marker would end the producer's next transaction."""
    place.publish(OWN, OTHER)
    place.lead(0, 1)
    locks = PartitionLocks(place.run_dir / "partition.lock")  # the lock of another process
    try:
        wait_until(lambda: locks.try_lock(place.partition(0).slot.number), 10, "the lock is taken")
        place.add(HERE, source=NO_SOURCE)
        place.add(HERE, source=NO_SOURCE)
    finally:
        locks.close()
    assert place.await_done(2) == [{HERE: Error.REQUEST_TIMED_OUT}, {HERE: Error.NONE}]
    assert place.end(0) == 1
    assert not place.writer._foreign_txns


def test_ten_times_the_markers_of_one_producer_take_ten_times_as_long(place: Place) -> None:
    """One request may have 21,000 markers, each for another partition."""

    def add(count: int) -> None:
        for number in range(count):
            wanted = TxnMarkerEntry(5, 0, 3, True, frozenset([("nowhere", number)]))
            place.writer.add(wanted, place.done.append, lambda: None, NO_SOURCE, now)

    now = place.now()
    few = lines(lambda: add(20))
    assert lines(lambda: add(200)) < 12 * few


def test_waiting_markers_cost_little_in_each_turn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of markers may wait for a leader: groups must get their turns in between."""
    monkeypatch.setattr(txn_markers, "SLICE_S", 60.0)
    place.publish(-1, -1)
    now, count = place.now(), 500
    for producer in range(count):
        wanted = TxnMarkerEntry(producer, 0, 3, True, frozenset({HERE}))
        place.writer.add(wanted, place.done.append, lambda: None, SOURCE, now)
    place.writer.write(now)
    assert lines(lambda: place.writer.write(now)) < 5 * count


def test_many_are_written_in_slices(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand markers in one request must not delay groups, nor must one job delay later ones."""
    place.publish(OWN, OWN)
    for index in (0, 1):
        place.lead(index, 1)
    monkeypatch.setattr(txn_markers, "SLICE_S", 0.0)
    ends = []
    for turn in (lambda: place.add(HERE, THERE), lambda: place.add(HERE, producer=6), place.turn):
        turn()
        ends.append((place.end(0) + place.end(1), place.writer.poll_timeout(place.now()) is not None))
    assert ends == [(1, True), (2, True), (3, False)]
    assert sorted(map(len, place.await_done(2))) == [1, 2]


def test_reloaded_transaction_writes_each_marker_once(place: Place) -> None:
    """The id was reset while its markers were pending; written twice, one may end the producer's next transaction."""
    place.publish(OWN, OTHER)
    place.lead(0, 1)
    locks = PartitionLocks(place.run_dir / "partition.lock")  # the lock of another process
    try:
        wait_until(lambda: locks.try_lock(place.partition(0).slot.number), 10, "the lock is taken")
        place.add(HERE)
        place.add(HERE, producer=6)
        place.add(HERE)
    finally:
        locks.close()
    assert place.await_done(2) == [{HERE: Error.NONE}, {HERE: Error.NONE}]
    assert place.end(0) == 2 and place.writer.poll_timeout(place.now()) is None


def test_too_few_in_sync(place: Place) -> None:
    place.publish(OWN, OWN)
    place.lead(0, 1)
    place.partition(0).slot.update(min_isr=2)
    place.add(HERE, source=NO_SOURCE)
    place.add(HERE)
    assert (place.done, place.end(0)) == ([{HERE: Error.NOT_ENOUGH_REPLICAS}], 0)
    place.partition(0).slot.update(isr_count=2)
    wait_until(lambda: place.turn() or place.end(0) == 1, 10, "the marker is written")
    assert len(place.done) == 1, "only one replica has the marker"
    place.partition(0).slot.update(hw_quorum=2)
    assert place.await_done(2)[1] == {HERE: Error.NONE}
    assert place.end(0) == 1


def test_too_few_in_sync_when_another_asked_for_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ISR is large enough at the write, and too small when the high watermark passes the marker."""
    monkeypatch.setattr(txn_markers, "FOREIGN_MS", 100)
    place.publish(OWN, OWN)
    place.lead(0, 1, isr=(OWN, OTHER))
    place.partition(0).slot.update(min_isr=2)
    place.add(HERE, source=NO_SOURCE)
    place.partition(0).slot.update(isr_count=1, hw_quorum=1, hw=1)
    assert place.await_done() == [{HERE: Error.REQUEST_TIMED_OUT}]


def test_a_former_coordinator_is_fenced(place: Place, other: PlayedBroker) -> None:
    place.publish(OWN, OTHER)
    place.lead(0, 1)
    with place.partition(0).locked() as values:  # the partition knows the producer
        data = _transactional(5)
        append(place.partition(0), values, [Batch(memoryview(data), 1, now_ms(), 5, 0, 0)], now_ms())
    place.add(HERE, epoch=4)
    place.add(HERE, epoch=3, source=NO_SOURCE)
    assert place.await_done(2) == [{HERE: Error.NONE}, {HERE: Error.TRANSACTION_COORDINATOR_FENCED}]
    other.answer = lambda *marker: Error.TRANSACTION_COORDINATOR_FENCED
    place.add(HERE, THERE, epoch=3)
    wait_until(lambda: place.turn() or place.writer.poll_timeout(place.now()) is None, 10, "it gives up")
    assert (len(place.done), place.end(0)) == (2, 2)


def test_fenced_coordinator_writes_no_further_marker(place: Place) -> None:
    """The order of its partitions is random, but the same for both: one of them gets the refusal first."""
    place.publish(OWN, OWN)
    for index, producer in enumerate((5, 6)):
        place.lead(index, 1)
        data = _transactional(producer)
        with place.partition(index).locked() as values:
            append(place.partition(index), values, [Batch(memoryview(data), 1, now_ms(), producer, 0, 0)], now_ms())
        place.add(("t", index), epoch=4, producer=producer)
    place.await_done(2)
    before = place.end(0) + place.end(1)
    for producer in (5, 6):
        place.add(HERE, THERE, epoch=3, producer=producer)
    place.turn()
    assert (len(place.done), place.end(0) + place.end(1)) == (2, before + 1)


def test_a_marker_waits_while_a_later_epoch_has_a_transaction_open(place: Place) -> None:
    place.publish(OWN, OTHER)
    place.lead(0, 1)
    partition = place.partition(0)
    with partition.locked() as values:  # clients can do so without verification
        batch = Batch(memoryview(_transactional(5, epoch=1)), 1, now_ms(), 5, 1, 0)
        batch.transactional = True
        append(partition, values, [batch], now_ms())
    place.add(HERE, source=NO_SOURCE)
    assert place.done == [{HERE: Error.INVALID_PRODUCER_EPOCH}], "Kafka answers another coordinator in the same way"
    place.add(HERE)
    assert (len(place.done), partition.state().unstable) == (1, 0)
    assert not control_batch.write_marker(partition, 5, 1, 3, False, now_ms())
    assert place.await_done(2)[1] == {HERE: Error.INVALID_PRODUCER_EPOCH}
    assert partition.state().unstable == -1


def test_a_marker_that_another_refuses_is_not_done(place: Place, other: PlayedBroker) -> None:
    """A Kafka broker does not report whether the later epoch has an open transaction."""
    left = [Error.INVALID_PRODUCER_EPOCH] * 2
    other.answer = lambda *marker: left.pop() if left else 0
    place.publish(OTHER, OTHER)
    place.add(THERE)
    assert place.await_done() == [{THERE: Error.NONE}]
    assert len(other.asked) == 3


def test_forgotten_marker_is_not_retried(place: Place, other: PlayedBroker) -> None:
    other.answer = lambda *marker: Error.NOT_LEADER_OR_FOLLOWER
    place.publish(OTHER, OTHER)
    place.add(THERE)
    place.add(THERE, source=SOURCE + 1, producer=6)
    wait_until(lambda: place.turn() or len(other.asked) >= 2, 10, "both markers are requested")
    place.writer.forget(SOURCE)
    other.answer = lambda *marker: 0
    assert place.await_done() == [{THERE: Error.NONE}]
    assert place.writer.poll_timeout(place.now()) is None
    assert other.asked[-1][0] == 6


def test_deleted_partition_needs_no_marker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After METADATA_LAG_MS without the partition: before, the metadata may only be stale."""
    monkeypatch.setattr(txn_markers, "METADATA_LAG_MS", HOUR_MS)
    monkeypatch.setattr(connection, "_now_ms", lambda: place.now().steady_ms)
    place.publish(OTHER, OTHER)
    place.add(("gone", 0))
    place.ahead_ms = HOUR_MS // 2
    place.add(THERE, source=SOURCE + 1, producer=6)
    assert place.await_done() == [{THERE: Error.NONE}]
    place.ahead_ms = HOUR_MS
    assert place.await_done(2)[1:] == [{("gone", 0): Error.UNKNOWN_TOPIC_OR_PARTITION}]


def _transactional(producer: int, epoch: int = 0) -> bytearray:
    from odradek.protocol.records import batch_v2

    rows = [(0, now_ms(), None, b"x", ())]
    return bytearray(
        batch_v2.build(rows, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=epoch, base_sequence=0)
    )
