"""Commits, transactions and deletions of offsets in a log that is slow, full or locked: memory equals the log."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.groups.events import Commit
from odradek.groups.loading import GroupReplay
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.records import OffsetValue
from odradek.protocol.errors import Error
from odradek.protocol.records import control

from .world import World, drain

GROUPS = st.sampled_from(["g", "h"])
TPS = st.sets(st.sampled_from([("t", 0), ("t", 1), ("u", 0)]), min_size=1)
PRODUCERS = st.sampled_from([None, None, (5, 0), (6, 3)])
FAILURES = st.sampled_from([None] * 4 + [Error.MESSAGE_TOO_LARGE, Error.NOT_ENOUGH_REPLICAS])
WEEK_MS = 7 * 24 * 3600 * 1000


class Machine(RuleBasedStateMachine):
    """Clients without a member id, two transactional producers, and an administrator; no request waits for too long."""

    @initialize()
    def start(self) -> None:
        self.world = World(commit_timeout_ms=2**60)
        self.wanted: list[tuple[tuple[int, int], bool]] = []  # markers that wait for offsets of their producer
        self.written: list[
            tuple[tuple[int, int], bool, int]
        ] = []  # markers above the high watermark, with their end offsets
        self.sent: list[int] = []

    def fails(self, error: Error | None, action: Any, *args: Any) -> int:
        """Send the request while the log refuses with `error`, if it is not locked; return the token of its answer."""
        self.world.log.error = error
        token = self.world.token()
        action(*args, token, self.world.now)
        self.world.settle()
        if not self.world.log.busy:
            self.world.log.error = None
        self.mark()
        return token

    @rule(group=GROUPS, tps=TPS, producer=PRODUCERS, error=FAILURES)
    def commit(self, group: str, tps: set[tuple[str, int]], producer: tuple[int, int] | None, error: Any) -> None:
        if producer in self.ending():
            return  # the transaction coordinator would refuse, as the transaction is over
        offset = len(self.sent)
        offsets = {tp: OffsetValue(offset, -1, "", self.world.now.wall_ms) for tp in sorted(tps)}
        request = Commit(group, "", None, -1, offsets, producer=producer)
        self.sent.append(self.fails(error, self.world.groups.commit, request))

    @rule(group=GROUPS, tps=TPS, error=FAILURES)
    def delete_offsets(self, group: str, tps: set[tuple[str, int]], error: Any) -> None:
        self.sent.append(self.fails(error, self.world.groups.delete_offsets, group, sorted(tps)))

    @rule(group=GROUPS, error=FAILURES)
    def delete_group(self, group: str, error: Any) -> None:
        self.sent.append(self.fails(error, self.world.groups.delete_group, group))

    @rule()
    def delete_topic(self) -> None:
        self.fails(None, lambda _token, now: drain(self.world.groups.forgetting({"t"}, now)))

    @rule(error=FAILURES)
    def expire(self, error: Any) -> None:
        self.world._move(self.world.now.steady_ms + WEEK_MS)
        self.fails(error, lambda _token, now: drain(self.world.groups.expiring(now)))

    @rule(producer=st.sampled_from([(5, 0), (6, 3)]), commit=st.booleans())
    def end(self, producer: tuple[int, int], commit: bool) -> None:
        if producer not in self.ending():
            self.wanted.append((producer, commit))
        self.mark()

    def mark(self) -> None:
        """Write the markers that need not wait, and report those below the high watermark."""
        world = self.world
        for producer, commit in list(self.wanted):
            if not (world.log.busy or world.log.error or world.reloads or world.writer.has_appends_of(producer[0])):
                self.wanted.remove((producer, commit))
                self.written.append((producer, commit, self.write_marker(producer, commit)))
        for row in list(self.written):
            if world.log.passed(0, row[2]):
                self.written.remove(row)
                world.groups.end_transaction(0, row[0][0], row[1], world.now)

    def write_marker(self, producer: tuple[int, int], commit: bool) -> int:
        kind = control.COMMIT if commit else control.ABORT
        data = control.end_marker(
            kind, producer_id=producer[0], producer_epoch=producer[1], coordinator_epoch=0,
            timestamp=self.world.now.wall_ms,
        )  # fmt: skip
        return self.world.log.append(0, data) + 1

    @rule(group=GROUPS)
    def fault(self, group: str) -> None:
        self.world.groups.reset(group, self.world.now)

    def ending(self) -> list[tuple[int, int]]:
        """The producers whose last transaction is decided but not complete."""
        return [row[0] for row in self.wanted] + [row[0] for row in self.written]

    @rule(lag=st.integers(0, 3), busy=st.booleans(), first=st.booleans())
    def log_is(self, lag: int, busy: bool, first: bool = False) -> None:
        """`first`: markers are checked before the offsets."""
        self.world.log.lag, self.world.log.busy = lag, busy
        if first:
            self.mark()
        if not busy:
            self.world.log.error = None
        self.world.writer.write(self.world.now)
        self.world.settle()
        self.mark()

    @rule()
    def calm(self) -> None:
        """Once all appends are decided and all resets loaded, memory equals the log."""
        self.log_is(0, False)
        self.world.wait(RELOAD_PAUSE_MS)
        self.mark()
        assert not self.ending() and not self.world.groups._resetting
        assert all(self.world.answer(token) is not None for token in self.sent)
        replay = GroupReplay()
        for batch in self.world.log.read_all(0):
            replay.feed(batch)
        found = replay.found()
        assert self.told() == {
            name: ({tp: one.value for tp, one in each.offsets.items()}, set(each.open)) for name, each in found.items()
        }

    def told(self) -> dict[str, Any]:
        """The offsets of each group, and the producers with pending ones."""
        groups = self.world.groups._groups
        return {
            name: (group.offsets.all(), set(group.offsets.open_producers))
            for name, group in groups.items()
            if group.offsets
        }

    @invariant()
    def no_exception_is_raised(self) -> None:
        assert not self.world.groups._unreadable

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.calm()


TestOffsets = Machine.TestCase
TestOffsets.settings = settings(
    max_examples=200, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
