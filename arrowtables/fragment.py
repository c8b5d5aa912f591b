"""A part of a topic's range that is read on its own, in this process or another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from odradek.arrowtables.client import own_words
from odradek.arrowtables.forms import Decoding, Form, Rows, unreadable
from odradek.arrowtables.in_order import in_order
from odradek.pipeline.reading import tasks
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.splits import Split
from odradek.pipeline.wire.brokers import Brokers

Dead = Callable[[pa.RecordBatch], object]
"""Takes records that cannot be decoded."""


@dataclass(frozen=True)
class Fragment:
    """The offsets [start, end) of one partition. Plain data, also when pickled: with passwords, if there are any."""

    split: Split
    options: ReadOptions = field(repr=False)
    names: tuple[str, ...]
    forms: Mapping[str, Form] = field(default_factory=dict)
    views: bool = False

    @property
    def topic(self) -> str:
        """The topic."""
        return self.split.span.topic

    @property
    def partition(self) -> int:
        """The partition."""
        return self.split.span.partition

    @property
    def start(self) -> int:
        """The first offset."""
        return self.split.span.start

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.split.span.end

    @property
    def schema(self) -> pa.Schema:
        """Of what `read` returns."""
        return Decoding(self.forms, self.names, self.views).schema()

    def read(self, dead: Dead | None = None) -> pa.RecordBatchReader:
        """Its records, in order of offsets; `dead` as in `read`. Reads in the thread of the caller."""
        return pa.RecordBatchReader.from_batches(self.schema, batches([self], 1, 0, dead))

    def rows(self, brokers: Brokers | None = None) -> Iterator[Rows]:
        """The same, and with each batch the records that cannot be decoded. PipelineError.

        It connects for itself unless it gets `brokers`, for this thread alone.
        """
        decoding = Decoding(self.forms, self.names, self.views)
        for batch in tasks.batches(self.options, self.split, brokers, self.views):
            yield decoding.rows(batch)


def batches(
    fragments: Sequence[Fragment], threads: int, memory: int, dead: Dead | None, brokers: Brokers | None = None
) -> Iterator[pa.RecordBatch]:
    """All fragments, one after the other, with some of them read ahead on threads; one alone uses `brokers`.

    They have the same settings, and each thread its connections.
    """
    if not fragments:
        return
    kafka = fragments[0].options.kafka
    each = partial(Brokers, kafka) if brokers is None or len(fragments) > 1 else partial(nullcontext, brokers)
    with own_words():
        for rows in in_order([one.rows for one in fragments], threads, memory, each):
            if rows.dead is not None:
                _hand_over(fragments[0].topic, rows.dead, dead)
            if rows.good.num_rows:
                yield rows.good


def _hand_over(topic: str, rows: pa.RecordBatch, dead: Dead | None) -> None:
    if dead is None:
        raise unreadable(topic, rows)
    dead(rows)
