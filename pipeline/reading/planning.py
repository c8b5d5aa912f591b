"""Which offsets a batch reads and in how many pieces: arithmetic over offsets that others have asked for.

A stream goes from one map of ends to the next. Rules are those of Spark's Kafka source, but two: a limit is kept
also where small partitions would push it over, and minPartitions is reached wherever there are offsets enough.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading.offsets import names
from odradek.pipeline.types import Partition, Range

Offsets = Mapping[Partition, int]


def pending(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between; a partition that is not in `start` counts from 0."""
    return sum(max(0, offset - start.get(key, 0)) for key, offset in end.items())


def delayed(waiting: int, least: int | None, waited_ms: float | None, max_delay_ms: int) -> bool:
    """Whether a batch of `waiting` offsets waits for more: minOffsetsPerTrigger and maxTriggerDelay.

    `waited_ms` is the time since the last batch that went, None before the first, which never waits.
    """
    return least is not None and waited_ms is not None and waited_ms < max_delay_ms and waiting < least


def limited(start: Offsets, available: Offsets, most: int | None) -> dict[Partition, int]:
    """The ends of a batch of at most `most` offsets, shared out by what waits in each partition.

    Each partition with data gets one at least, lest it starve: more than `most` only where they are more. Give new
    ones their first offset in `start`; without, or when its end went back, a partition goes to its end in one step,
    and `losses.between` has the word on it.
    """
    sizes = {key: end - start[key] for key, end in available.items() if end > start.get(key, end)}
    if most is None or sum(sizes.values()) <= most:
        return dict(available)
    shares = _shares(sizes, most)
    return {key: start[key] + shares[key] if key in shares else end for key, end in available.items()}


def _shares(sizes: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """`most` shared in proportion, rounded down; those whose share is less than one get one, before the others."""
    shares: dict[Partition, int] = {}
    while small := _smaller_than_one(sizes, most):
        shares.update(dict.fromkeys(small, 1))
        sizes = {key: size for key, size in sizes.items() if key not in shares}
        most -= len(small)
    total = sum(sizes.values())
    return shares | {key: most * size // total for key, size in sizes.items()}


def _smaller_than_one(sizes: Mapping[Partition, int], most: int) -> list[Partition]:
    total = sum(sizes.values())
    return [key for key, size in sizes.items() if most * size < total]


def batch(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges of a batch query; both maps have the same partitions. OptionError where they are backwards."""
    for key, first in start.items():
        if first > end[key]:
            raise OptionError(f"{names([key])}: the start {first} is after the end {end[key]}")
    return _ranges(start, end)


def stream(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges of a stream's batch; a partition that is not in `start` is new, and counts from 0."""
    return _ranges({key: start.get(key, 0) for key in end}, end)


def split(
    ranges: Sequence[Range],
    sizes: Mapping[Partition, int],
    min_partitions: int | None,
    split_bytes: int,
    max_records: int | None,
) -> list[Range]:
    """Cut so that no piece has more than `max_records` offsets or about `split_bytes`.

    While there are fewer than `min_partitions`, the range with the largest pieces is cut further. `sizes` are the
    ranges' bytes (see `weigh`); one of unknown size is not cut for its bytes. No piece is empty.
    """
    ranges = [each for each in ranges if each.size > 0]
    parts = [_parts(each, sizes.get(each.key, 0), split_bytes, max_records) for each in ranges]
    _add_parts(ranges, parts, min_partitions or 0)
    return [piece for each, count in zip(ranges, parts, strict=True) for piece in _cut(each, count)]


def _parts(whole: Range, size: int, split_bytes: int, max_records: int | None) -> int:
    by_records = -(-whole.size // max_records) if max_records else 1
    return max(1, min(whole.size, max(by_records, -(-size // split_bytes))))


def _add_parts(ranges: Sequence[Range], parts: list[int], wanted: int) -> None:
    """One part more to whichever range has the largest ones, as often as needed."""
    heap = [(-each.size / count, i) for i, (each, count) in enumerate(zip(ranges, parts, strict=True))]
    heapq.heapify(heap)
    for _ in range(min(wanted, sum(each.size for each in ranges)) - sum(parts)):
        i = heap[0][1]
        parts[i] += 1
        heapq.heapreplace(heap, (-ranges[i].size / parts[i], i))


def _cut(whole: Range, count: int) -> Iterator[Range]:
    """`count` pieces whose sizes differ by one at most."""
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    for start, end in pairwise(edges):
        yield Range(whole.topic, whole.partition, start, end)


def weigh(ranges: Iterable[Range], on_disk: Mapping[Partition, int], first: Offsets, last: Offsets) -> Offsets:
    """About how many bytes each range has, by its share of the offsets that the log has now."""
    return {
        each.key: on_disk[each.key] * each.size // (last[each.key] - first[each.key])
        for each in ranges
        if each.key in on_disk and first[each.key] < last[each.key]
    }


def _ranges(start: Offsets, end: Offsets) -> list[Range]:
    return [Range(*key, start[key], end[key]) for key in sorted(end) if end[key] > start[key]]
