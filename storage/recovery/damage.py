"""A bad batch: a torn write to cut off, or damage to report.

An interrupted write leaves a bad batch with nothing intact behind it: the file ends there, or
holds zeros or the rest of that write. Anything else is damage; it is refused, or on request cut too,
and then the removed data is kept next to the log as `.corrupt` files, which no broker reads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from odradek.ipc import renewal
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, pread_exact, remove, truncate
from odradek.storage.recovery.rebuild import Scanned
from odradek.storage.segment.scan import find_batch_after

COPY_SIZE = 1 << 20


class CorruptLog(Exception):
    """Damage in the middle of a log: intact records follow it. The message says where and what to do."""

    def __init__(self, path: Path, scanned: Scanned, follows: str) -> None:
        bad = scanned.bad
        assert bad is not None
        self.path, self.position, self.reason = path, bad.position, bad.reason
        self.offset = scanned.next_offset
        super().__init__(
            f"{path}: damaged at byte {bad.position} (offset {self.offset}): {bad.reason}; {follows}. Nothing was "
            "changed; restore the file from a backup"
        )


def intact_after(path: Path, scanned: Scanned, later: Sequence[tuple[int, int]]) -> str:
    """A description of intact records after the bad batch of `scanned`; "" when there are none: a torn write.

    `later`: (base offset, size) of the segments after this one.
    """
    assert scanned.bad is not None
    with FILES.opened(path, os.O_RDONLY) as fd:
        size = os.fstat(fd).st_size
        found = find_batch_after(fd, scanned.bad.position, size, scanned.next_offset)
    if found is not None:
        return f"an intact batch follows at byte {found} of {size}"
    bases = [base for base, length in later if length]
    return f"segments with records follow from offset {bases[0]} on" if bases else ""


def cut_off(path: Path, position: int, *, files: Files = FILES) -> int:
    """Cuts the log at `position`; returns the number of removed bytes."""
    gone = os.stat(path).st_size - position
    truncate(path, position, files=files)
    return gone


def set_aside(path: Path, position: int, later: Sequence[int], *, files: Files = FILES) -> None:
    """Keeps the log's bytes from `position` and the segments at the bases `later` as `.corrupt` files."""
    _copy_from(path, position, path.with_name(f"{path.name}.{position}{names.CORRUPT}"), files)
    for base in later:
        log = names.segment_path(path.parent, base)
        files.rename(log, log.with_name(log.name + names.CORRUPT))
        remove_segment(path.parent, base, files=files)
    files.sync_dir(path.parent)


def remove_segment(directory: Path, base: int, *, files: Files = FILES) -> None:
    """Unlinks the existing log and index files of a segment."""
    for kind in (*names.INDEXES, names.LOG):
        remove(names.segment_path(directory, base, kind), files=files)


def _copy_from(path: Path, position: int, target: Path, files: Files) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with files.opened(path, os.O_RDONLY) as source, files.opened(target, flags) as copy:
        at = position
        while part := pread_exact(source, COPY_SIZE, at):
            files.pwrite(copy, part, at - position)
            renewal.renew()
            at += len(part)
        files.fsync(copy)
