"""What the controller owns: the cluster's state, this broker's partition directories and slots.

Every change goes to the tree first, then to the disk, then to shared memory; `changed` says that a new snapshot is due.
Partitions are created in steps (broker.process.steps): the topic's node in the tree lists them all from the start,
their states, directories and slots follow, and they are published only when all are complete. Crash rule: at the next
start, partitions listed in a topic's node get a missing state, directory or slot; topics marked for deletion are
deleted, and so are directories of a deleted topic that could not be renamed (broker.controller.replicas.unknown_dirs).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from odradek.broker.config import BrokerConfig
from odradek.broker.controller import adopt_log_dirs
from odradek.broker.controller.member import registration
from odradek.broker.controller.replicas import unknown_dirs
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.controller.security import acl_writes
from odradek.broker.controller.security.node_kinds import NodeKind
from odradek.broker.controller.security.security_nodes import SecurityNodes
from odradek.broker.controller.users.user_nodes import UserNodes
from odradek.broker.interbroker.peers import Poller
from odradek.broker.process.steps import WAITS
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.decisions.reassignment import Assignment
from odradek.cluster.free_slots import SlotsExhausted
from odradek.cluster.metadata.rows import EPOCH, INCARNATION, ISR, LOG_DIR, NOWHERE, REPLICAS, SLOT
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError, Outcomes
from odradek.cluster.state import TOGETHER, ClusterState
from odradek.cluster.tree.tree import TreeUnavailable
from odradek.cluster.tree.znodes import Partition
from odradek.ipc import slots
from odradek.ipc.metadata import MetadataRegion
from odradek.ipc.slots import SlotState
from odradek.protocol.errors import (
    ELECTION_NOT_NEEDED,
    INVALID_REPLICA_ASSIGNMENT,
    KAFKA_STORAGE_ERROR,
    NO_REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek.security.acls.acl_types import Acls
from odradek.security.quotas.entities import Entity
from odradek.storage.dirs.reserve import Reserve

log = logging.getLogger(__name__)

_NOT_NEEDED = ApiError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_UNKNOWN = ApiError(UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_NO_MOVE = ApiError(NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")

AT_ONCE = 64  # partitions whose logs one `tick` takes out of use at most, before the loop's other work

Row = list[Any]
T = TypeVar("T")


class MetadataOwner:
    """Changes topics, their log directories and their slots together. Used by the controller's API handlers."""

    def __init__(
        self,
        state: ClusterState,
        dirs: PartitionDirs,
        slot_allocator: SlotAllocator,
        config: Mapping[str, Any],
        ring: Callable[[int], None],
        reserve: Reserve | None = None,
        running: Callable[[], None] = lambda: None,
        kinds: Sequence[NodeKind] = (),
    ) -> None:
        """`running` is called when other processes may rely on this one. `kinds`: the security nodes to follow."""
        self.state = state
        self.security = SecurityNodes(state.tree, kinds, self._set_changed)
        self.dirs = dirs
        self.slot_allocator = slot_allocator
        self.config = config
        self.changed = False
        self.version = 0
        self.to_free: list[int] = []  # slots of deleted partitions, free once no process refers to them
        self._ring = ring
        self._reserve = reserve
        self.begin = running
        self.connected = True  # its tree is a file
        self._deletions: dict[str, _Deletion] = {}
        self._numbers = itertools.count()
        self.users = UserNodes(state.tree, config, self._set_changed, self._stored)
        self._making: dict[str, list[int]] = {}  # by topic: the first partition that each request creates

    def _set_changed(self) -> None:
        self.changed = True

    def publish_security(self, region: MetadataRegion) -> bool:
        """Publish the security metadata that the next snapshot names; returns whether there was anything new."""
        published = self.security.publish(region, self.users.nodes)
        self.state.security = self.security.version
        return published

    @property
    def acls(self) -> Acls:
        """The ACLs, published or not."""
        return self.security.metadata.acls

    def change_acls(self, decide: acl_writes.Decide) -> Generator[None, None, Any]:
        """Change ACLs; returns the answer that `decide` gives. ApiError KAFKA_STORAGE_ERROR."""
        try:
            answer = yield from acl_writes.change(self.security, decide)
        except TreeUnavailable as error:
            log.error("metadata: %s", error)
            raise ApiError(KAFKA_STORAGE_ERROR, f"The metadata cannot be written: {error}") from error
        return answer

    def _follow(self) -> None:
        """Read the announcements of this process's own changes: old ones are deleted."""
        for event in self.state.tree.poll():
            self.security.event(event.path)
            self.users.event(event.path)
        with suppress(TreeUnavailable):
            if self.security.waiting:
                self.security.read()
            if self.users.waiting:
                self.users.read()

    def attach(self, poller: Poller) -> None:
        """Only this process changes the metadata: there is nothing to watch."""

    def when_acked(self, action: Callable[[], None]) -> None:
        """Call `action` at once: there is no other broker to notify."""
        action()

    def due(self) -> float:
        """When `tick` next has work although `waiting` is false."""
        return min(self.dirs.due(), self.users.due())

    def on_wakeup(self) -> None:
        """Other processes' changes do not matter here."""

    def close(self) -> None:
        """Close the tree; ephemeral nodes go with its session."""
        self.state.tree.close()

    def admit(self, _listener: str, _host: str, _size: int, then: Callable[[bool], None]) -> None:
        """Admit none: there is no other broker."""
        then(False)

    def look_for_brokers(self) -> None:
        """Do nothing: there is no other broker."""

    def require_controller(self) -> None:
        """Accept: there is no other broker."""

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        """Topics by name, as in snapshots."""
        return self.state.topics

    @property
    def snapshot(self) -> Snapshot:
        """The current metadata, published or not, including topics still being created."""
        return self.state.snapshot(self.version, self.config)

    def snapshot_at(self, version: int) -> Snapshot:
        """The current metadata, to publish as `version`."""
        return self.state.snapshot(version, self.config, {name: firsts[0] for name, firsts in self._making.items()})

    def _stored(self, write: Callable[[], T]) -> T:
        """Call `write`; TreeUnavailable becomes KAFKA_STORAGE_ERROR.

        On a full disk the reserve lends its space: if topics could not be deleted, the disk would stay full.
        """
        try:
            try:
                return write()
            except TreeUnavailable:
                if self._reserve is None or not self._reserve.free():
                    raise
            try:
                return write()
            finally:
                self._reserve.fill()
        except TreeUnavailable as error:
            log.error("metadata: %s", error)
            raise ApiError(KAFKA_STORAGE_ERROR, f"The metadata cannot be written: {error}") from error

    # -- at start

    def open_partitions(self, former: Snapshot | None) -> None:
        """Give every partition of this broker its directory and slot; existing ones of `former` keep theirs."""
        known = former.slots() if former else {}
        places = {(topic, index): info for topic, index, info in known.values()}
        for name, topic in self.state.topics.items():
            topic_id = bytes.fromhex(topic["id"])
            for index, row in enumerate(topic["partitions"]):
                info = places.get((name, index))
                same = info is not None and former is not None and former.topics[name].id == topic_id
                if same and info is not None and self.slot_allocator.matches(info.slot, info.incarnation):
                    row[SLOT], row[INCARNATION], row[LOG_DIR] = info.slot, info.incarnation, info.log_dir
                elif self.state.broker in row[REPLICAS] and name not in self.state.deleting:
                    self._open(name, index, row, topic_id)
        for name in self.state.deleting:
            self.delete_topic(name, lambda error: None)
        unknown_dirs.finish_deletions(self.state, self.dirs)
        if former:
            used = {row[SLOT] for topic in self.state.topics.values() for row in topic["partitions"]}
            self.to_free.extend(self.slot_allocator.leftovers(used))
        self.changed = True

    def _open(self, name: str, index: int, row: Row, topic_id: bytes) -> None:
        """Open a partition that existed before: its log needs recovery, unless there is none yet."""
        state = slots.OFFLINE
        try:
            row[LOG_DIR] = self.dirs.adopt(name, index, topic_id)
            state = slots.RECOVERING if self.dirs.has_log(name, index) else slots.LEADER
        except OSError as error:
            log.error("%s-%d: %s: the partition is offline", name, index, error)
            row[LOG_DIR] = max(row[LOG_DIR], 0)
        row[SLOT], row[INCARNATION] = self.slot_allocator.open(_first(state, row))

    # -- topics

    def create_topic(self, plan: TopicPlan) -> Generator[None, None, bytes]:
        """Create a topic with empty logs and return its id. ApiError KAFKA_STORAGE_ERROR leaves nothing behind."""
        self._stored(lambda: adopt_log_dirs.end(self.state))
        topic_id = self._stored(lambda: self.state.create_topic(plan, states=TOGETHER))
        try:
            yield from self._make(plan.name, 0)
        except ApiError:
            self.delete_topic(plan.name, lambda error: None)
            raise
        log.info("created topic %s with %d partitions", plan.name, len(plan.replicas))
        return topic_id

    def add_partitions(self, name: str, replicas: Mapping[int, list[int]]) -> Iterator[None]:
        """Add planned partitions with empty logs. ApiError KAFKA_STORAGE_ERROR."""
        if name in self._deletions:
            raise _going()
        self._stored(lambda: self.state.add_partitions(name, replicas, states=TOGETHER))
        yield from self._make(name, min(replicas))
        log.info("topic %s now has %d partitions", name, max(replicas) + 1)

    def _make(self, name: str, first: int) -> Iterator[None]:
        """Create what is missing of a topic's partitions from `first` on, after the requests queued before this one.

        Stops when the topic is being deleted.
        """
        making = self._making.setdefault(name, [])
        making.append(first)
        end = len(self.state.topics[name]["partitions"])
        try:
            for step in self._steps(name, range(first, end)):
                yield step
                if name in self._deletions:
                    raise _going()
        except (OSError, SlotsExhausted) as error:
            log.error("%s: %s", name, error)
            raise ApiError(KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            making.remove(first)
            if not making:
                del self._making[name]
            self.changed = True

    def _steps(self, name: str, indexes: range) -> Iterator[None]:
        """Create states, directories and slots. A new log needs no recovery: this broker leads it at once."""
        while self._making[name][0] != indexes[0]:
            yield WAITS
        for start in range(TOGETHER, len(indexes), TOGETHER):
            some = indexes[start : start + TOGETHER]
            self._stored(partial(self.state.write_states, name, some))
            yield
        topic = self.state.topics[name]
        topic_id, rows = bytes.fromhex(topic["id"]), topic["partitions"]
        mine = {index: rows[index] for index in indexes if self.state.broker in rows[index][REPLICAS]}
        for index, row in mine.items():
            row[LOG_DIR] = self.dirs.create(name, index, topic_id)
            yield
        self.dirs.sync()
        yield
        for row in mine.values():
            row[SLOT], row[INCARNATION] = self.slot_allocator.open(_first(slots.LEADER, row))
            yield

    def delete_topic(self, name: str, done: Callable[[ApiError | None], None]) -> Callable[[], object]:
        """Delete a topic; `done` is called when its logs are no longer reachable, possibly before this returns.

        The returned function cancels the call of `done`.
        """
        deletion = self._deletions.get(name)
        if deletion is None:
            self._stored(lambda: self.state.mark_deletion(name))
            deletion = self._deletions[name] = _Deletion()
        number = next(self._numbers)
        deletion.done[number] = done
        self.tick()
        return partial(deletion.done.pop, number, None)

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to retry."""
        return bool(self._deletions)

    def tick(self) -> None:
        """Continue work that waits for partition locks; call every millisecond while `waiting`."""
        self.dirs.retry(time.monotonic())
        self.users.sweep(time.time_ns() // 1_000_000)
        self._follow()
        left = AT_ONCE
        for name, deletion in list(self._deletions.items()):
            if name in self._making:  # creation stops at its next step
                continue
            if not deletion.begun:
                deletion.begun = True
                deletion.rows.update(enumerate(self.state.topics[name]["partitions"]))
            for index, row in list(deletion.rows.items()) if left else ():
                if self._retire(name, index, row):
                    del deletion.rows[index]
                    left -= 1
                    if not left:
                        break
            if not deletion.rows:
                self._finish_deletion(name, deletion)

    def _retire(self, name: str, index: int, row: Row) -> bool:
        """Take a partition's log out of use; False while another process holds its lock."""
        slot = row[SLOT]
        if slot == NOWHERE:
            self._retire_dir(name, index)
            return True
        if not self.slot_allocator.try_lock(slot):
            return False
        self.slot_allocator.mark_deleting(slot)
        self._retire_dir(name, index)
        for role in self.slot_allocator.unlock(slot):
            self._ring(role)
        self.to_free.append(slot)
        return True

    def _retire_dir(self, name: str, index: int) -> None:
        if (name, index) in self.dirs:
            self.dirs.put_away(name, index, self.dirs.retire)

    def _finish_deletion(self, name: str, deletion: _Deletion) -> None:
        """Finish the deletion, over several `tick`s if the topic has many partitions."""
        error = None
        try:
            if self._stored(lambda: self.state.delete_some_states(name)):
                return
            unrenamed = not self.dirs.all_renamed(name)
            self._stored(lambda: self.state.delete_topic(name, unrenamed))
            log.info("deleted topic %s", name)
        except ApiError as refused:
            error = refused
        del self._deletions[name]
        self.changed = True
        for done in list(deletion.done.values()):
            done(error)

    # -- configs

    @property
    def own_configs(self) -> dict[str, str] | None:
        """The dynamic configs of this broker; None: they are not known yet."""
        return self.state.dynamic.get(str(self.state.broker), {})

    def change_listeners(self, config: BrokerConfig) -> None:
        """Publish and register the listeners of `config`. No program reads the registration of a standalone broker."""
        ends, protocols = registration.advertised(config)
        now_ms = time.time_ns() // 1_000_000
        self.state.protocols = config.protocols
        self.state.admitted = registration.admitted_alone(config)
        with suppress(ApiError):  # it is logged, and the next start registers
            self._stored(lambda: self.state.register(ends, protocols, config["broker.rack"], now_ms))

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's overrides (already validated)."""
        self._stored(lambda: self.state.set_topic_config(name, configs))
        self.changed = True

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace dynamic broker configs (already validated)."""
        self._stored(lambda: self.state.set_broker_config(broker, configs))
        self.changed = True

    def check_link(self, settings: Mapping[str, str]) -> None:
        """Nothing: there are no other brokers."""

    def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace the client quotas of an entity (already validated)."""
        self._stored(lambda: self.state.set_quotas(entity, quotas))
        self.changed = True

    def producer_ids(self) -> tuple[int, int]:
        """(first, count) of a block of producer ids. ApiError KAFKA_STORAGE_ERROR."""
        return self._stored(self.state.producer_ids)

    # -- decisions with only one broker

    def partitions(self) -> list[Partition]:
        """All partitions."""
        return [(name, index) for name, topic in self.topics.items() for index in range(len(topic["partitions"]))]

    def elect_leaders(self, partitions: Collection[Partition], unclean: bool) -> Outcomes:
        """Elect none: every partition has its preferred leader."""
        return {partition: _NOT_NEEDED if self._has(*partition) else _UNKNOWN for partition in partitions}

    def _has(self, name: str, index: int) -> bool:
        return 0 <= index < len(self.topics.get(name, {}).get("partitions", ()))

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, ApiError]:
        """Accept only the present assignment: there is no other broker, and never a reassignment to cancel."""
        refused = {}
        for (name, index), target in targets.items():
            if not self._has(name, index):
                refused[name, index] = _UNKNOWN
            elif target is None:
                refused[name, index] = _NO_MOVE
            elif sorted(target) != sorted(self.topics[name]["partitions"][index][REPLICAS]):
                message = f"A partition can have only one replica, on broker {self.state.broker}."
                refused[name, index] = ApiError(INVALID_REPLICA_ASSIGNMENT, message)
        return refused

    def moves(self) -> dict[Partition, Assignment]:
        """Reassignments in progress: none."""
        return {}

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset where ZooKeeper-based consumers would read it."""
        self.state.commit_offset(group, topic, partition, offset)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """An offset committed this way; None without one."""
        return self.state.committed_offset(group, topic, partition)


def _first(state: int, row: Row) -> SlotState:
    """A slot's initial state; min.insync.replicas is capped at the replica count, one."""
    return SlotState(state=state, leader_epoch=row[EPOCH], isr_count=len(row[ISR]), log_dir=row[LOG_DIR])


def _going() -> ApiError:
    return ApiError(UNKNOWN_TOPIC_OR_PARTITION, "The topic is being deleted.")


class _Deletion:
    """A topic being deleted: partitions whose lock is still held, and the waiting callbacks."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.begun = False
        self.done: dict[int, Callable[[ApiError | None], None]] = {}
