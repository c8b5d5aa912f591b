"""`odradek dump-log`: the contents of segment files as text, in the format of Kafka's DumpLogSegments.

One function per kind of file, each yielding lines; `Problems` collects inconsistencies, printed at the
end, as in Kafka. Unlike in Kafka, a batch that cannot be decoded does not end the dump.
Reads only, so it may run next to a broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from odradek.protocol.wire import INT32_MAX
from odradek.storage.files import names
from odradek.storage.files.durable import FILES
from odradek.storage.producers.producer_state import read_txn_index
from odradek.storage.producers.snapshots import SnapshotError, read_snapshot
from odradek.storage.segment import index_files
from odradek.storage.segment.index_files import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.segment.scan import Batch, Scan
from odradek.storage.tools.dump_records import RecordDecoder, batch_line, record_lines, text_decoder

NO_LIMIT = INT32_MAX


@dataclass
class Options:
    """The options of DumpLogSegments under its names; sizes in bytes."""

    print_data_log: bool = False
    deep_iteration: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False
    max_message_size: int = 5 << 20
    max_bytes: int = NO_LIMIT
    skip_record_metadata: bool = False
    decoder: RecordDecoder = text_decoder


@dataclass
class Problems:
    """Inconsistencies by heading, in the order found."""

    found: dict[str, list[str]] = field(default_factory=dict)
    fatal: bool = False

    def add(self, heading: str, line: str) -> None:
        self.found.setdefault(heading, []).append(line)

    def lines(self) -> Iterator[str]:
        for heading, lines in self.found.items():
            yield heading
            yield from lines


def dump(path: Path, options: Options, problems: Problems) -> Iterator[str]:
    """The lines for one file, by its suffix. Raises OSError when it (or the log of an index) is missing."""
    yield f"Dumping {path}"
    kind = _KINDS.get(path.suffix)
    base = _base_offset(path)
    if kind is None or base is None:
        problems.add(f"Ignoring unknown file {path}", f"  Known are <20 digits> and {', '.join(_KINDS)}")
        return
    yield from kind(path, base, options, problems)


def _base_offset(path: Path) -> int | None:
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() else None


# --- logs ---


def dump_log(path: Path, base: int, options: Options, problems: Problems) -> Iterator[str]:
    yield f"Log starting offset: {base}"
    deep = options.deep_iteration or options.print_data_log
    last = [-1]
    with FILES.opened(path, os.O_RDONLY) as fd:
        size = os.fstat(fd).st_size
        scan = Scan(fd, 0, min(size, options.max_bytes), check=False)
        for batch in scan:
            payload = scan.payload()
            yield batch_line(batch, payload)
            if deep:
                yield from _records(path, batch, payload, options, problems, last)
    if size > scan.position and options.max_bytes == NO_LIMIT:
        yield f"Found {size - scan.position} invalid bytes at the end of {path.name}"


def _records(
    path: Path, batch: Batch, payload: bytes, options: Options, problems: Problems, last: list[int]
) -> Iterator[str]:
    decoder = options.decoder if options.print_data_log else None
    for offset, line in record_lines(batch, payload, decoder, with_metadata=not options.skip_record_metadata):
        if offset is None:
            problems.add(f"Unreadable records in {path}", f"  {line}")
            continue
        if last[0] >= 0 and offset != last[0] + 1:
            problems.add(f"Non-consecutive offsets in {path}", f"  {last[0]} is followed by {offset}")
        last[0] = offset
        yield line


# --- indexes ---


def dump_index(path: Path, base: int, options: Options, problems: Problems) -> Iterator[str]:
    entries = index_files.read_offset_index(path, base)
    if not os.stat(path).st_size:
        yield f"{path} is empty."
        return
    if options.index_sanity_check:
        yield from _sanity(path, OFFSET_ENTRY.size, bool(entries) and entries[-1].offset < base, problems)
        return
    with FILES.opened(path.with_suffix(names.LOG), os.O_RDONLY) as fd:
        for offset, position in entries:
            batch = next(iter(Scan(fd, position, check=False)), None)
            if batch is None or batch.last_offset != offset or batch.size > options.max_message_size:
                there = batch.last_offset if batch else -1
                problems.add(f"Mismatches in :{path}", f"  Index offset: {offset}, log offset: {there}")
            if not options.verify_index_only:
                yield f"offset: {offset} position: {position}"


def _sanity(path: Path, entry_size: int, falls: bool, problems: Problems) -> Iterator[str]:
    """The check by which a starting broker decides whether an index must be rebuilt."""
    size = os.stat(path).st_size
    if falls or size % entry_size:
        why = f"{size} bytes are not whole entries of {entry_size}" if size % entry_size else "its entries fall"
        problems.add(f"Corrupt index found: {path}", f"  {why}")
        problems.fatal = True
    else:
        yield f"{path} passed sanity check."


def dump_time_index(path: Path, base: int, options: Options, problems: Problems) -> Iterator[str]:
    entries = index_files.read_time_index(path, base)
    if options.index_sanity_check:
        falls = bool(entries) and (entries[-1].timestamp < entries[0].timestamp or entries[-1].offset < base)
        yield from _sanity(path, TIME_ENTRY.size, falls, problems)
        return
    previous = -1
    with FILES.opened(path.with_suffix(names.LOG), os.O_RDONLY) as fd:
        batches = _Finder(fd)
        for timestamp, offset in entries:
            _check_time(path, timestamp, offset, previous, batches.at(offset), problems)
            if not options.verify_index_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            previous = timestamp


def _check_time(
    path: Path, timestamp: int, offset: int, previous: int, batch: Batch | None, problems: Problems
) -> None:
    if batch is None or batch.last_offset != offset:
        found = batch.last_offset if batch else -1
        line = f"Indexed offset: {offset}, found log offset: {found}"
        problems.add("The following indexed offsets are not found in the log.", line)
        return
    if batch.max_timestamp != timestamp:
        line = f"  Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}"
        problems.add(f"Found timestamp mismatch in :{path}", line)
    if previous >= timestamp:
        line = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        problems.add(f"Found out of order timestamp in :{path}", line)


class _Finder:
    """Finds batches by offset in one walk over the headers, for offsets that rise (else it walks again)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._restart()

    def _restart(self) -> None:
        self._walk = iter(Scan(self.fd, check=False))
        self._current = next(self._walk, None)
        self._last_offset = -1

    def at(self, offset: int) -> Batch | None:
        """The first batch that ends at `offset` or later."""
        if offset < self._last_offset:
            self._restart()
        self._last_offset = offset
        while self._current is not None and self._current.last_offset < offset:
            self._current = next(self._walk, None)
        return self._current


# --- other files of a log ---


def dump_snapshot(path: Path, base: int, options: Options, problems: Problems) -> Iterator[str]:
    try:
        producers = read_snapshot(path)
    except SnapshotError as problem:
        problems.add("Snapshot is corrupt", f"  {problem}")
        return
    for producer_id, entry in producers.items():
        line = (
            f"producerId: {producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional(entry.txn_first_offset)} lastTimestamp: {entry.timestamp} "
        )
        if (last := entry.last) is not None:
            line += (
                f"firstSequence: {last.first_seq} lastSequence: {last.last_seq} lastOffset: {last.last_offset} "
                f"offsetDelta: {last.last_offset - last.first_offset} timestamp: {last.timestamp}"
            )
        yield line


def _optional(value: int) -> str:
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"


def dump_txn_index(path: Path, base: int, options: Options, problems: Problems) -> Iterator[str]:
    for row in read_txn_index(path):
        yield (
            f"version: 0 producerId: {row.producer_id} firstOffset: {row.first_offset} "
            f"lastOffset: {row.last_offset} lastStableOffset: {row.last_stable_offset}"
        )


_KINDS: dict[str, Callable[[Path, int, Options, Problems], Iterator[str]]] = {
    names.LOG: dump_log,
    names.INDEX: dump_index,
    names.TIME_INDEX: dump_time_index,
    names.SNAPSHOT: dump_snapshot,
    names.TXN_INDEX: dump_txn_index,
}
