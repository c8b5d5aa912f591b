"""All groups of this broker: dispatches requests to groups and decides which records the log gets.

Pure: the caller passes the time with each call; effects (answers, and appends whose `done` must be called) queue in
`effects`. Transactions are separate (groups.transactions); they touch groups only through offsets committed in a
transaction, which wait here for its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from odradek.groups import joining, rebalance, syncing
from odradek.groups.errors import for_commit
from odradek.groups.events import (
    Answer,
    Append,
    Commit,
    GroupConfig,
    Join,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Now,
    Record,
    Reload,
    Sync,
    SyncResult,
)
from odradek.groups.group import CONSUMER, Group, State, Timer
from odradek.groups.loading import GroupReplay, LoadedGroup
from odradek.groups.member import Member
from odradek.groups.offset_removal import Tombstone, deletable, expired, in_pieces
from odradek.groups.offsets import TopicPartition
from odradek.groups.ownership import FAULT, Ownership
from odradek.groups.records import OffsetValue, group_key, java_length, offset_key, offset_value
from odradek.groups.timers import Deadlines
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

PartitionErrors = dict[TopicPartition, Error]


class Summary(NamedTuple):
    """A group for ListGroups and DescribeGroups."""

    id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()


class _Pending(NamedTuple):
    """Callbacks for the outcome of appended offsets."""

    complete: Callable[[int], None]
    fail: Callable[[], None]


class Groups(Ownership):
    """The groups by id, and which partitions of `__consumer_offsets` are loaded."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.effects: list[Answer | Append | Reload] = []
        super().__init__(self.effects)
        self.timers: Deadlines[Timer] = Deadlines()
        self._groups: dict[str, Group] = {}
        self._open: dict[int, set[str]] = {}  # producer id -> groups that have, or had, offsets in its open transaction
        self._deleted: dict[int | str, set[str]] = {}  # topics deleted while the partition or group was loading

    # -- loading and ownership --------------------------------------------------------------------------------

    def refusal(self, group_id: str | None, *, empty_is_valid: bool = False) -> Error:
        """Why requests for this group cannot be served now; NONE when they can.

        A group with the empty id never has members, but offsets have been stored under it.
        """
        if group_id is None or not (group_id or empty_is_valid):
            return Error.INVALID_GROUP_ID
        return self._served(group_id)

    def loaded(self, partition: int, replay: GroupReplay, now: Now, only: Collection[str] | None = None) -> None:
        """Load the groups from the partition's log; each member gets a full session timeout.

        `only`: load only these groups, which were reset; the others stay unchanged.
        """
        found = replay.found()
        only = None if only is None else self._awaited(only)
        for group_id in found if only is None else found.keys() & only:
            try:
                self._load(group_id, found[group_id], now)
            except Exception:
                self._unloadable(group_id)
        self._mark_loaded(partition, only)
        for key in [partition] if only is None else only:
            names = found if key == partition else [key]
            gone = self._deleted.pop(key, set())
            self._forget_topics([self._groups[name] for name in names if name in self._groups], gone, now)

    def _load(self, group_id: str, found: LoadedGroup, now: Now) -> None:
        group = self._create(group_id)
        if found.value is not None:
            group.load(found.value)
        for tp, committed in found.offsets.items():
            group.offsets.load(tp, committed)
        for producer_id, pending in found.open.items():
            group.offsets.load_open(producer_id, pending)
            self._open.setdefault(producer_id, set()).add(group_id)
        for member in group.members.values():
            group.alive(member, now)
        if len(group.members) > self.config.max_size:
            rebalance.maybe_prepare(group, "more members than group.max.size", now)

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads; waiting requests get NOT_COORDINATOR."""
        for group_id in [name for name, group in self._groups.items() if group.partition == partition]:
            self._discard(group_id, Error.NOT_COORDINATOR)
        self._drop(partition)
        for producer_id in list(self._open):  # deleted groups: their markers may be written elsewhere
            for group_id in [name for name in self._open[producer_id] if name not in self._groups]:
                self._end_open(producer_id, group_id)

    def _drop(self, partition: int) -> None:
        self._deleted.pop(partition, None)
        for key in [key for key in self._resetting if self.partition_of(key) == partition]:
            self._deleted.pop(key, None)
        super()._drop(partition)

    def _create(self, group_id: str) -> Group:
        group = Group(group_id, self.partition_of(group_id), self.config, self.timers, self.effects)
        self._groups[group_id] = group
        return group

    def _drop_unused(self, group: Group) -> None:
        """Drop a group that a request created and left empty, so that such requests cost no memory."""
        if group.is_unused and self._groups.get(group.id) is group:
            del self._groups[group.id]

    def _forget(self, key: str) -> None:
        """See `Ownership`. Its members retry, and find the group as the log has it."""
        self._discard(key, Error.COORDINATOR_NOT_AVAILABLE)

    def _discard(self, group_id: str, error: Error) -> None:
        """Drop a group in any state; answer its waiting requests with `error`."""
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.abandon(error)
            for producer_id in group.offsets.open_producers:
                self._end_open(producer_id, group_id)

    def _end_open(self, producer_id: int, group_id: str) -> None:
        names = self._open.get(producer_id, set())
        names.discard(group_id)
        if not names:
            self._open.pop(producer_id, None)

    # -- members ----------------------------------------------------------------------------------------------

    def join(self, request: Join, token: Any, now: Now) -> None:
        """JoinGroup; answers a JoinResult."""
        try:
            self._join(request, token, now)
        except Exception:
            self._answer_fault(token, JoinResult(FAULT, request.member_id), request.group, now)

    def _join(self, request: Join, token: Any, now: Now) -> None:
        error = self.refusal(request.group)
        if not error and not self.config.min_session_ms <= request.session_timeout_ms <= self.config.max_session_ms:
            error = Error.INVALID_SESSION_TIMEOUT
        group = self._groups.get(request.group)
        if not error and group is None:
            if request.member_id:
                error = Error.UNKNOWN_MEMBER_ID
            else:
                group = self._create(request.group)
        if error or group is None:
            self.effects.append(Answer(token, JoinResult(error, request.member_id)))
        else:
            joining.join(group, request, token, now)
            self._drop_unused(group)

    def sync(self, request: Sync, token: Any, now: Now) -> None:
        """SyncGroup; answers a SyncResult. While loading: REBALANCE_IN_PROGRESS, which older clients understand."""
        try:
            self._sync(request, token, now)
        except Exception:
            self._answer_fault(token, SyncResult(FAULT), request.group, now)

    def _sync(self, request: Sync, token: Any, now: Now) -> None:
        error = self.refusal(request.group)
        group = self._groups.get(request.group)
        if error is Error.COORDINATOR_LOAD_IN_PROGRESS:
            error = Error.REBALANCE_IN_PROGRESS
        elif not error and group is None:
            error = Error.UNKNOWN_MEMBER_ID
        if error or group is None:
            self.effects.append(Answer(token, SyncResult(error)))
        else:
            syncing.sync(group, request, token, now)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> Error:
        """Heartbeat; while loading, every member counts as alive."""
        error = self.refusal(group_id)
        if error:
            return Error.NONE if error is Error.COORDINATOR_LOAD_IN_PROGRESS else error
        group = self._groups.get(group_id)
        if group is None:
            return Error.UNKNOWN_MEMBER_ID
        try:
            return syncing.heartbeat(group, member_id, instance_id, generation, now)
        except Exception:
            self._fault(group_id, now)
            return FAULT

    def leave(self, group_id: str, members: Iterable[LeavingMember], now: Now) -> LeaveResult:
        """LeaveGroup, for one or many members."""
        error = self.refusal(group_id)
        if error:
            return LeaveResult(error)
        group = self._groups.get(group_id)
        if group is None:
            return LeaveResult(Error.NONE, tuple((leaving, Error.UNKNOWN_MEMBER_ID) for leaving in members))
        try:
            return LeaveResult(Error.NONE, tuple((leaving, syncing.leave(group, leaving, now)) for leaving in members))
        except Exception:
            self._fault(group_id, now)
            return LeaveResult(FAULT)

    def tick(self, now: Now) -> None:
        """Handle all deadlines up to `now`."""
        for group_id, kind, member_id in self.timers.expired(now.steady_ms):
            group = self._groups.get(group_id)
            if group is not None:
                try:
                    rebalance.EXPIRY[kind](group, member_id, now)
                    self._drop_unused(group)
                except Exception:
                    self._fault(group_id, now)
        self._reload_due(now)

    def next_ms(self) -> int | None:
        """The time of the next `tick`; None: no deadline is set."""
        return min((due for due in (self.timers.next_ms(), self._reload_at.next_ms()) if due is not None), default=None)

    # -- offsets ----------------------------------------------------------------------------------------------

    def commit(self, request: Commit, token: Any, now: Now) -> None:
        """OffsetCommit; answers the error of each partition once the offsets are in the log."""
        try:
            self._commit(request, token, now)
        except Exception:
            self._answer_fault(token, dict.fromkeys(request.offsets, FAULT), request.group, now)

    def _commit(self, request: Commit, token: Any, now: Now) -> None:
        error = self.refusal(request.group, empty_is_valid=True)
        group = self._groups.get(request.group)
        if not error and group is None:
            if request.generation < 0:
                group = self._create(request.group)  # a "simple" group, which has offsets and no members
            elif request.producer is not None:  # Kafka creates the group here and finds no such member
                error = Error.UNKNOWN_MEMBER_ID
            else:
                error = Error.GROUP_ID_NOT_FOUND if request.unknown_group_is_not_found else Error.ILLEGAL_GENERATION
        if not error and group is not None:
            error = syncing.may_commit(group, request, now)
        if error or group is None:
            self.effects.append(Answer(token, dict.fromkeys(request.offsets, error)))
        else:
            self._store_offsets(group, request.offsets, request.producer, token)
        if group is not None:
            self._drop_unused(group)

    def _store_offsets(
        self, group: Group, offsets: dict[TopicPartition, OffsetValue], producer: tuple[int, int] | None, token: Any
    ) -> None:
        limit = self.config.max_metadata
        fit = {tp: value for tp, value in offsets.items() if java_length(value.metadata) <= limit}
        errors = {tp: Error.NONE if tp in fit else Error.OFFSET_METADATA_TOO_LARGE for tp in offsets}
        if not fit:
            self.effects.append(Answer(token, errors))
            return

        records: list[Record] = [(offset_key(group.id, *tp), offset_value(value)) for tp, value in fit.items()]
        pending = self._pending_kind(group, fit, producer)

        def done(error: Error, position: int, _now: Now) -> None:
            if error:
                pending.fail()
                errors.update(dict.fromkeys(fit, for_commit(error)))
            else:
                pending.complete(position)
            self.effects.append(Answer(token, errors))

        self.effects.append(Append(group.id, records, done, producer))

    def _pending_kind(
        self, group: Group, fit: dict[TopicPartition, OffsetValue], producer: tuple[int, int] | None
    ) -> _Pending:
        """Record the pending offsets; returns the callbacks for the outcome of their append."""
        offsets = group.offsets
        if producer is None:
            offsets.prepare(fit)
            return _Pending(partial(offsets.complete, fit), partial(offsets.fail, fit))
        offsets.prepare_open(producer[0], fit)
        self._open.setdefault(producer[0], set()).add(group.id)
        return _Pending(partial(offsets.complete_open, producer[0], fit), partial(offsets.fail_open, producer[0], fit))

    def end_transaction(self, partition: int, producer_id: int, commit: bool, now: Now) -> None:
        """The producer's marker is in this partition of `__consumer_offsets`: commit or drop its offsets there."""
        for group_id in [name for name in self._open.get(producer_id, ()) if self.partition_of(name) == partition]:
            try:
                self._end_open(producer_id, group_id)
                group = self._groups.get(group_id)
                if group is not None:  # else its append failed and the group had nothing else
                    group.offsets.end_open(producer_id, commit)
            except Exception:
                self._fault(group_id, now)

    def fetch(
        self, group_id: str | None, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> tuple[Error, dict[TopicPartition, tuple[OffsetValue | None, Error]]]:
        """OffsetFetch: the offset of each partition (None: nothing committed); `partitions` None requests all."""
        error = self.refusal(group_id, empty_is_valid=True)
        if error:
            return error, {}
        group = self._groups.get(group_id or "")
        if group is None:
            return Error.NONE, dict.fromkeys(partitions or (), (None, Error.NONE))
        requested = group.offsets.all() if partitions is None else partitions
        return Error.NONE, {tp: self._fetch_one(group, tp, require_stable) for tp in requested}

    def _fetch_one(self, group: Group, tp: TopicPartition, require_stable: bool) -> tuple[OffsetValue | None, Error]:
        if require_stable and group.offsets.unstable(tp):
            return None, Error.UNSTABLE_OFFSET_COMMIT
        return group.offsets.get(tp), Error.NONE

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition], token: Any, now: Now) -> None:
        """OffsetDelete; answers (error, errors by partition). Offsets of subscribed topics stay."""
        try:
            self._delete_offsets(group_id, partitions, token, now)
        except Exception:
            self._answer_fault(token, (FAULT, {}), group_id, now)

    def _delete_offsets(self, group_id: str, partitions: list[TopicPartition], token: Any, now: Now) -> None:
        error = self.refusal(group_id)
        group = self._groups.get(group_id)
        if not error and group is None:
            error = Error.GROUP_ID_NOT_FOUND
        if not error and group is not None and group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            error = Error.NON_EMPTY_GROUP
        if error or group is None:
            self.effects.append(Answer(token, (error, {})))
            return
        errors = {tp: deletable(group, tp[0]) for tp in partitions}
        removed = [tp for tp, refused in errors.items() if not refused]
        if not removed:
            self.effects.append(Answer(token, (Error.NONE, errors)))
            return
        if group.state is State.EMPTY and not set(group.offsets.partitions()) - set(removed):
            _forget_pending(group)
        self._remove_offsets(group, removed, now, lambda failed: Answer(token, (failed, {} if failed else errors)))

    def forgetting(self, topics: set[str], now: Now) -> Iterator[None]:
        """Remove offsets of deleted topics; for groups that are loading, once they are loaded.

        One group per step: exhaust the iterator before a new commit for topics of these names.
        """
        reading: list[int | str] = [*self._loading, *self._resetting]
        for key in reading:
            self._deleted.setdefault(key, set()).update(topics)
        for name in list(self._groups):
            if name in self._groups:
                self._forget_topics([self._groups[name]], topics, now)
            elif name in self._resetting:  # since the last step
                self._deleted.setdefault(name, set()).update(topics)
            yield

    def _forget_topics(self, groups: Iterable[Group], topics: set[str], now: Now) -> None:
        for group in groups if topics else ():
            try:
                gone = [tp for tp in group.offsets.partitions() if tp[0] in topics]
                self._remove_offsets(group, gone, now, None, for_good=True)
            except Exception:
                self._fault(group.id, now)

    def expiring(self, now: Now) -> Iterator[None]:
        """Remove offsets past `offsets.retention.minutes`, and unused groups; one group per step."""
        for name in list(self._groups):
            group = self._groups.get(name)
            if group is not None:
                try:
                    self._expire(group, now)
                except Exception:
                    self._fault(name, now)
            yield

    def _expire(self, group: Group, now: Now) -> None:
        found = expired(group, self.config.retention_ms, now.wall_ms)
        if found:
            log.info("group %s: %d offsets expired", group.id, len(found))
        self._remove_offsets(group, found, now, None)

    def _remove_offsets(
        self, group: Group, partitions: list[TopicPartition], now: Now, answer: Any, for_good: bool = False
    ) -> None:  # fmt: skip
        """Write tombstones for these offsets, and for the whole group if nothing else is left.

        `for_good`: do not restore the offsets if the append fails. The next coordinator then finds them in the log.
        """
        before = group.offsets.snapshot()
        undecided = any(group.offsets.unstable(tp) for tp in partitions)
        removed = group.offsets.remove(partitions)
        tombstones: list[Tombstone] = [(tp, (offset_key(group.id, *tp), None)) for tp in removed]
        buried = group.state is State.EMPTY and not group.offsets and not group.pending
        if buried:
            self._discard(group.id, Error.UNKNOWN_MEMBER_ID)
            if group.generation > 0:  # a group that only stored offsets has no record of its own
                tombstones.append((None, (group_key(group.id), None)))

        def restore(some: list[Tombstone]) -> None:
            if for_good:
                return
            if undecided:  # only the log shows the outcome of those commits
                self.reset(group.id, now)
            else:
                self._restore(group, {tp: before[tp] for tp, _ in some if tp in before})

        self._write_tombstones(group.id, tombstones, restore, answer)

    def _write_tombstones(
        self, group_id: str, tombstones: list[Tombstone], restore: Callable[[list[Tombstone]], None], answer: Any
    ) -> None:
        """Write in pieces, as one batch may exceed the topic's limit. `restore` gets each piece that fails."""
        left = list(in_pieces(tombstones))
        failed: list[Error] = []

        def done(some: list[Tombstone], error: Error, _position: int, _now: Now) -> None:
            left.remove(some)
            if error:
                if not failed:
                    log.error("group %s: cannot write tombstones: %s", group_id, error.name)
                failed.append(error)
                restore(some)
            if not left:
                tell()

        def tell() -> None:
            if answer is not None:
                self.effects.append(answer(for_commit(failed[0]) if failed else Error.NONE))

        for some in list(left):
            self.effects.append(Append(group_id, [record for _, record in some], partial(done, some)))
        if not left:
            tell()

    def _restore(self, group: Group, offsets: Any) -> None:
        """Put back offsets that are still in the log. A group that is no longer served is loaded from there.

        This removal has buried the group, or another one since: with its generation and the time since it is empty,
        which expiry counts from.
        """
        if self._served(group.id):
            return
        if group.id not in self._groups:
            group.state = State.EMPTY
            self._groups[group.id] = group
        there = self._groups[group.id]
        there.offsets.restore(offsets)
        self._drop_unused(there)

    # -- groups as a whole ------------------------------------------------------------------------------------

    def delete_group(self, group_id: str | None, token: Any, now: Now) -> None:
        """DeleteGroups for one group; answers an Error. Only a group without members can be deleted."""
        try:
            self._delete_group(group_id, token, now)
        except Exception:
            self._answer_fault(token, FAULT, group_id or "", now)

    def _delete_group(self, group_id: str | None, token: Any, now: Now) -> None:
        error = self.refusal(group_id, empty_is_valid=True)
        group = self._groups.get(group_id or "")
        if not error and group is None:
            error = Error.GROUP_ID_NOT_FOUND
        if not error and group is not None and group.state is not State.EMPTY:
            error = Error.NON_EMPTY_GROUP
        if error or group is None:
            self.effects.append(Answer(token, error))
            return
        _forget_pending(group)
        self._remove_offsets(group, group.offsets.partitions(), now, lambda failed: Answer(token, failed))

    def listing(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[Summary]:
        """ListGroups, filtered by states and types (any case; none given: all). All groups here are classic."""
        state_names = {state.lower() for state in states}
        kinds = {kind.lower() for kind in types}
        if kinds and "classic" not in kinds:
            return []
        groups = [g for g in self._groups.values() if not state_names or g.state.value.lower() in state_names]
        return [Summary(group.id, group.state.value, group.protocol_type or "") for group in groups]

    def describe(self, group_id: str | None) -> tuple[Error, Summary]:
        """DescribeGroups for one group; a group that does not exist is GROUP_ID_NOT_FOUND and Dead."""
        name = group_id or ""
        error = self.refusal(group_id, empty_is_valid=True)
        if error:
            return error, Summary(name, "")
        group = self._groups.get(name)
        if group is None:
            return Error.GROUP_ID_NOT_FOUND, Summary(name, State.DEAD.value)
        protocol = (group.protocol or "") if group.state is State.STABLE else ""
        members = tuple(group.members.values())
        return Error.NONE, Summary(name, group.state.value, group.protocol_type or "", protocol, members)

    def get(self, group_id: str) -> Group | None:
        """The group itself, for tests and `status`."""
        return self._groups.get(group_id)

    def __len__(self) -> int:
        return len(self._groups)


def _forget_pending(group: Group) -> None:
    """Drop handed-out ids of a deleted group: members that join with one get UNKNOWN_MEMBER_ID."""
    for member_id in list(group.pending):
        group.remove(member_id)
