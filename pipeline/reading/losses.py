"""Lost input: deleted partitions, offsets that were removed or that went back (failOnDataLoss)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.pipeline.errors import DataLoss
from odradek.pipeline.reading.offsets import names
from odradek.pipeline.types import Partition, Range

Offsets = Mapping[Partition, int]
_MOST_NAMED = 10  # the most losses that an error names


class Loss(NamedTuple):
    """The loss in one partition: a line that names the offsets, and their number, 0 where it is unknown."""

    text: str
    offsets: int


Found = tuple[list[Range], list[Loss]]


def between(start: Offsets, end: Offsets, first: Offsets) -> Found:
    """The ranges between two offsets of a stream, and the losses in them.

    `first` has the current first offsets of the partitions that exist. A partition missing in `start` is new and is
    read from its first offset; one missing in `end` was deleted.
    """
    ranges, losses = (
        [],
        [
            Loss(f"{names([key])} was deleted; it had been read up to offset {start[key]}", 0)
            for key in _gone(start, end)
        ],
    )
    for key in sorted(end):
        found, lost = _step(key, start.get(key), end[key], first.get(key))
        ranges += found
        losses += lost
    return ranges, losses


def within(ranges: Iterable[Range], first: Offsets, last: Offsets) -> Found:
    """The parts of `ranges` that the logs have, which begin at `first` and end at `last`, and the losses."""
    kept, losses = [], []
    for each in ranges:
        found, lost = _after(each, first[each.key])
        if found and found[0].end > last[each.key]:
            found, beyond = _before(found[0], last[each.key])
            lost = lost + beyond
        kept += found
        losses += lost
    return kept, losses


def report(losses: Sequence[Loss], fail: bool) -> int:
    """The number of lost offsets, as far as known; raises DataLoss instead when there is a loss and `fail` is set."""
    if losses and fail:
        named = "; ".join(loss.text for loss in losses[:_MOST_NAMED])
        more = f"; and {len(losses) - _MOST_NAMED} more" if len(losses) > _MOST_NAMED else ""
        raise DataLoss(f"{named}{more} (with failOnDataLoss=false the query continues without them)")
    return sum(loss.offsets for loss in losses)


def _gone(start: Offsets, end: Offsets) -> list[Partition]:
    return sorted(start.keys() - end.keys())


def _step(key: Partition, start: int | None, end: int, first: int | None) -> Found:
    """One partition from `start` (None: it is new) to `end`; `first` is None when it no longer exists."""
    begin = start or 0
    if end < begin:
        unread = 0 if first is None else max(0, end - first)
        return [], [Loss(f"{names([key])} was read up to offset {begin} and now ends at {end}", unread)]
    if first is None and end > begin:
        return [], [Loss(f"{names([key])} was deleted before its offsets {begin} to {end - 1} were read", end - begin)]
    return _after(Range(*key, begin, end), first or 0)


def _after(wanted: Range, first: int) -> Found:
    """A range without the part before the log's first offset."""
    if wanted.start >= min(first, wanted.end):
        return ([wanted] if wanted.size > 0 else []), []
    until = min(first, wanted.end)
    text = f"{names([wanted.key])}: offsets {wanted.start} to {until - 1} are gone; the log starts at {first}"
    rest = Range(*wanted.key, until, wanted.end)
    return ([rest] if rest.size > 0 else []), [Loss(text, until - wanted.start)]


def _before(wanted: Range, last: int) -> Found:
    """A range that reaches beyond the log's end, without that part."""
    since = max(last, wanted.start)
    text = f"{names([wanted.key])}: offsets {since} to {wanted.end - 1} do not exist; the log ends at {last}"
    rest = Range(*wanted.key, wanted.start, since)
    return ([rest] if rest.size > 0 else []), [Loss(text, wanted.end - since)]
