"""What the driver hands to tasks: pieces of partitions, each with where its leader keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.pipeline import planning
from odradek.pipeline.brokers import Brokers
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.types import EARLIEST, LATEST, Leader, Place, Range
from pyspark.sql.datasource import InputPartition


class Home(NamedTuple):
    """Where a partition's leader keeps it; whether that is this machine is for the task to find out."""

    place: Place
    leader: Leader
    cluster_id: str


class Split(InputPartition):
    """A range for one task. `home` is None where the leader does not tell, or nobody wants to know."""

    def __init__(self, span: Range, home: Home | None) -> None:
        super().__init__(span)
        self.span = span
        self.home = home


def make(brokers: Brokers, ranges: Sequence[Range], options: ReadOptions) -> list[InputPartition]:
    """The ranges cut as the options want it, large ones by their bytes."""
    if not ranges:
        return []
    keys = [each.key for each in ranges]
    places = _places(brokers, ranges)
    first, last = brokers.offsets(keys, EARLIEST), brokers.offsets(keys, LATEST)
    sizes = planning.weigh(ranges, {key: place.bytes for key, place in places.items()}, first, last)
    pieces = planning.split(ranges, sizes, options.min_partitions, options.split_bytes, options.max_records)
    homes = _homes(brokers, places) if options.local != "off" else {}
    return [Split(piece, homes.get(piece.key)) for piece in pieces]


def _places(brokers: Brokers, ranges: Sequence[Range]) -> dict[tuple[str, int], Place]:
    """Not telling is the leader's right (KIP-113 wants a permission for it): then sizes are not known."""
    try:
        return brokers.places([each.key for each in ranges])
    except PipelineError:
        return {}


def _homes(brokers: Brokers, places: dict[tuple[str, int], Place]) -> dict[tuple[str, int], Home]:
    leaders, cluster_id = brokers.leaders_of(places), brokers.cluster_id
    return {key: Home(place, leaders[key], cluster_id) for key, place in places.items()}
