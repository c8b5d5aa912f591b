"""This broker's replicas: their slots and directories, and the role that the elected controller assigns them.

Each change takes the partition's lock. An append or the replicator may hold it for some microseconds: then the change
raises `LockNotAvailable`, and the caller retries a millisecond later. Every change is idempotent: a repeated request,
or one half done when this process dies, is simply carried out again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.cluster.configs import configdef
from odradek.cluster.decisions.broker_request_batch import DURING_DELETE
from odradek.cluster.free_slots import SlotsExhausted
from odradek.cluster.metadata.rows import EPOCH, INCARNATION, LOG_DIR, NOWHERE, REPLICAS, SLOT
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.metadata.view import NO_ID, PartitionUpdate, Row, View, is_same
from odradek.ipc import roles, slots
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_SERVER_ERROR,
)
from odradek.storage.config import LogConfig
from odradek.storage.files import disks
from odradek.storage.log import leader_or_follower
from odradek.storage.log.log import Log, PartitionLocation
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved

log = logging.getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_AGAIN_S = 1.0
_NEVER_TOLD = -1  # leader epoch of a replica that follows no broker; the view's row has the last epoch

_UNCONFIGURED = LogConfig()  # one for all: nothing here depends on a topic's configs


class _Recovering(Exception):
    """The log was found only through LeaderAndIsr, and is not recovered yet."""


class ReplicaManager:
    """The replicas on this broker; rows of `view` have their slots and log directories."""

    def __init__(
        self, view: View, dirs: PartitionDirs, slot_allocator: SlotAllocator, shared: Shared, run_dir: Path, config: Any
    ) -> None:  # fmt: skip
        self.view = view
        self.dirs = dirs
        self.slot_allocator = slot_allocator
        self.to_free: list[int] = []
        self._config = config
        self._slots = shared.slots
        self._log = Log(shared, run_dir, roles.CONTROLLER, self._resolve, lambda topic: _UNCONFIGURED)
        self._stale_min_isr: set[str] = set()
        self._retries: dict[tuple[str, int], PartitionUpdate] = {}
        self._traced: set[tuple[str, int]] = set()  # those of them whose error has been logged with a trace
        self._retry_at = math.inf

    def _resolve(self, topic: str, index: int) -> PartitionLocation | None:
        row = self.view.row(topic, index)
        if row is None or row[SLOT] == NOWHERE:
            return None
        topic_id = bytes.fromhex(self.view.topics[topic]["id"])
        return PartitionLocation(topic_id, row[SLOT], row[INCARNATION], self.dirs.log_dirs[row[LOG_DIR]])

    def __iter__(self) -> Iterator[tuple[str, int, Row]]:
        for name, topic in self.view.topics.items():
            for index, row in enumerate(topic["partitions"]):
                if row[SLOT] != NOWHERE:
                    yield name, index, row

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, if it has a replica here."""
        return self._log.get(topic, index)

    # -- at start

    def open(self, former: Snapshot | None) -> None:
        """Give a slot to every partition of the view that has a directory here; those of `former` keep theirs.

        This includes replicas that were moved to other brokers: their logs are recovered too, and set aside only on the
        controller's request (broker.controller.replicas.stray_replicas), since they may have been moved back by then.
        """
        places = {(topic, index): info for topic, index, info in (former.slots() if former else {}).values()}
        for name, topic in self.view.topics.items():
            topic_id = self._identify(name, topic, former)
            for index, row in enumerate(topic["partitions"]):
                info = places.get((name, index))
                same = info is not None and former is not None and former.topics[name].id == topic_id
                if same and info is not None and self.slot_allocator.matches(info.slot, info.incarnation):
                    row[SLOT], row[INCARNATION], row[LOG_DIR] = info.slot, info.incarnation, info.log_dir
                elif self._is_found(name, index, row, topic_id):
                    self._open_found(name, index, row, topic_id, used=same)  # same: a crash cut its removal short
        if former:
            self.to_free.extend(self.slot_allocator.leftovers({row[SLOT] for _, _, row in self}))

    def _identify(self, name: str, topic: dict[str, Any], former: Snapshot | None) -> bytes:
        """The topic's id; if its node has none yet (elected.topic_ids), the last known one or the one on disk."""
        if topic["id"] == NO_ID.hex():
            known = former.topics[name].id if former is not None and name in former.topics else NO_ID
            topic["id"] = (self._id_on_disk(name, topic) if known == NO_ID else known).hex()
        return bytes.fromhex(topic["id"])

    def _id_on_disk(self, name: str, topic: dict[str, Any]) -> bytes:
        """The topic id in the topic's directories here; NO_ID if they differ or have none."""
        found: set[bytes | None] = set()
        for index, row in enumerate(topic["partitions"]):
            if self.view.broker in row[REPLICAS]:
                with contextlib.suppress(OSError):  # opening it will log this
                    found.add(self.dirs.topic_id(name, index))
        ids = found - {None}
        return (ids.pop() or NO_ID) if len(ids) == 1 else NO_ID

    def _is_found(self, name: str, index: int, row: Row, topic_id: bytes) -> bool:
        """Whether there is a directory of this topic, or of a former one where a replica belongs: it makes way."""
        if (name, index) not in self.dirs:
            return False
        try:
            return self.view.broker in row[REPLICAS] or self.dirs.topic_id(name, index) in (None, topic_id)
        except OSError:
            return True  # an offline slot will name the unreadable directory

    def _open_found(self, name: str, index: int, row: Row, topic_id: bytes, used: bool) -> None:
        """Open an existing log, which needs recovery unless it is empty. `used`: see ipc.slots."""
        state = slots.OFFLINE
        try:
            row[LOG_DIR] = self.dirs.adopt(name, index, topic_id)
            state = slots.RECOVERING if self.dirs.has_log(name, index) else slots.FOLLOWER
        except OSError as error:
            log.error("%s-%d: %s: the partition is offline", name, index, error)
            row[LOG_DIR] = max(row[LOG_DIR], 0)
        self._give_slot(name, row, state, used)

    def _give_slot(self, name: str, row: Row, state: int, used: bool = False) -> None:
        row[SLOT], row[INCARNATION] = self.slot_allocator.open(
            SlotState(
                state=state, leader_epoch=_NEVER_TOLD, min_isr=self._min_isr(name, row), isr_count=0,
                log_dir=row[LOG_DIR], hw_quorum=len(row[REPLICAS]), led_since=-1, recovers_to=slots.FOLLOWER,
                used=used,
            )
        )  # fmt: skip

    @property
    def recovering(self) -> bool:
        """Whether some log is not recovered yet: the broker registers after recovery."""
        return bool(self._slots.numbers(slots.RECOVERING))

    # -- controller requests

    def become(self, update: PartitionUpdate) -> int:
        """Become leader or follower, as the elected controller requests; returns an error code.

        LockNotAvailable: retry.

        KAFKA_STORAGE_ERROR: the log is, or may be, in a failed log directory: no new log is created in its place.
        """
        row = self.view.row(update.topic, update.number)
        if row is not None and update.leader_epoch < row[EPOCH] and self.same_topic(update):
            return FENCED_LEADER_EPOCH
        inconsistent = self.replace_topic(update)
        if inconsistent:
            return inconsistent
        if row is not None and len(row[REPLICAS]) != len(update.replicas):
            self.configs_changed([update.topic])
        row = self.view.apply(update, incomplete=True)
        try:
            code = self._take_role(update, row)
        except LockNotAvailable:
            raise
        except Exception as error:  # other processes use the view: the slot must finally match it
            return self._retry_later(update, error)
        self._traced.discard((update.topic, update.number))
        return code

    def _take_role(self, update: PartitionUpdate, row: Row) -> int:
        failed = self.dirs.failed
        if row[LOG_DIR] in failed or (failed and row[SLOT] == NOWHERE and not update.is_new):
            return KAFKA_STORAGE_ERROR
        if row[SLOT] == NOWHERE:
            self._make(update, row)
        if self._slots[row[SLOT]].state().state == slots.RECOVERING:  # others recover it once it is published,
            raise _Recovering  # perhaps by a request behind this one: do not wait
        partition = self.partition(update.topic, update.number)
        assert partition is not None
        return self._carry_out(partition, update)

    def _retry_later(self, update: PartitionUpdate, error: Exception) -> int:
        """Retry later: the disk may be full, and the controller does not resend the request.

        A bug of ours gets one trace in the log, however often it is retried.
        """
        key = (update.topic, update.number)
        if isinstance(error, _Recovering):
            log.info("%s-%d becomes leader or follower once its log is recovered", *key)
        elif isinstance(error, (OSError, SlotsExhausted, LockNotAvailable)):
            log.error(
                "%s-%d: cannot become leader or follower: %s", *key, str(error) or "another process holds its lock"
            )
        elif key not in self._traced:
            self._traced.add(key)
            log.error("%s-%d: cannot become leader or follower, retrying", *key, exc_info=error)
        self._retries[key] = update
        self._retry_at = time.monotonic() + _AGAIN_S
        return UNKNOWN_SERVER_ERROR

    def _cancel_retry(self, topic: str, index: int) -> None:
        self._retries.pop((topic, index), None)
        self._traced.discard((topic, index))

    def due(self) -> float:
        """When `retry` next has work (monotonic seconds)."""
        return self._retry_at if self._retries else math.inf

    def retry(self, now: float) -> bool:
        """Retry role changes that failed, if still current; whether there were any."""
        self.dirs.retry(now)
        if now < self.due():
            return False
        undone, self._retries = self._retries, {}
        for update in undone.values():
            row = self.view.row(update.topic, update.number)
            if row is None or row[EPOCH] != update.leader_epoch or not self.same_topic(update):
                continue
            try:
                self.become(update)
            except Exception as error:
                self._retry_later(update, error)
        return True

    def same_topic(self, update: PartitionUpdate) -> bool:
        """Whether the topic of that name here is the update's topic, as far as its id is known."""
        return is_same(self.view.topics[update.topic]["id"], update.topic_id)

    def replace_topic(self, update: PartitionUpdate) -> int:
        """Forget another topic of the same name, if it has no replica here; returns an error code.

        Otherwise a deletion request removes it, which precedes the creation of another: this update is late. Or its
        nodes were deleted from ZooKeeper by hand; then it goes with the controller's next full request
        (broker.controller.replicas.stray_replicas).
        """
        if update.topic not in self.view.topics or self.same_topic(update):
            return NONE
        if any(row[SLOT] != NOWHERE for row in self.view.topics[update.topic]["partitions"]):
            return INCONSISTENT_TOPIC_ID
        self.view.forget(update.topic)
        return NONE

    def _make(self, update: PartitionUpdate, row: Row) -> None:
        """Create an empty log, for a new partition or replica. Or open the existing one: a broker that starts while the
        topic's node is malformed skips its logs, and they may be all that is left of the topic.
        """
        topic_id = bytes.fromhex(self.view.topics[update.topic]["id"])
        if self.dirs.has(update.topic, update.number, topic_id):
            self._open_found(update.topic, update.number, row, topic_id, used=True)
        else:
            row[LOG_DIR] = self._new_directory(update)
            self._give_slot(update.topic, row, slots.FOLLOWER)

    def _new_directory(self, update: PartitionUpdate) -> int:
        """Create a directory in the emptiest working log directory; one that turns out broken goes offline.

        The topic id is the known one: LeaderAndIsr before version 5 carries none.
        """
        topic_id = bytes.fromhex(self.view.topics[update.topic]["id"])
        while True:
            try:
                return self.dirs.create(update.topic, update.number, topic_id)
            except OSError as error:
                number = self.dirs.holding(str(error.filename))
                if number is None or number in self.dirs.failed or not disks.is_broken(error):
                    raise
                log.error("%s-%d: %s", update.topic, update.number, error)
                self._log.disk_failed(number)
                self.dirs.forget(update.topic, update.number)

    def _carry_out(self, partition: Partition, update: PartitionUpdate) -> int:
        try:
            with partition.locked() as values:
                return self._change_role(partition, values, update)
        except PartitionRemoved as error:
            log.error("%r: %r", partition, error)
            return KAFKA_STORAGE_ERROR
        except OSError as error:
            if not disks.is_broken(error):
                raise
            log.error("%r: %s", partition, error)
            self._log.disk_failed(partition.state().log_dir)
            return KAFKA_STORAGE_ERROR

    def _change_role(self, partition: Partition, values: slots.Fields, update: PartitionUpdate) -> int:
        if values[slots.F_STATE] == slots.RECOVERING:
            raise LockNotAvailable
        if values[slots.F_STATE] == slots.OFFLINE:
            return KAFKA_STORAGE_ERROR
        if update.leader_epoch < values[slots.F_LEADER_EPOCH]:
            return FENCED_LEADER_EPOCH
        if update.leader == self.view.broker:
            if values[slots.F_STATE] == slots.LEADER and update.leader_epoch == values[slots.F_LEADER_EPOCH]:
                return NONE  # the request's ISR is older than this leader's own changes since
            followers = [broker for broker in update.replicas if broker != update.leader]
            leader_or_follower.become_leader(
                partition, values, update.leader_epoch, followers, update.isr, time.monotonic_ns() // 1_000_000
            )
        else:
            leader_or_follower.become_follower(partition, values, update.leader_epoch)
        return NONE

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> int:
        """Take a replica out of use, with its log if `delete`; returns an error code. LockNotAvailable: retry.

        A request with an older leader epoch than the last is late. So is a topic deletion when there is a topic of that
        name, since the UpdateMetadata before it has removed the deleted one.
        """
        row = self.view.row(topic, index)
        if row is None or row[SLOT] == NOWHERE:
            self._cancel_retry(topic, index)
            if row is not None and delete:
                self._retire_passed_over(topic, index)
            return NONE
        if leader_epoch == DURING_DELETE or 0 <= leader_epoch < row[EPOCH]:
            return FENCED_LEADER_EPOCH
        self._cancel_retry(topic, index)
        if delete:
            self.put_away(topic, index, row, self.dirs.retire)
            return NONE
        partition = self.partition(topic, index)
        assert partition is not None
        with partition.locked() as values:
            if values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER):
                leader_or_follower.become_follower(partition, values, _NEVER_TOLD)
        return NONE

    def resign(self, topic: str, index: int) -> int:
        """Stop leading a partition that another broker leads by now, without a request; no error.

        A partition without another replica keeps this leader. LockNotAvailable: retry.
        """
        row, partition = self.view.row(topic, index), self.partition(topic, index)
        if row is None or partition is None or len(row[REPLICAS]) < 2:
            return NONE
        with partition.locked() as values:
            if values[slots.F_STATE] == slots.LEADER:
                leader_or_follower.become_follower(partition, values, _NEVER_TOLD)
        return NONE

    def delete_topic(self, topic: str) -> None:
        """Take all of a topic's replicas here out of use, and forget the topic.

        LockNotAvailable: some may be removed already.
        """
        for index, row in enumerate(self.view.topics[topic]["partitions"]):
            if row[SLOT] != NOWHERE:
                self.put_away(topic, index, row, self.dirs.retire)
            else:
                self._retire_passed_over(topic, index)
        self.view.forget(topic)

    def _retire_passed_over(self, topic: str, index: int) -> None:
        self.retire_passed_over(topic, index, bytes.fromhex(self.view.topics[topic]["id"]))

    def retire_passed_over(self, topic: str, index: int, topic_id: bytes) -> None:
        """Retire the log of a replica without a slot: its topic's node was malformed at start."""
        try:
            its_own = topic_id != NO_ID and self.dirs.has(topic, index, topic_id)
        except OSError as error:
            log.error("%s-%d: cannot read its partition.metadata: %s", topic, index, error)
            return
        if its_own:
            self.dirs.put_away(topic, index, self.dirs.retire)

    def put_away(self, topic: str, index: int, row: Row, rename: Callable[[str, int], None]) -> None:
        """Take a replica out of use, and `rename` its directory. LockNotAvailable: retry."""
        if not self.slot_allocator.try_lock(row[SLOT]):
            raise LockNotAvailable
        self.slot_allocator.mark_deleting(row[SLOT])
        if (topic, index) in self.dirs:
            self.dirs.put_away(topic, index, rename)
        for role in self.slot_allocator.unlock(row[SLOT]):
            self._log.ring(role)
        self.to_free.append(row[SLOT])
        self._cancel_retry(topic, index)
        row[SLOT], row[INCARNATION], row[LOG_DIR] = NOWHERE, 0, NOWHERE
        self._log.refresh()

    # -- min.insync.replicas

    def configs_changed(self, topics: Iterable[str]) -> None:
        """Configs in slots may have changed; `settle` updates them."""
        self._stale_min_isr.update(topics)

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return bool(self._stale_min_isr)

    def settle(self) -> None:
        """Update min.insync.replicas in the slots whose lock is free."""
        for name in list(self._stale_min_isr):
            if name not in self.view.topics or self._set_min_isr(name):
                self._stale_min_isr.discard(name)

    def _set_min_isr(self, name: str) -> bool:
        for row in self.view.topics[name]["partitions"]:
            slot, min_isr = row[SLOT], self._min_isr(name, row)
            if slot == NOWHERE or self.slot_allocator.min_isr(slot) == min_isr:
                continue
            if not self.slot_allocator.try_lock(slot):
                return False
            self.slot_allocator.set_min_isr(slot, min_isr)
            for role in self.slot_allocator.unlock(slot):
                self._log.ring(role)
        return True

    def _min_isr(self, name: str, row: Row) -> int:
        """min.insync.replicas, capped at the number of replicas (Kafka's effectiveMinIsr, since 3.7)."""
        dynamic = (self.view.dynamic.get(str(self.view.broker), {}), self.view.dynamic.get("", {}))
        min_isr = configdef.resolve_one(_MIN_ISR, self.view.topics[name]["config"], dynamic, self._config)
        return min(int(min_isr), max(1, len(row[REPLICAS])))
