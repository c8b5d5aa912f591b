"""The queue of a log handler: no record is lost without being counted, and those of a partition keep their order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.loghandler.backlog import (
    CLOSED,
    EXPIRED,
    OVERHEAD_BYTES,
    QUEUE_FULL,
    TOO_LARGE,
    Backlog,
    Entry,
    Limits,
    Part,
)

LIMITS = Limits(records=8, memory=4000, batch=100, linger=1.0, delivery=60.0, backoff=2.0, backoff_max=8.0)
MOST_SIZE = 300


def entry(value: bytes = b"x", since: float = 0.0, key: bytes | None = None, report: int = 0) -> Entry:
    return Entry(value, key, (), 0, since, report)


def backlog(*values: bytes, **limits: Any) -> Backlog:
    made = Backlog(LIMITS._replace(**limits))
    for value in values:
        made.offer(entry(value))
    return made


def values(part: Part | None) -> list[bytes]:
    assert part is not None
    return [one.value for one in part.entries]


class Backlogs(RuleBasedStateMachine):
    """Any order of offers, attempts and outcomes. A value begins with the record's number."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(LIMITS)
        self.now = 0.0
        self.number = 0
        self.accepted: list[Entry] = []
        self.sent: list[tuple[tuple[int, int | None], Entry]] = []  # by topic's number and partition
        self.topic, self.partitions = 0, 3
        self.joined = False
        self.lost: list[Entry] = []  # accepted, then dropped
        self.refused_offers = 0
        self.unsure: tuple[Part, list[Entry]] | None = None  # failed, and so to be sent again as it was
        self.closed = False

    # -- offers

    @rule(size=st.integers(0, MOST_SIZE), key=st.sampled_from([None, b"0", b"1", b"2"]))
    def offer_one(self, size: int, key: bytes | None) -> None:
        self.offer(size, key)

    def offer(self, size: int, key: bytes | None) -> None:
        self.number += 1
        made = entry(b"%d " % self.number + b"x" * size, self.now, key)
        before, sleeps = self.backlog.accepted, self.backlog.seconds(self.now)
        wakes = self.backlog.offer(made)
        if self.backlog.accepted > before:
            self.accepted.append(made)
            if sleeps is None or (sleeps > 0 and self.backlog.seconds(self.now) == 0):
                assert wakes
        else:
            self.refused_offers += 1
            full = len(self.waiting()) >= LIMITS.records
            assert full or self.closed or self.backlog.memory + made.size + OVERHEAD_BYTES > LIMITS.memory

    @rule(keys=st.lists(st.sampled_from([b"0", b"1", b"2"]), min_size=3, max_size=5))
    def offer_a_batch(self, keys: list[bytes]) -> None:
        """Small records of several partitions."""
        for key in keys:
            self.offer(0, key)

    @precondition(lambda self: self.backlog.drops > self.backlog.reported and not self.backlog.report_waits)
    @rule()
    def offer_report(self) -> None:
        self.backlog.offer_report(entry(b"report", self.now, report=self.backlog.drops))

    # -- time

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def wait_until_due(self) -> None:
        """`seconds` names the time of the next part, neither earlier nor later."""
        seconds = self.backlog.seconds(self.now)
        if seconds is None:
            assert self.backlog.idle
            return
        if seconds:
            self.now += 0.99 * seconds
            assert self.take() is None
        self.now += 0.01 * seconds + 0.001
        assert self.take() or self.backlog.seconds(self.now) != 0

    @rule()
    def hurry(self) -> None:
        self.backlog.hurry()
        if len(self.waiting()) and self.unsure is None:
            assert self.backlog.seconds(self.now) == 0 or self.now < self.backlog._not_before

    @rule(partitions=st.integers(1, 4))
    def recreate_topic(self, partitions: int) -> None:
        self.topic, self.partitions = self.topic + 1, partitions

    @rule(keys=st.lists(st.sampled_from([b"0", b"1", b"2"]), min_size=3, max_size=5), partitions=st.integers(1, 2))
    def recreate_topic_while_parts_wait(self, keys: list[bytes], partitions: int) -> None:
        self.offer_a_batch(keys)
        self.hurry()
        part = self.take()
        if part is not None:
            self.divided(part)
        self.recreate_topic(partitions)

    # -- attempts

    @rule(outcome=st.sampled_from(["acknowledge", "acknowledge", "fail", "halve", "refuse"]), data=st.data())
    def attempt(self, outcome: str, data: st.DataObject) -> None:
        part = self.take()
        if part is not None:
            getattr(self, outcome)(self.divided(part), data)

    def divided(self, part: Part) -> Part:
        """The first part, of a partition that there is."""
        if part.partition is not None and part.partition >= self.partitions:
            part = self.join()
        if part.partition is None:
            self.divide(part)
        found = self.take()
        assert found and found.partition is not None and found.partition < self.partitions
        return found

    def divide(self, part: Part) -> None:
        groups: dict[int, list[Entry]] = {}
        for one in part.entries:
            groups.setdefault(int(one.key or 0) % self.partitions, []).append(one)
        self.backlog.divide(groups.items())

    def join(self) -> Part:
        before, self.unsure = [one for part in self.backlog._parts for one in part.entries], None
        self.backlog.join()
        self.joined = True
        joined = self.take()
        assert joined and joined.partition is None
        assert sorted(map(id, joined.entries)) == sorted(map(id, before)), "each once"
        return joined

    def acknowledge(self, part: Part, _: Any) -> None:
        self.sent += [((self.topic, part.partition), one) for one in part.entries]
        self.backlog.acknowledge()
        self.unsure = None

    def fail(self, part: Part, _: Any) -> None:
        if self.backlog.fail(self.now):
            self.unsure = part, list(part.entries)
            assert self.backlog.take(self.now) is None, "no attempt without a pause"
            return
        assert part.entries[0].since + LIMITS.delivery <= self.now
        self.lose(part.entries)

    def halve(self, part: Part, _: Any) -> None:
        entries = list(part.entries)
        self.backlog.halve()
        self.lose(entries if len(entries) == 1 else [])

    def refuse(self, part: Part, data: st.DataObject) -> None:
        entries = list(part.entries)
        indexes = data.draw(st.sets(st.integers(0, len(entries) + 1)))
        bad = {index for index in indexes if index < len(entries)} or set(range(len(entries)))
        self.backlog.refuse("refused", indexes)
        self.lose([entries[index] for index in bad])

    @precondition(lambda self: self.number > 20)
    @rule()
    def close(self) -> None:
        self.backlog.close()
        self.lose(self.waiting())
        self.closed = True
        assert self.backlog.idle

    def take(self) -> Part | None:
        """What the backlog returns; records whose time was over before a first attempt are dropped then."""
        part = self.backlog.take(self.now)
        expired = self.backlog.drops - self.refused_offers - len(self.lost)
        assert all(one.since + LIMITS.delivery <= self.now for one in self.waiting()[:expired])
        self.lost += self.waiting()[:expired]
        if part and self.unsure:
            assert part is self.unsure[0] and part.entries == self.unsure[1], "what may have arrived is sent unchanged"
        return part

    def lose(self, entries: list[Entry]) -> None:
        self.lost += [one for one in entries if not one.report]
        self.unsure = None

    def waiting(self) -> list[Entry]:
        gone = {one.value for _, one in self.sent} | {one.value for one in self.lost}
        return [one for one in self.accepted if one.value not in gone]

    # -- always

    @invariant()
    def every_record_is_counted_once(self) -> None:
        sent = [one for _, one in self.sent if not one.report]
        assert self.backlog.sent == len(sent) == len(set(sent))
        assert self.backlog.accepted == len(self.accepted)
        assert self.backlog.drops == self.backlog.dropped.total() == self.refused_offers + len(self.lost)
        assert self.backlog.waiting == len(self.waiting())

    @invariant()
    def memory_is_bounded(self) -> None:
        report = self.backlog.report_waits * (len(b"report") + OVERHEAD_BYTES)
        assert self.backlog.memory == sum(one.size + OVERHEAD_BYTES for one in self.waiting()) + report
        assert self.backlog.waiting <= LIMITS.records and self.backlog.memory - report <= LIMITS.memory

    @invariant()
    def records_of_a_partition_keep_their_order(self) -> None:
        """Where parts were joined after others were sent, only those of a key do."""
        by_group: dict[Any, list[int]] = {}
        for at, one in self.sent:
            if not one.report:
                by_group.setdefault(one.key if self.joined else at, []).append(int(one.value.split()[0]))
        assert all(numbers == sorted(numbers) for numbers in by_group.values())

    def teardown(self) -> None:
        """In the end every record is sent or counted."""
        self.now += LIMITS.linger + LIMITS.backoff_max
        while part := self.take():
            self.acknowledge(self.divided(part), None)
        assert self.backlog.idle and not self.waiting()
        self.every_record_is_counted_once()


TestBacklogs = Backlogs.TestCase


def test_records_linger_for_a_batch() -> None:
    made = backlog(b"a")
    assert made.take(0.9) is None and made.seconds(0.75) == 0.25
    made.offer(entry(b"b", since=0.9))
    assert values(made.take(1.0)) == [b"a", b"b"]


def test_full_batch_is_due_at_once() -> None:
    assert values(backlog(b"a" * 60, b"b" * 30, b"c" * 20).take(0)) == [b"a" * 60, b"b" * 30]


def test_record_above_the_batch_size_is_sent_alone() -> None:
    made = backlog(b"a" * 300, b"b")
    assert values(made.take(0)) == [b"a" * 300]


def test_flush_makes_waiting_records_due_but_not_later_ones() -> None:
    made = backlog(b"a")
    assert made.hurry() == 1
    assert values(made.take(0)) == [b"a"]
    made.acknowledge()
    made.offer(entry(b"b"))
    assert made.take(0) is None


def test_full_queue_drops_new_records() -> None:
    made = backlog(*[b"x"] * 10)
    assert (made.accepted, made.dropped) == (8, {QUEUE_FULL: 2})
    assert backlog(b"x" * 4000).dropped == {QUEUE_FULL: 1}


def test_pauses_double_up_to_their_bound() -> None:
    made, now, pauses = backlog(b"a"), 1.0, []
    for _ in range(4):
        assert made.take(now)
        assert made.fail(now)
        pauses.append(made.seconds(now))
        now += pauses[-1] or 0
    assert pauses == [2, 4, 8, 8]


def test_records_expire_after_the_delivery_timeout() -> None:
    made = backlog(b"a", batch=1)
    made.offer(entry(b"b", since=30))
    assert made.take(1) and made.fail(1)
    assert made.take(60) and not made.fail(60)
    assert values(made.take(61)) == [b"b"]
    assert made.dropped == {EXPIRED: 1}


def test_too_large_batch_is_halved_until_one_record_is_dropped() -> None:
    made = backlog(b"a", b"b", b"c", b"BAD", b"d")
    sent: list[bytes] = []
    made.hurry()
    while part := made.take(0):
        if b"BAD" in values(part):
            made.halve()
        else:
            sent += values(part)
            made.acknowledge()
    assert sent == [b"a", b"b", b"c", b"d"]
    assert made.dropped == {TOO_LARGE: 1}


@pytest.mark.parametrize(("indexes", "left"), [([1], [b"a", b"c"]), ([], None), ([7], None), ([0, 1, 2], None)])
def test_refused_records_are_dropped_and_the_others_sent_again(indexes: list[int], left: list[bytes] | None) -> None:
    made = backlog(b"a", b"b", b"c")
    made.hurry()
    assert made.take(0)
    made.refuse("why", indexes)
    part = made.take(0)
    assert (part and values(part)) == left
    assert made.dropped == {"why": 3 - len(left or [])}


def test_joined_parts_have_the_order_of_their_records_and_are_divided_by_the_partitions_there_are() -> None:
    made = backlog(b"a", b"b", b"c", b"d")
    made.hurry()
    entries = list(made.take(0).entries)  # type: ignore[union-attr]  # it is due
    made.divide([(0, entries[1::2]), (1, entries[::2])])
    made.halve()
    made.acknowledge()  # b
    made.join()
    part = made.take(0)
    assert values(part) == [b"a", b"c", b"d"] and part and part.partition is None
    made.divide([(0, part.entries)])
    made.acknowledge()
    assert made.idle and made.sent == 4


def test_report_is_sent_first_and_not_counted() -> None:
    made = backlog(b"a")
    made.drop("why", 3)
    made.offer_report(entry(b"report", report=3))
    assert values(made.take(1)) == [b"report", b"a"]
    made.acknowledge()
    assert (made.sent, made.reported, made.report_waits) == (1, 3, False)


def test_dropped_report_can_be_offered_again() -> None:
    made = backlog()
    made.drop("why", 3)
    for _ in range(2):
        made.offer_report(entry(b"report", report=3))
        assert made.take(1)
        made.refuse("why")
    assert (made.drops, made.reported) == (3, 0)


def test_closed_backlog_drops_what_waits_and_every_offer() -> None:
    made = backlog(b"a", b"b", batch=1)
    assert made.take(0)
    made.close()
    made.offer(entry(b"c"))
    assert made.dropped == {CLOSED: 3} and made.idle and made.waiting == 0
