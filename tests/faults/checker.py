"""Compares acknowledged records with the records that readers find; fault tests use it.

A record is named by (producer, partition, number); numbers rise by one for each record that a producer sends to a
partition, and the record itself carries its name. A producer that is not idempotent sends each record once, so its
records must not be duplicated either; a record without an answer may be missing, or be stored late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Found(NamedTuple):
    """A record that a reader found."""

    offset: int
    producer: int
    number: int
    key: bytes


Log = dict[int, list[Found]]  # partition → its records in the order of reading


@dataclass
class History:
    """Records that one producer sent, by partition, and the offsets of those that were acknowledged."""

    producer: int
    idempotent: bool
    sent: dict[int, int] = field(default_factory=dict)
    acked: dict[int, dict[int, int]] = field(default_factory=dict)  # partition → number → offset
    refused: dict[int, set[int]] = field(default_factory=dict)  # not sent again, so they must not be stored

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.acked.values()))


def key_of(producer: int, number: int) -> bytes:
    """The key that the record of this name must have."""
    return b"key-%d" % ((producer * 31 + number) % 17)


def faults(histories: list[History], log: Log, tails: list[Log], *, trimmed: bool = False) -> list[str]:
    """All faults, in words; [] if there are none.

    `log` was read from the start after the test, `tails` during it. `trimmed`: retention has removed the oldest
    records, so the log need not begin at offset 0.
    """
    found = list(_holes(log, trimmed))
    found += _strangers(histories, log)
    for history in histories:
        for partition in history.sent:
            found += _kept(history, partition, log.get(partition, []))
    for number, tail in enumerate(tails):
        found += _same(number, tail, log)
    return found


def _holes(log: Log, trimmed: bool) -> Iterator[str]:
    for partition, rows in log.items():
        if rows and rows[0].offset and not trimmed:
            yield f"hole: partition {partition} begins at offset {rows[0].offset}"
        for before, after in pairwise(rows):
            if after.offset != before.offset + 1:
                yield f"hole: partition {partition}: offset {after.offset} follows {before.offset}"


def _strangers(histories: list[History], log: Log) -> Iterator[str]:
    """Records that no client sent, or whose bytes differ from those sent."""
    sent = {(one.producer, partition): count for one in histories for partition, count in one.sent.items()}
    for partition, rows in log.items():
        for row in rows:
            if not 0 <= row.number < sent.get((row.producer, partition), 0):
                yield f"stranger: partition {partition} has {row}, which no client sent"
            elif row.key != key_of(row.producer, row.number):
                yield f"stranger: partition {partition} has {row}, with another record's key"


def _kept(history: History, partition: int, rows: list[Found]) -> Iterator[str]:
    mine = [row for row in rows if row.producer == history.producer]
    acked = history.acked.get(partition, {})
    start = rows[0].offset if rows else 0
    yield from _doubled(partition, mine)
    yield from _lost(partition, acked, mine, start)
    yield from _order(history, partition, mine)
    for row in mine:
        if row.number in history.refused.get(partition, ()):
            yield f"refused: partition {partition} has {row}, which was answered with an error"


def _doubled(partition: int, mine: list[Found]) -> Iterator[str]:
    first: dict[int, int] = {}
    for row in mine:
        if first.setdefault(row.number, row.offset) != row.offset:
            yield f"doubled: partition {partition}: {row} was at offset {first[row.number]} already"


def _lost(partition: int, acked: dict[int, int], mine: list[Found], start: int) -> Iterator[str]:
    where = {row.number: row.offset for row in reversed(mine)}
    for number, offset in acked.items():
        if offset < start:
            continue  # retention has removed it
        if number not in where:
            yield f"lost: partition {partition}: record {number}, acknowledged at offset {offset}"
        elif where[number] != offset:
            yield f"moved: partition {partition}: record {number}, acknowledged at {offset}, is at {where[number]}"


def _order(history: History, partition: int, mine: list[Found]) -> Iterator[str]:
    """Idempotent: all numbers in order. Else only acknowledged numbers rise; the others may be stored late."""
    acked = history.acked.get(partition, {})
    counted = mine if history.idempotent else [row for row in mine if row.number in acked]
    for before, after in pairwise(counted):
        if after.number < before.number:
            yield f"reordered: partition {partition}: {after} comes after number {before.number}"
        elif history.idempotent and after.number > before.number + 1:
            yield f"gap: partition {partition}: {after} comes right after number {before.number}"


def _same(name: int, tail: Log, log: Log) -> Iterator[str]:
    """A tail has skipped no record, and every record that it has seen is still stored."""
    for partition, seen in tail.items():
        by_offset = {row.offset: row for row in log.get(partition, [])}
        start = min(by_offset, default=0)
        for before, after in pairwise(seen):
            if after.offset != before.offset + 1:
                yield f"skipped: tail {name} of partition {partition}: offset {after.offset} after {before.offset}"
        for row in seen:
            if row.offset >= start and by_offset.get(row.offset) != row:
                yield f"vanished: tail {name} of partition {partition} saw {row}, now {by_offset.get(row.offset)}"
