"""This broker's replicas: their slots and directories, and what the elected controller wants of them.

Each change takes the partition's lock, which an append or the replicator may have for some microseconds: `Busy` then,
and the caller tries again a millisecond later. Done twice, each comes to the same, so a request that is repeated, or
half done when this process dies, is simply carried out again.
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
from odradek.broker.controller.replicas.slot_allocator import SlotBook
from odradek.cluster.configs import configdef
from odradek.cluster.decisions.who_is_told import DURING_DELETE
from odradek.cluster.metadata.rows import EPOCH, INCARNATION, LOG_DIR, NOWHERE, REPLICAS, SLOT
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.metadata.view import NO_ID, PartitionUpdate, Row, View, is_same
from odradek.cluster.slotalloc import SlotsExhausted
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
from odradek.storage.log.log import Log, Place
from odradek.storage.log.partition import Busy, Gone, Partition

log = logging.getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_AGAIN_S = 1.0
_NEVER_TOLD = -1  # leader epoch of a replica that follows no broker; the view's row has the epoch told last

_UNCONFIGURED = LogConfig()  # one for all: nothing that is done here goes by a topic's configs


class _Recovering(Exception):
    """The log was found only when LeaderAndIsr named its partition, and is not recovered yet."""


class Replicas:
    """Replicas of partitions on this broker; rows of `view` say where they are."""

    def __init__(
        self, view: View, dirs: PartitionDirs, book: SlotBook, shared: Shared, run_dir: Path, config: Any
    ) -> None:  # fmt: skip
        self.view = view
        self.dirs = dirs
        self.book = book
        self.to_free: list[int] = []
        self._config = config
        self._slots = shared.slots
        self._log = Log(shared, run_dir, roles.CONTROLLER, self._resolve, lambda topic: _UNCONFIGURED)
        self._stale_min_isr: set[str] = set()
        self._undone: dict[tuple[str, int], PartitionUpdate] = {}
        self._traced: set[tuple[str, int]] = set()  # those of them whose fault is in the log
        self._again_at = math.inf

    def _resolve(self, topic: str, index: int) -> Place | None:
        row = self.view.row(topic, index)
        if row is None or row[SLOT] == NOWHERE:
            return None
        topic_id = bytes.fromhex(self.view.topics[topic]["id"])
        return Place(topic_id, row[SLOT], row[INCARNATION], self.dirs.log_dirs[row[LOG_DIR]])

    def __iter__(self) -> Iterator[tuple[str, int, Row]]:
        for name, topic in self.view.topics.items():
            for index, row in enumerate(topic["partitions"]):
                if row[SLOT] != NOWHERE:
                    yield name, index, row

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition if it has a replica here."""
        return self._log.get(topic, index)

    # -- at start

    def open(self, former: Snapshot | None) -> None:
        """Give a slot to every partition of the view that has a directory here; those of `former` keep theirs.

        Also to replicas that are others' by now: their logs are recovered like all, and set aside by the controller's
        word alone (broker.controller.replicas.stray_replicas), since they may have been moved back by then.
        """
        places = {(topic, index): info for topic, index, info in (former.slots() if former else {}).values()}
        for name, topic in self.view.topics.items():
            topic_id = self._identify(name, topic, former)
            for index, row in enumerate(topic["partitions"]):
                info = places.get((name, index))
                same = info is not None and former is not None and former.topics[name].id == topic_id
                if same and info is not None and self.book.matches(info.slot, info.incarnation):
                    row[SLOT], row[INCARNATION], row[LOG_DIR] = info.slot, info.incarnation, info.log_dir
                elif self._is_found(name, index, row, topic_id):
                    self._open_found(name, index, row, topic_id, used=same)  # same: who put it away died over it
        if former:
            self.to_free.extend(self.book.leftovers({row[SLOT] for _, _, row in self}))

    def _identify(self, name: str, topic: dict[str, Any], former: Snapshot | None) -> bytes:
        """The topic's id; where its node has none just now (elected.topic_ids), what it was known or found here by."""
        if topic["id"] == NO_ID.hex():
            known = former.topics[name].id if former is not None and name in former.topics else NO_ID
            topic["id"] = (self._id_on_disk(name, topic) if known == NO_ID else known).hex()
        return bytes.fromhex(topic["id"])

    def _id_on_disk(self, name: str, topic: dict[str, Any]) -> bytes:
        """That of all the topic's directories here that say one; NO_ID where they differ."""
        found: set[bytes | None] = set()
        for index, row in enumerate(topic["partitions"]):
            if self.view.broker in row[REPLICAS]:
                with contextlib.suppress(OSError):  # who opens it will say so
                    found.add(self.dirs.topic_id(name, index))
        said = found - {None}
        return (said.pop() or NO_ID) if len(said) == 1 else NO_ID

    def _is_found(self, name: str, index: int, row: Row, topic_id: bytes) -> bool:
        """Whether there is a directory of this topic's; one of a former topic makes way where a replica belongs."""
        if (name, index) not in self.dirs:
            return False
        try:
            return self.view.broker in row[REPLICAS] or self.dirs.topic_id(name, index) in (None, topic_id)
        except OSError:
            return True  # a slot that is offline names the directory that cannot be read

    def _open_found(self, name: str, index: int, row: Row, topic_id: bytes, used: bool) -> None:
        """A log that was there before: to be recovered, unless there is nothing in it. `used`: see ipc.slots."""
        state = slots.OFFLINE
        try:
            row[LOG_DIR] = self.dirs.adopt(name, index, topic_id)
            state = slots.RECOVERING if self.dirs.has_log(name, index) else slots.FOLLOWER
        except OSError as error:
            log.error("%s-%d: %s: the partition is offline", name, index, error)
            row[LOG_DIR] = max(row[LOG_DIR], 0)
        self._give_slot(name, row, state, used)

    def _give_slot(self, name: str, row: Row, state: int, used: bool = False) -> None:
        row[SLOT], row[INCARNATION] = self.book.open(
            SlotState(
                state=state, leader_epoch=_NEVER_TOLD, min_isr=self._min_isr(name, row), isr_count=0,
                log_dir=row[LOG_DIR], voters=len(row[REPLICAS]), led_since=-1, recovers_to=slots.FOLLOWER,
                used=used,
            )
        )  # fmt: skip

    @property
    def recovering(self) -> bool:
        """Whether some log is not recovered yet: the broker is not registered before."""
        return bool(self._slots.numbers(slots.RECOVERING))

    # -- what the controller wants

    def become(self, told: PartitionUpdate) -> int:
        """Lead or follow as the elected controller says; an error code. Busy: try again.

        KAFKA_STORAGE_ERROR says that the log is in a directory that has failed, or may be: none is made in its place.
        """
        row = self.view.row(told.topic, told.number)
        if row is not None and told.leader_epoch < row[EPOCH] and self.same_topic(told):
            return FENCED_LEADER_EPOCH
        inconsistent = self.give_way(told)
        if inconsistent:
            return inconsistent
        if row is not None and len(row[REPLICAS]) != len(told.replicas):
            self.configs_changed([told.topic])
        row = self.view.tell(told, in_part=True)
        try:
            code = self._take_role(told, row)
        except Busy:
            raise
        except Exception as error:  # others go by the view: the slot must come to what it says
            return self._put_off(told, error)
        self._traced.discard((told.topic, told.number))
        return code

    def _take_role(self, told: PartitionUpdate, row: Row) -> int:
        failed = self.dirs.failed
        if row[LOG_DIR] in failed or (failed and row[SLOT] == NOWHERE and not told.is_new):
            return KAFKA_STORAGE_ERROR
        if row[SLOT] == NOWHERE:
            self._make(told, row)
        if self._slots[row[SLOT]].state().state == slots.RECOVERING:  # by others, once a version shows it: the order
            raise _Recovering  # that has it shown may be behind this one
        partition = self.partition(told.topic, told.number)
        assert partition is not None
        return self._carry_out(partition, told)

    def _put_off(self, told: PartitionUpdate, error: Exception) -> int:
        """The disk is full, perhaps: the controller does not say it again, so it is tried again.

        A fault of our own gets one trace, however often it is tried.
        """
        key = (told.topic, told.number)
        if isinstance(error, _Recovering):
            log.info("%s-%d becomes leader or follower once its log is recovered", *key)
        elif isinstance(error, (OSError, SlotsExhausted, Busy)):
            log.error("%s-%d: cannot become leader or follower: %s", *key, str(error) or "its lock is taken")
        elif key not in self._traced:
            self._traced.add(key)
            log.error("%s-%d: cannot become leader or follower, retrying", *key, exc_info=error)
        self._undone[key] = told
        self._again_at = time.monotonic() + _AGAIN_S
        return UNKNOWN_SERVER_ERROR

    def _give_up(self, topic: str, index: int) -> None:
        self._undone.pop((topic, index), None)
        self._traced.discard((topic, index))

    def due(self) -> float:
        """When `try_again` has something to do (monotonic seconds)."""
        return self._again_at if self._undone else math.inf

    def try_again(self, now: float) -> bool:
        """Carry out what could not be done before, if that is still wanted; whether there was any role to take."""
        self.dirs.try_again(now)
        if now < self.due():
            return False
        undone, self._undone = self._undone, {}
        for told in undone.values():
            row = self.view.row(told.topic, told.number)
            if row is None or row[EPOCH] != told.leader_epoch or not self.same_topic(told):
                continue
            try:
                self.become(told)
            except Exception as error:
                self._put_off(told, error)
        return True

    def same_topic(self, told: PartitionUpdate) -> bool:
        """Whether the topic of that name here is the one that was told of, for all that was said of its id."""
        return is_same(self.view.topics[told.topic]["id"], told.topic_id)

    def give_way(self, told: PartitionUpdate) -> int:
        """A topic of the same name that is not the same goes first, if nothing of it is here; an error code.

        Else it goes by the order to delete it, which comes before there is another: what is told here is late. Or it
        was taken out of ZooKeeper by hand; then it goes when the controller tells everything
        (broker.controller.replicas.stray_replicas).
        """
        if told.topic not in self.view.topics or self.same_topic(told):
            return NONE
        if any(row[SLOT] != NOWHERE for row in self.view.topics[told.topic]["partitions"]):
            return INCONSISTENT_TOPIC_ID
        self.view.forget(told.topic)
        return NONE

    def _make(self, told: PartitionUpdate, row: Row) -> None:
        """An empty log: a new partition's, or of a replica that is to be filled. Or the one there is: who started while
        the topic's node made no sense passed its logs over, and they may be all that is left of it.
        """
        topic_id = bytes.fromhex(self.view.topics[told.topic]["id"])
        if self.dirs.has(told.topic, told.number, topic_id):
            self._open_found(told.topic, told.number, row, topic_id, used=True)
        else:
            row[LOG_DIR] = self._new_directory(told)
            self._give_slot(told.topic, row, slots.FOLLOWER)

    def _new_directory(self, told: PartitionUpdate) -> int:
        """In the emptiest log directory that works; one that turns out to be broken is used no more.

        The topic's id is the one that is known: versions of LeaderAndIsr before 5 tell none.
        """
        topic_id = bytes.fromhex(self.view.topics[told.topic]["id"])
        while True:
            try:
                return self.dirs.create(told.topic, told.number, topic_id)
            except OSError as error:
                number = self.dirs.holding(str(error.filename))
                if number is None or number in self.dirs.failed or not disks.is_broken(error):
                    raise
                log.error("%s-%d: %s", told.topic, told.number, error)
                self._log.disk_failed(number)
                self.dirs.forget(told.topic, told.number)

    def _carry_out(self, partition: Partition, told: PartitionUpdate) -> int:
        try:
            with partition.locked() as values:
                return self._change_role(partition, values, told)
        except Gone as error:
            log.error("%r: %r", partition, error)
            return KAFKA_STORAGE_ERROR
        except OSError as error:
            if not disks.is_broken(error):
                raise
            log.error("%r: %s", partition, error)
            self._log.disk_failed(partition.state().log_dir)
            return KAFKA_STORAGE_ERROR

    def _change_role(self, partition: Partition, values: slots.Fields, told: PartitionUpdate) -> int:
        if values[slots.F_STATE] == slots.RECOVERING:
            raise Busy
        if values[slots.F_STATE] == slots.OFFLINE:
            return KAFKA_STORAGE_ERROR
        if told.leader_epoch < values[slots.F_LEADER_EPOCH]:
            return FENCED_LEADER_EPOCH
        if told.leader == self.view.broker:
            if values[slots.F_STATE] == slots.LEADER and told.leader_epoch == values[slots.F_LEADER_EPOCH]:
                return NONE  # its ISR is of before it was told: what this leader has made of it since counts
            followers = [broker for broker in told.replicas if broker != told.leader]
            leader_or_follower.lead(
                partition, values, told.leader_epoch, followers, told.isr, time.monotonic_ns() // 1_000_000
            )
        else:
            leader_or_follower.follow(partition, values, told.leader_epoch)
        return NONE

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> int:
        """Take a replica out of use, with its log if `delete`; an error code. Busy: try again.

        An order from before the epoch that was told last is late. So is one of a topic's deletion when there is a
        topic of that name, since the UpdateMetadata before it has taken the deleted one away.
        """
        row = self.view.row(topic, index)
        if row is None or row[SLOT] == NOWHERE:
            self._give_up(topic, index)
            if row is not None and delete:
                self._retire_passed_over(topic, index)
            return NONE
        if leader_epoch == DURING_DELETE or 0 <= leader_epoch < row[EPOCH]:
            return FENCED_LEADER_EPOCH
        self._give_up(topic, index)
        if delete:
            self.put_away(topic, index, row, self.dirs.retire)
            return NONE
        partition = self.partition(topic, index)
        assert partition is not None
        with partition.locked() as values:
            if values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER):
                leader_or_follower.follow(partition, values, _NEVER_TOLD)
        return NONE

    def resign(self, topic: str, index: int) -> int:
        """Lead no more what others lead by now, though no controller has said so here; no error. Busy: try again.

        What has no other replica stays led.
        """
        row, partition = self.view.row(topic, index), self.partition(topic, index)
        if row is None or partition is None or len(row[REPLICAS]) < 2:
            return NONE
        with partition.locked() as values:
            if values[slots.F_STATE] == slots.LEADER:
                leader_or_follower.follow(partition, values, _NEVER_TOLD)
        return NONE

    def delete_topic(self, topic: str) -> None:
        """Take all of a topic's replicas here out of use, and forget the topic. Busy: some may be gone already."""
        for index, row in enumerate(self.view.topics[topic]["partitions"]):
            if row[SLOT] != NOWHERE:
                self.put_away(topic, index, row, self.dirs.retire)
            else:
                self._retire_passed_over(topic, index)
        self.view.forget(topic)

    def _retire_passed_over(self, topic: str, index: int) -> None:
        """The log of a replica without a slot: at the start its topic's node made no sense."""
        topic_id = bytes.fromhex(self.view.topics[topic]["id"])
        try:
            its_own = topic_id != NO_ID and self.dirs.has(topic, index, topic_id)
        except OSError as error:
            log.error("%s-%d: cannot read its partition.metadata: %s", topic, index, error)
            return
        if its_own:
            self.dirs.put_away(topic, index, self.dirs.retire)

    def put_away(self, topic: str, index: int, row: Row, rename: Callable[[str, int], None]) -> None:
        """Take a replica out of use, and `rename` its directory. Busy: try again."""
        if not self.book.try_lock(row[SLOT]):
            raise Busy
        self.book.mark_deleting(row[SLOT])
        if (topic, index) in self.dirs:
            self.dirs.put_away(topic, index, rename)
        for role in self.book.unlock(row[SLOT]):
            self._log.ring(role)
        self.to_free.append(row[SLOT])
        self._give_up(topic, index)
        row[SLOT], row[INCARNATION], row[LOG_DIR] = NOWHERE, 0, NOWHERE
        self._log.refresh()

    # -- min.insync.replicas

    def configs_changed(self, topics: Iterable[str]) -> None:
        """Configs that slots hold may have changed; `settle` brings them up to date."""
        self._stale_min_isr.update(topics)

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return bool(self._stale_min_isr)

    def settle(self) -> None:
        """Bring slots up to their topics' min.insync.replicas, those whose lock is to be had."""
        for name in list(self._stale_min_isr):
            if name not in self.view.topics or self._set_min_isr(name):
                self._stale_min_isr.discard(name)

    def _set_min_isr(self, name: str) -> bool:
        for row in self.view.topics[name]["partitions"]:
            slot, wanted = row[SLOT], self._min_isr(name, row)
            if slot == NOWHERE or self.book.min_isr(slot) == wanted:
                continue
            if not self.book.try_lock(slot):
                return False
            self.book.set_min_isr(slot, wanted)
            for role in self.book.unlock(slot):
                self._log.ring(role)
        return True

    def _min_isr(self, name: str, row: Row) -> int:
        """min.insync.replicas, but no more than there are replicas (Kafka's effectiveMinIsr, since 3.7)."""
        dynamic = (self.view.dynamic.get(str(self.view.broker), {}), self.view.dynamic.get("", {}))
        wanted = configdef.resolve_one(_MIN_ISR, self.view.topics[name]["config"], dynamic, self._config)
        return min(int(wanted), max(1, len(row[REPLICAS])))
