"""A broker's workers: they take records, serve followers, and pass on the controller's requests.

Followers and acks=all are handled by the real workers.fetch.follower_fetch, workers.fetch.follower_progress and
workers.produce.acks_all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import roles, slots
from odradek.protocol import errors
from odradek.protocol.fetch import FetchRequest
from odradek.protocol.fetch_client import FetchedPartition, FetchResponse, ListOffsetsPartition
from odradek.storage.log.log import PartitionLocation as Where
from odradek.storage.log.partition import LockNotAvailable, PartitionRemoved
from odradek.workers.apis.k21_delete_records import delete_below
from odradek.workers.dispatch.authorization import Authorization
from odradek.workers.dispatch.partition_check import refusal
from odradek.workers.fetch.follower_fetch import FollowerPartitions
from odradek.workers.fetch.follower_progress import PROGRESS_DELAY_S, FollowerProgress
from odradek.workers.produce.acks_all import AcksAll

from . import disk, store
from .network import Connection, End
from .world import Process, World

if TYPE_CHECKING:
    from .broker import Broker

LATEST = -1


class Batch:
    """One record of a producer (workers.produce.batching.PendingBatch)."""

    count = 1

    def __init__(self, value: int, acks_all: bool, timeout_ms: int, decided: Callable[[Batch], None]) -> None:
        self.value = value
        self.target = SimpleNamespace(acks_all=acks_all, timeout_ms=timeout_ms)
        self.view: Any = b""
        self.base_offset = self.epoch = -1
        self.key = (b"", -1)  # of the log that it was appended to
        self.slot: Any = None  # there
        self.error = errors.NONE
        self.decided = decided

    def refuse(self, error: int, message: str | None = None) -> None:
        self.error = error


class Waiting:
    """A follower's fetch that is not answered yet."""

    def __init__(
        self, workers: Workers, partitions: FollowerPartitions, request: FetchRequest, last_sent: dict[Any, Any]
    ) -> None:
        self.workers = workers
        self.partitions, self.request, self.last_sent = partitions, request, last_sent
        self.deadline = workers.world.now + request.max_wait_ms / 1000
        self.answer: Callable[[], None] = lambda: None

    def try_complete(self) -> bool:
        """Answer if there is something to send; whether that was done."""
        size, urgent = self.partitions.read(self.request.max_bytes)
        now = self.workers.world.now
        if self.partitions.has_unsent(self.last_sent) and self.deadline > now + PROGRESS_DELAY_S:
            self.deadline = now + PROGRESS_DELAY_S
            self.workers.look_in(PROGRESS_DELAY_S)
        if urgent or size >= self.request.min_bytes or now >= self.deadline or not self.partitions.slots():
            self.answer()
            return True
        return False

    def expire(self) -> None:
        self.answer()


class Workers:
    """All workers of one run of a broker, as one process."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self.broker = broker
        self.world: World = broker.world
        self.process = process
        self.config = broker.config
        self.shared, self.role = broker.shared, roles.FIRST_WORKER
        self.snapshot = Snapshot.empty(self.config)
        self.log = disk.MemoryLog(broker.shared, None, roles.FIRST_WORKER, self._place, lambda _: None)
        self.catalog = SimpleNamespace(log=self.log)
        self.followers = FollowerProgress(self)  # type: ignore[arg-type]  # a test double
        self.purgatory = self
        self.acks_all = AcksAll(self, self)  # type: ignore[arg-type]  # a test double
        self.authorization = Authorization({})
        self.draining = False
        self._delayed: list[Any] = []
        self._looking = False
        self._sessions = 0

    def _place(self, topic: str, index: int) -> Where | None:
        return place(self.snapshot, self.config, topic, index)

    def follow_metadata(self, snapshot: Snapshot) -> None:
        """A snapshot was published."""
        self.snapshot = snapshot
        self.log.refresh()
        self.changed()

    def partition_of(self, topic: bytes, index: int, by_id: bool) -> Any:
        """As in workers.worker."""
        name = self.snapshot.by_id(topic)
        return None if name is None else self.log.get(name, index)

    def again(self, work: Callable[[], bool]) -> None:
        """As in workers.worker."""

        def attempt() -> None:
            if not work():
                self.world.after(0.001, self.process, attempt)

        self.world.after(0.001, self.process, attempt)

    # -- what waits

    def watch(self, waiting: Any) -> None:
        """Try it after each change, and at its deadline."""
        self._delayed.append(waiting)
        self.look_in(max(0.0, waiting.deadline - self.world.now))

    def look_in(self, seconds: float) -> None:
        """Try all delayed operations after a time."""
        self.world.after(seconds + 1e-6, self.process, self._look)

    def changed(self) -> None:
        """Some slot has changed."""
        if self._delayed and not self._looking and self.process.alive:
            self._looking = True
            self.world.after(self.world.between(0, 0.001), self.process, self._changed)

    def _changed(self) -> None:
        self._looking = False
        self._look()

    def _look(self) -> None:
        delayed, self._delayed = self._delayed, []
        for waiting in delayed:
            if waiting.try_complete():
                continue
            if waiting.deadline <= self.world.now:
                waiting.expire()
            else:
                self._delayed.append(waiting)

    # -- producers

    def produce(self, topic: str, index: int, batch: Batch) -> None:
        """As in workers.produce.batching."""
        partition = self.log.get(topic, index)
        if partition is None:
            batch.refuse(errors.UNKNOWN_TOPIC_OR_PARTITION)
            self.finish([batch])
            return
        try:
            values = partition.acquire()
        except LockNotAvailable:
            self.world.after(0.001, self.process, lambda: self.produce(topic, index, batch))
            return
        except PartitionRemoved:
            batch.refuse(errors.UNKNOWN_TOPIC_OR_PARTITION)
            self.finish([batch])
            return
        except OSError:
            batch.refuse(errors.KAFKA_STORAGE_ERROR)
            self.finish([batch])
            return
        self._append(partition, values, batch)
        partition.release()
        if batch.error or not batch.target.acks_all or values[slots.F_HW_QUORUM] <= 1:
            self.finish([batch])
        else:
            self.acks_all.wait(partition, [batch], values[slots.F_LED_SINCE], (0, 0))  # type: ignore[list-item]  # a test double

    def _append(self, partition: Any, values: Any, batch: Batch) -> None:
        error = refusal(partition, values, -1)
        if not error and batch.target.acks_all and values[slots.F_ISR_COUNT] < values[slots.F_MIN_ISR]:
            error = errors.NOT_ENOUGH_REPLICAS
        if error:
            batch.refuse(error)
            return
        batch.key, batch.epoch = partition.directory.key, values[slots.F_LEADER_EPOCH]
        batch.slot = partition.slot
        store.append(partition, values, [batch], 0)

    def delete(self, topic: str, index: int, offset: int) -> None:
        """DeleteRecords, as workers.apis.k21_delete_records has it, without waiting for followers."""
        partition = self.log.get(topic, index)
        if partition is None:
            return
        try:
            start, error = delete_below(partition, offset)
        except LockNotAvailable:
            self.world.after(0.001, self.process, lambda: self.delete(topic, index, offset))
            return
        if not error:
            self.broker.cluster.invariants.deleted(partition.directory, start)

    def complete(self, batches: Iterable[Batch], _: Any) -> None:
        """Answer the producers that have waited."""
        self.finish(batches)

    def finish(self, batches: Iterable[Batch]) -> None:
        """Answer the producers."""
        for batch in batches:
            batch.decided(batch)

    # -- connections

    def accept(self, connection: Connection, kind: str) -> End | None:
        """A client connects."""
        if kind == "peer":
            return End(self.process, lambda frame: self._order(connection, frame), lambda: None)
        state: dict[str, Any] = {"session": None}
        return End(self.process, lambda frame: self._serve(connection, state, frame), lambda: None)

    def late(self, frame: bytes) -> None:
        """A controller request that was in a buffer for some time; its sender is gone."""
        self._order(None, frame)

    def _order(self, connection: Connection | None, frame: bytes) -> None:
        """A request for the controller process."""
        codec = self.broker.cluster.codec
        name, version, client_id, request = codec.message(frame)

        def reply(response: Any) -> None:
            if connection is not None:
                connection.waits -= 1
                connection.send(False, codec.frame(response))

        if connection is not None:
            connection.waits += 1
        if not self.broker.order(name, version, client_id, request, reply) and connection is not None:
            connection.close(by_server=True)

    def _serve(self, connection: Connection, state: dict[str, Any], frame: bytes) -> None:
        """A follower's request."""
        codec = self.broker.cluster.codec
        what, *rest = codec.message(frame)

        def reply(answer: Any) -> None:
            connection.send(False, codec.frame(answer))

        if what == "Fetch":
            self._fetch(state, rest[0], reply)
        else:
            reply([self._end(rest[0], one) for one in rest[1]])

    def _end(self, at: int, asked: ListOffsetsPartition) -> ListOffsetsPartition:
        partition = self.log.get(asked.topic.decode(), asked.partition)
        if partition is None:
            return asked._replace(error=errors.UNKNOWN_TOPIC_OR_PARTITION)
        values = partition.slot.read()
        error = refusal(partition, values, asked.leader_epoch)
        place = values[slots.F_LEO if at == LATEST else slots.F_LOG_START]
        return asked._replace(error=error, offset=-1 if error else place)

    def _fetch(self, state: dict[str, Any], request: FetchRequest, reply: Callable[[Any], None]) -> None:
        """Fetch in the session of the connection, or in a new one."""
        if request.session_epoch <= 0:
            self._sessions += 1
            state["session"] = (self._sessions, FollowerPartitions(self, request.replica, True), {})  # type: ignore[arg-type]  # a test double
        if state["session"] is None or state["session"][0] != request.session_id != 0:
            reply(FetchResponse(errors.FETCH_SESSION_ID_NOT_FOUND, 0, []))
            return
        number, partitions, last_sent = state["session"]
        partitions.update(request.parts, request.forgotten)
        partitions.arrived()
        waiting = Waiting(self, partitions, request, last_sent)
        waiting.answer = lambda: reply(FetchResponse(errors.NONE, number, self._parts(partitions, last_sent)))
        if not waiting.try_complete():
            self.watch(waiting)

    def _parts(self, partitions: FollowerPartitions, last_sent: dict[Any, Any]) -> list[FetchedPartition]:
        results = partitions.take_results()
        last_sent.update({(one.topic, one.partition): (one.hw, one.log_start) for one in results})
        return [
            FetchedPartition(
                one.topic, one.partition, one.error, one.hw, one.log_start,
                memoryview(b"".join(piece.data for piece in one.payloads)), one.diverging,  # type: ignore[union-attr]  # doubles
            )
            for one in results
        ]  # fmt: skip


def place(snapshot: Snapshot, config: Any, topic: str, index: int) -> Where | None:
    """A partition's location by a snapshot (workers.dispatch.catalog)."""
    info = snapshot.partition(topic, index)
    if info is None or info.slot < 0:
        return None
    return Where(snapshot.topics[topic].id, info.slot, info.incarnation, config.log_dirs[info.log_dir])
