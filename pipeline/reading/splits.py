"""Pieces of partitions that are read one by one, in tasks or threads, each with the location of its leader's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.reading import planning
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import NO_ID, Leader, Partition, Range, ReplicaPlace
from odradek.pipeline.wire.brokers import Brokers

STREAM_RECORDS = 1_000_000  # the most of a stream's batch in one task, unless maxRecordsPerPartition is set

Offsets = Mapping[Partition, int]
Places = dict[Partition, ReplicaPlace]
Leaders = Mapping[Partition, Leader]


class LeaderLocation(NamedTuple):
    """Where a partition's leader stores it; the task finds out whether that is this machine."""

    place: ReplicaPlace
    leader: Leader
    cluster_id: str


@dataclass(frozen=True)
class Split:
    """A range for one task. `location` is None where the leader does not tell, or the options do not need it.

    `topic_id`, as in `Leader`, is that of the topic whose offsets were planned: another topic of that name is not read.
    """

    span: Range
    location: LeaderLocation | None
    topic_id: bytes


def of_batch(
    brokers: Brokers, ranges: Sequence[Range], first: Offsets, last: Offsets, options: ReadOptions
) -> list[Split]:
    """The ranges cut by the options, large ones by bytes: their shares of logs from `first` to `last`."""
    places = _places(brokers, ranges)
    sizes = planning.weigh(ranges, {key: place.bytes for key, place in places.items()}, first, last)
    pieces = planning.split(ranges, sizes, options.min_partitions, options.split_bytes, options.max_records)
    return _with_locations(brokers, pieces, places if options.local != "off" else {})


def of_stream(brokers: Brokers, wanted: Sequence[Range], left: Sequence[Range], options: ReadOptions) -> list[Split]:
    """The ranges `wanted` cut by offsets alone; each piece keeps what is `left` of it, which may be nothing.

    A batch that is done again must be cut the same way, because a duplicate is recognised by its task and position
    (`writing.stamps`, `writing.transactions`). A log's size in bytes changes, and so does its first offset.
    """
    most = options.max_records or STREAM_RECORDS
    pieces = planning.split(wanted, {}, options.min_partitions, options.split_bytes, most)
    return _with_locations(
        brokers, _left_of(pieces, left), _places(brokers, left) if options.local != "off" and left else {}
    )


def _left_of(pieces: Sequence[Range], left: Sequence[Range]) -> list[Range]:
    """As many pieces as before; a log loses its oldest offsets."""
    begins = {each.key: each.start for each in left}
    return [
        replace(piece, start=min(max(piece.start, begins.get(piece.key, piece.end)), piece.end)) for piece in pieces
    ]


def _with_locations(brokers: Brokers, pieces: Sequence[Range], places: Places) -> list[Split]:
    leaders = brokers.leaders_of([each.key for each in pieces if each.size > 0])
    locations = _locations(brokers, places, leaders) if places else {}
    ids = {key: leader.topic_id for key, leader in leaders.items()}
    return [Split(piece, locations.get(piece.key), ids.get(piece.key, NO_ID)) for piece in pieces]


def _places(brokers: Brokers, ranges: Sequence[Range]) -> Places:
    """The leader may refuse to tell (KIP-113 requires a permission): then sizes are unknown."""
    try:
        return brokers.places([each.key for each in ranges])
    except PipelineError:
        return {}


def _locations(brokers: Brokers, places: Places, leaders: Leaders) -> dict[Partition, LeaderLocation]:
    cluster_id = brokers.cluster_id
    return {key: LeaderLocation(place, leaders[key], cluster_id) for key, place in places.items() if key in leaders}
