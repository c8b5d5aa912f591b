"""Plan the offset ranges of a batch and their pieces: arithmetic on offsets that the caller has listed.

A stream goes from one map of end offsets to the next. The rules are those of Spark's Kafka source, with two
exceptions: small partitions cannot push a batch over the limit, and minPartitions is reached wherever there are enough
offsets.
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
    """The number of offsets in between; a partition missing in `start` counts from 0."""
    return sum(max(0, offset - start.get(key, 0)) for key, offset in end.items())


def delayed(waiting: int, least: int | None, waited_ms: float | None, max_delay_ms: int) -> bool:
    """Whether a batch of `waiting` offsets waits for more: minOffsetsPerTrigger and maxTriggerDelay.

    `waited_ms` is the time since the last batch, None before the first one, which never waits.
    """
    return least is not None and waited_ms is not None and waited_ms < max_delay_ms and waiting < least


def limited(start: Offsets, available: Offsets, most: int | None) -> dict[Partition, int]:
    """The ends of a batch of at most `most` offsets, shared in proportion to what waits in each partition.

    Each partition with data gets at least one, so that none starves: the batch exceeds `most` only if there are more
    partitions than that. Give new partitions their first offset in `start`; without one, or when the end went back, a
    partition goes to its end in one step, and `losses.between` reports it.
    """
    sizes = {key: end - start[key] for key, end in available.items() if end > start.get(key, end)}
    if most is None or sum(sizes.values()) <= most:
        return dict(available)
    shares = _shares(sizes, most)
    return {key: start[key] + shares[key] if key in shares else end for key, end in available.items()}


def _shares(sizes: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """`most` shared in proportion, rounded down; partitions whose share is below one get one, before the others."""
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
    """The ranges of a batch query; both maps have the same partitions. OptionError where a start is after its end."""
    for key, first in start.items():
        if first > end[key]:
            raise OptionError(f"{names([key])}: the start {first} is after the end {end[key]}")
    return _ranges(start, end)


def stream(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges of a stream's batch; a partition missing in `start` is new, and counts from 0."""
    return _ranges({key: start.get(key, 0) for key in end}, end)


def split(
    ranges: Sequence[Range],
    sizes: Mapping[Partition, int],
    min_partitions: int | None,
    split_bytes: int,
    max_records: int | None,
) -> list[Range]:
    """Cut so that no piece has more than `max_records` offsets or about `split_bytes`.

    While there are fewer than `min_partitions` pieces, the range with the largest pieces is cut further. `sizes` are
    the ranges' bytes (see `weigh`); one of unknown size is not cut by bytes. No piece is empty.
    """
    ranges = [each for each in ranges if each.size > 0]
    parts = [_parts(each, sizes.get(each.key, 0), split_bytes, max_records) for each in ranges]
    _add_parts(ranges, parts, min_partitions or 0)
    return [piece for each, count in zip(ranges, parts, strict=True) for piece in _cut(each, count)]


def _parts(whole: Range, size: int, split_bytes: int, max_records: int | None) -> int:
    by_records = -(-whole.size // max_records) if max_records else 1
    return max(1, min(whole.size, max(by_records, -(-size // split_bytes))))


def _add_parts(ranges: Sequence[Range], parts: list[int], wanted: int) -> None:
    """Add one part to the range with the largest parts, as often as needed."""
    heap = [(-each.size / count, i) for i, (each, count) in enumerate(zip(ranges, parts, strict=True))]
    heapq.heapify(heap)
    for _ in range(min(wanted, sum(each.size for each in ranges)) - sum(parts)):
        i = heap[0][1]
        parts[i] += 1
        heapq.heapreplace(heap, (-ranges[i].size / parts[i], i))


def _cut(whole: Range, count: int) -> Iterator[Range]:
    """`count` pieces whose sizes differ by at most one."""
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    for start, end in pairwise(edges):
        yield Range(whole.topic, whole.partition, start, end)


def weigh(ranges: Iterable[Range], on_disk: Mapping[Partition, int], first: Offsets, last: Offsets) -> Offsets:
    """The approximate bytes of each range, by its share of the offsets that the log has now."""
    return {
        each.key: on_disk[each.key] * each.size // (last[each.key] - first[each.key])
        for each in ranges
        if each.key in on_disk and first[each.key] < last[each.key]
    }


def _ranges(start: Offsets, end: Offsets) -> list[Range]:
    return [Range(*key, start[key], end[key]) for key in sorted(end) if end[key] > start[key]]
