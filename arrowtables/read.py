"""A range of a topic: as one reader of record batches, or as fragments."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from odradek.arrowtables import client, forms, request
from odradek.arrowtables.forms import Decoding
from odradek.arrowtables.fragment import Dead, Fragment, batches
from odradek.arrowtables.request import Positions
from odradek.pipeline.reading import bounded
from odradek.pipeline.wire.brokers import Brokers

MEMORY = 256 << 20
SPLIT = 32 << 20  # bytes on disk of what one thread reads; several of these, unpacked, fit into MEMORY
FRAGMENT = 128 << 20
MOST_RECORDS = 1_000_000  # of a fragment: where the broker does not tell sizes in bytes only this cuts
MOST_THREADS = 8


def read(
    topic: str,
    start: Positions = "earliest",
    end: Positions = "latest",
    columns: Sequence[str] | None = None,
    schema: object = None,
    *,
    bootstrap_servers: str | Sequence[str],
    partitions: Collection[int] | None = None,
    isolation: str = "read_committed",
    local: str = "auto",
    compacted: bool | None = None,
    dead: Dead | None = None,
    views: bool = False,
    threads: int | None = None,
    memory: int = MEMORY,
    **settings: Any,
) -> pa.RecordBatchReader:
    """The records from `start` up to `end`, that one excluded, that exist now: by partition, then by offset.

    Asks the brokers for the range at once, and reads when the reader is read. A wrong argument raises OptionError, a
    topic that does not exist UnknownTopic, and offsets that do not exist, or no longer, DataLoss; all are
    PipelineErrors. `dead` is called with records that `schema` cannot decode; without it they raise Unreadable.
    With `views` keys and values are of type `binary_view`, and refer to the memory into which files were read.
    """
    threads = usable_cores() if threads is None else threads
    request.check_numbers(threads=threads, memory=memory)
    decoding = Decoding(forms.forms(schema), request.columns(columns), views)
    found = fragments(
        topic,
        start,
        end,
        columns,
        schema,
        bootstrap_servers=bootstrap_servers,
        partitions=partitions,
        isolation=isolation,
        local=local,
        compacted=compacted,
        split_bytes=SPLIT,
        views=views,
        **settings,
    )
    return pa.RecordBatchReader.from_batches(decoding.schema(), batches(found, threads, memory, dead))


def usable_cores() -> int:
    """Threads where none are asked for."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


def fragments(
    topic: str,
    start: Positions = "earliest",
    end: Positions = "latest",
    columns: Sequence[str] | None = None,
    schema: object = None,
    *,
    bootstrap_servers: str | Sequence[str],
    partitions: Collection[int] | None = None,
    isolation: str = "read_committed",
    local: str = "auto",
    compacted: bool | None = None,
    split_bytes: int = FRAGMENT,
    views: bool = False,
    **settings: Any,
) -> list[Fragment]:
    """The same range as fragments of about `split_bytes` on the broker's disk; [] where it has no offsets."""
    with client.own_words():
        options = request.options(
            topic,
            start,
            end,
            servers=bootstrap_servers,
            partitions=partitions,
            isolation=isolation,
            local=local,
            compacted=compacted,
            split_bytes=split_bytes,
            settings=settings,
        )
        names, decoded = request.columns(columns), forms.forms(schema)
        request.check_views(views, decoded)
        options = replace(options, columns=Decoding(decoded, names).reads, max_records=MOST_RECORDS)
        with Brokers(options.kafka) as brokers:
            client.reach(brokers)
            with brokers.steady():
                return [Fragment(split, options, names, decoded, views) for split in bounded.planned(brokers, options)]
