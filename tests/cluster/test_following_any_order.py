"""A follower's requests to a leader in any order of events, checked with the leader's real sessions."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.partition_fetch_states import (
    DELAY,
    LONGEST_BACKOFF_MS,
    OUT_OF_RANGE,
    OffsetLookup,
    PartitionFetchStates,
    Position,
)
from odradek.cluster.replication.pipelined_fetch import PendingAppend
from odradek.protocol import errors
from odradek.protocol.fetch import FetchPartition, FetchRequest
from odradek.protocol.fetch_client import LATEST
from odradek.workers.fetch.fetch_sessions import FetchSessionCache

from .asking import LIMITS, A, B, C


class Leader:
    """The leader as a follower sees it: log ends, log starts and epochs, and the sessions of a worker."""

    def __init__(self) -> None:
        self.sessions = FetchSessionCache(2)
        self.session: Any = None
        self.ends = dict.fromkeys((A, B, C), 5)
        self.hws = dict.fromkeys((A, B, C), 3)
        self.starts = dict.fromkeys((A, B, C), 0)
        self.epochs = dict.fromkeys((A, B, C), 0)

    def fetch(self, request: FetchRequest) -> tuple[int, int, dict[Key, FetchPartition]]:
        """(error, session id, the partitions to read)."""
        error, self.session = self.sessions.open(request, True, 0.0)
        if error:
            return error, 0, {}
        if self.session is None:
            return 0, 0, {(one.topic, one.partition): one for one in request.parts}
        self.session.advance()
        return 0, self.session.id, self.session.parts

    def error_of(self, key: Key, one: FetchPartition) -> int:
        if one.leader_epoch != self.epochs[key]:
            return errors.FENCED_LEADER_EPOCH if one.leader_epoch < self.epochs[key] else errors.UNKNOWN_LEADER_EPOCH
        return 0 if self.starts[key] <= one.offset <= self.ends[key] else errors.OFFSET_OUT_OF_RANGE


class Machine(RuleBasedStateMachine):
    """A follower's logs are numbers; each rule is an event between two requests."""

    keys = st.sampled_from([A, B, C])

    @initialize()
    def begin(self) -> None:
        self.machine, self.leader, self.now = PartitionFetchStates(LIMITS), Leader(), 0
        self.own = dict.fromkeys((A, B, C), 0)
        self.assigned: dict[Key, int] = {}
        self.held: dict[Key, int] = {}
        self.under_way: FetchRequest | OffsetLookup | None = None
        self.coming: dict[Key, int] = {}  # the log ends in sent requests

    def where(self, key: Key) -> Position:
        return Position(self.assigned[key], self.own[key], 0, 0)

    @rule(key=keys, newer=st.booleans())
    def assign(self, key: Key, newer: bool) -> None:
        self.leader.epochs[key] += newer
        self.assigned[key] = self.leader.epochs[key]
        self.held.pop(key, None)
        self.machine.assign(key, self.where(key))

    @rule(key=keys)
    def remove(self, key: Key) -> None:
        self.assigned.pop(key, None)
        self.held.pop(key, None)
        self.machine.remove(key)

    @rule(key=keys)
    def leader_moves_on(self, key: Key) -> None:
        self.leader.epochs[key] += 1

    @rule(key=keys, count=st.integers(1, 5))
    def produce(self, key: Key, count: int) -> None:
        self.leader.ends[key] += count

    @rule(key=keys, end=st.integers(0, 10))
    def lose_records(self, key: Key, end: int) -> None:
        """Another leader is elected uncleanly in the same epoch: the worst case."""
        self.leader.ends[key] = max(self.leader.starts[key], min(end, self.leader.ends[key]))
        self.leader.hws[key] = min(self.leader.hws[key], self.leader.ends[key])

    @rule(key=keys, count=st.integers(1, 5))
    def commit(self, key: Key, count: int) -> None:
        self.leader.hws[key] = min(self.leader.hws[key] + count, self.leader.ends[key])

    @rule(key=keys)
    def retain(self, key: Key) -> None:
        self.leader.starts[key] = self.leader.hws[key] = self.leader.ends[key]

    @rule()
    def forget_sessions(self) -> None:
        self.leader.sessions = FetchSessionCache(2)

    @rule()
    def no_sessions(self) -> None:
        self.leader.sessions = FetchSessionCache(0)

    @rule()
    def lose_connection(self) -> None:
        self.under_way = None
        self.machine.lost()

    @rule(ms=st.integers(1, 3000))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def metadata(self) -> None:
        self.machine.retry_delayed()

    @rule(key=keys)
    def lock_is_free(self, key: Key) -> None:
        if key in self.held:
            self.own[key] = self.held.pop(key)
            self.machine.resume_at(key, self.where(key))

    @precondition(lambda self: self.under_way is None)
    @rule()
    def ask(self) -> None:
        self.under_way = self.machine.request(self.now)
        if isinstance(self.under_way, FetchRequest):
            assert 1 <= self.under_way.max_wait_ms <= 500
            self.answer_of = self.leader.fetch(self.under_way)
            self.parts = dict(self.answer_of[2])
            self.check_the_leaders_session()

    def check_the_leaders_session(self) -> None:
        """The session has exactly the wanted partitions; offsets are the log ends, or below the high watermark."""
        if not self.answer_of[0]:
            assert len(self.parts) == self.machine._fetching
            for key, one in self.parts.items():
                assert one == FetchPartition(*key, *self.where(key), 100)._replace(
                    offset=self.coming.get(key, self.own[key])
                )
                assert one.offset == self.own[key] or one.offset < self.leader.hws[key]
                assert key not in self.held

    @precondition(lambda self: self.under_way is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked, self.under_way = self.under_way, None
        if isinstance(asked, OffsetLookup):
            self.settle(asked)
        elif self.machine.answered(*self.answer_of[:2], self.now):
            wanted = {key: one for key, one in self.parts.items() if self.machine.requested(key) is not None}
            for key, one in wanted.items():
                assert self.machine.requested(key) == one, "a response belongs to its request"
                assert one.offset == self.own[key], "its records begin at the log end"
            ends = {key: self.sent(key, one, data) for key, one in wanted.items()}
            self.go_ahead(wanted, ends)
            for key, one in wanted.items():
                self.take(key, one, ends[key], data)
            self.coming = {}

    def sent(self, key: Key, one: FetchPartition, data: st.DataObject) -> int:
        """The end of the records that the leader has sent."""
        end, hw = self.leader.ends[key], self.leader.hws[key]
        return max(one.offset, data.draw(st.sampled_from([one.offset + 1, hw - 1, min(hw, end), end])))

    def go_ahead(self, wanted: dict[Key, FetchPartition], ends: dict[Key, int]) -> None:
        """Send the next request before the answer is used, as broker.replicator.leader_fetcher does."""
        if any(self.leader.error_of(key, one) for key, one in wanted.items()):
            return
        coming = [
            PendingAppend(key, ends[key], 0, self.leader.hws[key]) for key in wanted if ends[key] > wanted[key].offset
        ]
        if self.machine.pipeline(coming):
            self.coming = {one.key: one.end for one in coming}
            self.ask()

    def take(self, key: Key, one: FetchPartition, end: int, data: st.DataObject) -> None:
        about = self.machine.classify(self.leader.error_of(key, one), None)
        if about == DELAY:
            self.machine.delay(key, self.now)
        elif about == OUT_OF_RANGE:
            self.machine.look_up_offsets(key)
        elif end > one.offset:
            self.append(key, end, data.draw(st.sampled_from(["append", "append", "hold", "back_off", "a part"])))

    def append(self, key: Key, end: int, how: str) -> None:
        if how == "append":
            self.own[key] = end
            self.machine.resume_at(key, self.where(key))
            self.machine.succeeded(key)
        elif how == "hold":
            self.held[key] = end
            self.machine.hold(key)
        else:  # as replicator.leader_fetcher does, which may have said already that the log ends behind all that came
            self.own[key] = (self.own[key] + end) // 2 if how == "a part" else self.own[key]
            self.machine.back_off(key, self.now)
            self.machine.set_position(key, self.where(key))

    def settle(self, asked: OffsetLookup) -> None:
        of = self.leader.ends if asked.at == LATEST else self.leader.starts
        answers = {
            key: (0, of[key]) if epoch == self.leader.epochs[key] else (errors.FENCED_LEADER_EPOCH, -1)
            for key, epoch in asked.partitions
        }
        for cut in self.machine.offsets_found(asked, answers, self.now):
            assert cut.offset != self.own[cut.key]
            self.own[cut.key] = cut.offset
            self.machine.resume_at(cut.key, self.where(cut.key))

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "assigned"):
            assert len(self.machine) == len(self.assigned)
            assert self.machine._fetching >= 0

    def teardown(self) -> None:
        """Without further faults, everything is fetched up to the leader's ends, and requests name no partition."""
        if not hasattr(self, "assigned"):
            return
        self.leader.sessions = FetchSessionCache(2)
        self.lose_connection()
        for key in list(self.assigned):
            self.lock_is_free(key)
            self.assign(key, False)
        for _ in range(12):
            self.now += LONGEST_BACKOFF_MS
            self.ask()
            if isinstance(self.under_way, OffsetLookup):
                self.settle(self.under_way)
            elif self.under_way is not None:
                assert self.machine.answered(*self.answer_of[:2], self.now)
                for key, one in self.parts.items():
                    self.take_well(key, one)
            self.under_way = None
        assert all(self.own[key] == self.leader.ends[key] for key in self.assigned)
        request = self.machine.request(self.now)
        assert (request is None) == (not self.assigned)
        assert request is None or (isinstance(request, FetchRequest) and not request.parts and not request.forgotten)

    def take_well(self, key: Key, one: FetchPartition) -> None:
        if self.machine.classify(self.leader.error_of(key, one), None) == OUT_OF_RANGE:
            self.machine.look_up_offsets(key)
        elif self.leader.ends[key] > one.offset:
            self.append(key, self.leader.ends[key], "append")


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40)
