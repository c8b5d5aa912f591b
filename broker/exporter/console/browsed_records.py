"""Takes fetched batches and keeps the records that a reader asked for. Pure; bounded by records and by bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek.broker.exporter.console import decoding
from odradek.broker.exporter.console.avro import Schemas
from odradek.protocol.batch import CONTROL, ENTRY, MAGIC_AT
from odradek.protocol.records import batch_v2, convert, message_sets
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

UNPACKED = 16 << 20  # bytes of one batch
READ = 20_000  # records that one request looks at
HEADERS = 20  # of a record that are shown
_HEADER_SHOWN = 256  # characters


@dataclass
class Browsed:
    """The records from `offset` on, at most `limit`, whose key as text contains `key`. `offset` grows with them."""

    offset: int
    limit: int
    key: str = ""
    form: str = decoding.AUTO
    schemas: Schemas | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    looked_at: int = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be fetched for it."""
        return len(self.rows) >= self.limit or self.looked_at >= READ

    def feed(self, data: bytes) -> None:
        """Take what one Fetch returned; what cannot be read is skipped, with a line that says why."""
        try:
            for batch in convert.split(data):
                if self.is_full:
                    return
                self._feed(bytes(batch))
        except RecordError as error:
            self.skipped.append(f"from offset {self.offset} on: {error}")
            self.looked_at = READ

    def _feed(self, batch: bytes) -> None:
        last = _last_offset(batch)
        try:
            for record in _records(batch):
                if self.is_full:
                    return
                self._take(record)
        except RecordError as error:
            self.skipped.append(f"offsets {self.offset} to {last}: {error}")
        self.offset = max(self.offset, last + 1)

    def _take(self, record: Record) -> None:
        offset, timestamp, key, value, headers = record
        if offset < self.offset:
            return
        self.offset = offset + 1
        self.looked_at += 1
        if self.key and self.key not in (key or b"").decode("utf-8", "replace"):
            return
        self.rows.append(
            {
                "offset": offset,
                "timestamp": timestamp,
                "key": decoding.shown(key, self.form, self.schemas),
                "value": decoding.shown(value, self.form, self.schemas),
                "headers": [_header(name, data) for name, data in headers[:HEADERS]],
                "more_headers": max(0, len(headers) - HEADERS),
            }
        )


def _header(name: bytes, data: bytes | None) -> dict[str, str | None]:
    shown = decoding.shown(data)
    value = None if shown is None else str(shown["text"])[:_HEADER_SHOWN]
    return {"name": name.decode("utf-8", "replace")[:_HEADER_SHOWN], "value": value}


def _last_offset(batch: bytes) -> int:
    if batch[MAGIC_AT] == 2:
        return batch_v2.header(batch).last_offset
    return int(ENTRY.unpack_from(batch)[0])  # a compressed message has the offset of the last one in it


def _records(batch: bytes) -> Iterator[Record]:
    """Without control records, which are no client's."""
    if batch[MAGIC_AT] != 2:
        return message_sets.iterate(batch, UNPACKED)
    return iter(()) if batch_v2.header(batch).attributes & CONTROL else batch_v2.iterate(batch, UNPACKED)
