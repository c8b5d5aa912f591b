"""Filters that Spark pushes into a batch query (PySpark 4.1 and later), as bounds of what is read.

Only filters on topics, partitions, offsets and lower bounds of times are used, and Spark filters all rows again: the
bounds may be looser than a filter, never stricter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from odradek.pipeline.types import Partition, Range
from odradek.protocol.wire import INT64_MAX

_LAST = INT64_MAX
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    """The bounds of the rows to read; None: no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int = _LAST  # the offset behind the last
    since: int = 0  # ms since 1970

    def has(self, partition: Partition) -> bool:
        """Whether rows may be of this partition."""
        topic, index = partition
        return (self.topics is None or topic in self.topics) and (self.partitions is None or index in self.partitions)

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """The parts of `ranges` within the bounds, by partitions and offsets."""
        wanted = [each for each in ranges if self.has(each.key)]
        return _within(replace(each, start=max(each.start, self.first), end=min(each.end, self.end)) for each in wanted)


def since(ranges: Iterable[Range], begins: Mapping[Partition, int | None]) -> list[Range]:
    """The parts of `ranges` from the first late enough record of each partition on; None: it has none."""
    return _within(replace(each, start=max(each.start, _or(begins[each.key], each.end))) for each in ranges)


def _or(offset: int | None, other: int) -> int:
    return other if offset is None else offset


def _within(ranges: Iterable[Range]) -> list[Range]:
    return [each for each in ranges if each.size > 0]


def bounds(filters: Collection[spark.Filter]) -> Bounds:
    """The bounds of all `filters` together; filters without a use here are ignored."""
    found = Bounds()
    for one in filters:
        column = getattr(one, "attribute", ("",))
        narrow = _NARROW.get(column[0]) if len(column) == 1 else None
        if narrow is not None:
            found = narrow(found, one)
    return found


def _topics(found: Bounds, one: spark.Filter) -> Bounds:
    wanted = _values(one, str)
    return found if wanted is None else replace(found, topics=_both(found.topics, wanted))


def _partitions(found: Bounds, one: spark.Filter) -> Bounds:
    wanted = _values(one, int)
    return found if wanted is None else replace(found, partitions=_both(found.partitions, wanted))


def _offsets(found: Bounds, one: spark.Filter) -> Bounds:
    match one:
        case spark.GreaterThan(_, int(value)):
            return replace(found, first=max(found.first, value + 1))
        case spark.GreaterThanOrEqual(_, int(value)):
            return replace(found, first=max(found.first, value))
        case spark.LessThan(_, int(value)):
            return replace(found, end=min(found.end, value))
        case spark.LessThanOrEqual(_, int(value)):
            return replace(found, end=min(found.end, value + 1))
    if wanted := _values(one, int):
        return replace(found, first=max(found.first, min(wanted)), end=min(found.end, max(wanted) + 1))
    return found


def _times(found: Bounds, one: spark.Filter) -> Bounds:
    """All offsets before the first late enough record are too early; offsets after it may have any time."""
    match one:
        case (
            spark.GreaterThan(_, datetime() as value)
            | spark.GreaterThanOrEqual(_, datetime() as value)
            | spark.EqualTo(_, datetime() as value)
            | spark.EqualNullSafe(_, datetime() as value)
        ):
            return replace(found, since=max(found.since, _ms(value)))
    return found


_NARROW: dict[str, Callable[[Bounds, Any], Bounds]] = {
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _times,
}


def _values(one: spark.Filter, kind: type) -> frozenset[Any] | None:
    match one:
        case spark.EqualTo(_, value) | spark.EqualNullSafe(_, value) if isinstance(value, kind):
            return frozenset([value])
        case spark.In(_, values) if all(isinstance(value, kind) for value in values):
            return frozenset(values)
    return None


def _both(found: frozenset[Any] | None, wanted: frozenset[Any]) -> frozenset[Any]:
    return wanted if found is None else found & wanted


def _ms(value: datetime) -> int:
    """Rounded down. A time without a zone is ambiguous, so it gives no bound."""
    return (value - _EPOCH) // timedelta(milliseconds=1) if value.tzinfo else 0
