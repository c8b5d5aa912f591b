"""Read a task's range: from the leader's files where they are on this machine, else over the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from odradek.pipeline import between_tasks
from odradek.pipeline.decoding import arrow
from odradek.pipeline.decoding.rooms import ROOM, shared
from odradek.pipeline.errors import DataLoss, MissingOffsets, PipelineError, UnknownTopic
from odradek.pipeline.reading import losses, parquet, segments
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.splits import Split
from odradek.pipeline.types import EARLIEST, LATEST, Chunk, Pace, Range
from odradek.pipeline.wire import fetching
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.holes import Holes

log = logging.getLogger(__name__)


def read(options: ReadOptions, split: Split) -> Iterator[pa.RecordBatch]:
    """The records of a split, in order; with odradek.parquet the files that they were written to.

    DataLoss where some no longer exist, unless failOnDataLoss is false: then a warning says how many.
    """
    between_tasks.spare()
    records = batches(options, split)
    return parquet.write(records, split.span, options.parquet) if options.parquet else records


def batches(
    options: ReadOptions, split: Split, brokers: Brokers | None = None, views: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of a split, in order, in any process; `brokers` as in `wire.fetching`, `views` as in `decoding`."""
    if options.fail_on_data_loss:
        pace = Pace()
        return _records(options, chunks(options, split, split.span, brokers, views, pace), split.span, views, pace)
    return _what_is_left(options, split)


def _records(
    options: ReadOptions, chunks: Iterable[Chunk], span: Range, views: bool = False, pace: Pace | None = None
) -> Iterator[pa.RecordBatch]:
    check_crcs = options.kafka.get("check.crcs", "true").lower() != "false"
    return arrow.batches(chunks, span, options.columns, check_crcs=check_crcs, views=views, pace=pace)


def chunks(
    options: ReadOptions,
    split: Split,
    rest: Range,
    brokers: Brokers | None = None,
    kept: bool = False,
    pace: Pace | None = None,
) -> Iterator[Chunk]:
    """Whole batches with the offsets of `rest`, a part of the split; over the wire by `brokers`, if there are any.

    `kept`: each chunk has memory of its own. `pace`: as in `segments.read`.
    """
    with Holes(options.kafka, rest, options.compacted, options.fail_on_data_loss) as holes:
        if not _is_here(options, split):
            found = fetching.read(options.kafka, rest, options.committed, holes, split.topic_id, brokers)
            yield from _copies(found) if kept else found
            return
        assert split.location is not None
        try:
            yield from segments.read(split.location.place.directory, rest, options.committed, holes, kept, pace)
        except segments.NotLocal as why:
            found = _from_leader(options, split, replace(rest, start=why.offset), holes, why)
            yield from _copies(found) if kept else found


def _copies(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Large ones in memory that is used again when the last array of a chunk is gone; a room for less is a waste."""
    rooms = shared()
    for chunk in chunks:
        size = len(chunk.data)
        room = rooms.take(size)[:size] if 2 * size >= ROOM else np.empty(size, np.uint8)
        room[:] = np.frombuffer(chunk.data, np.uint8)
        yield chunk._replace(data=room.data)


def _from_leader(
    options: ReadOptions, split: Split, rest: Range, holes: Holes, why: segments.NotLocal
) -> Iterator[Chunk]:
    """The rest after the files failed: if the leader fails too, the error has both reasons."""
    log.info("%s: over the wire", why)
    holes.damaged = why.damaged
    try:
        yield from fetching.read(options.kafka, rest, options.committed, holes, split.topic_id)
    except MissingOffsets as missing:
        raise MissingOffsets(f"{missing}; {why}") from None


def _is_here(options: ReadOptions, split: Split) -> bool:
    location = split.location
    here = location is not None and segments.usable(
        location.place, location.cluster_id, location.leader.broker, split.topic_id
    )
    if options.local == "only" and not here:
        raise PipelineError(
            f"{split.span.topic}-{split.span.partition}: this user cannot read the leader's files on this machine: "
            "leave out odradek.local=only to read over the network"
        )
    return here


class _UntilLoss:
    """Chunks that end at a loss without an error: what was read before it is complete."""

    def __init__(self, chunks: Iterator[Chunk], start: int) -> None:
        self._chunks = chunks
        self.until = start  # the offset after the last chunk
        self.why: PipelineError | None = None

    def __iter__(self) -> Iterator[Chunk]:
        try:
            for chunk in self._chunks:
                yield chunk
                self.until = chunk.until
        except (DataLoss, UnknownTopic) as why:
            self.why = why


def _what_is_left(options: ReadOptions, split: Split) -> Iterator[pa.RecordBatch]:
    """All of the split that is still readable. A batch may begin before the log does, so each rest is cut again."""
    rest: Range | None = split.span
    while rest is not None:
        left = _UntilLoss(chunks(options, split, rest), rest.start)
        yield from _records(options, left, rest)
        rest = _after_a_loss(options, replace(rest, start=left.until), left.why) if left.why else None


def _after_a_loss(options: ReadOptions, rest: Range, why: PipelineError) -> Range | None:
    """What of `rest` is readable now; raises `why` again if that is all of it."""
    found = _still_there(options, rest)
    if found == rest:
        raise why
    lost = rest.size - (found.size if found else 0)
    log.warning("%s: up to %d offsets are left out (failOnDataLoss=false)", why, lost)
    return found


def _still_there(options: ReadOptions, rest: Range) -> Range | None:
    try:
        with Brokers(options.kafka) as brokers:
            first, last = (brokers.offsets([rest.key], at) for at in (EARLIEST, LATEST))
    except UnknownTopic:
        return None
    kept, _ = losses.within([rest], first, last)
    return kept[0] if kept else None
