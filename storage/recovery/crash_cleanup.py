"""The first step of opening a partition: finish or undo half-done changes of a crash in its directory.

    .deleted, .tmp    removed
    .cleaned          removed: a compaction that had not finished
    .swap             renamed into place, after the segments it replaces are removed
    indexes           removed when their .log is gone; put aside as .corrupt when they are not files, but a directory or
                      a dangling link, so that they are rebuilt; the leader epoch file too
    .snapshot         removed below the first segment: its open transactions may have ended in deleted segments

Caller owns the directory alone. Crash rule: every step can be repeated; .swap files go into place
only after the files they replace are gone, and stay .swap until then. With a .log.swap without its .index.swap the
indexes are the new ones, or about to be replaced by them: they stay, as aborted transactions would not be rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, remove
from odradek.storage.producers import snapshots
from odradek.storage.segment import epochs
from odradek.storage.segment.scan import Scan

UNFINISHED = (names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)


class Contents(NamedTuple):
    """The contents of a partition directory: segment sizes in bytes by base offset, snapshot offsets; rising."""

    sizes: dict[int, int]
    snapshots: list[int]

    @classmethod
    def of(cls, directory: Path) -> Contents:
        """The current contents; FileNotFoundError if a segment is deleted meanwhile."""
        bases = names.segment_bases(directory)
        sizes = {base: os.stat(names.segment_path(directory, base)).st_size for base in bases}
        return cls(sizes, snapshots.snapshot_offsets(directory))


def tidy(directory: Path, notes: list[str], *, files: Files = FILES) -> Contents:
    """Tidies the directory's files and returns its contents, so that no caller need list it again.

    Each change that touches records gets a line in `notes`.
    """
    regular, others = names.listed(directory)
    if any(name.endswith(UNFINISHED) for name in regular):
        _remove_worthless(directory, files)
        _finish_swaps(directory, notes, files)
    found = names.segment_files(directory)
    logs = {file.offset for file in found if file.kind == names.LOG}
    _put_aside(directory, (name for name in others if _is_of(name, logs)), notes, files)
    for file in found:
        if file.kind in names.INDEXES and file.offset not in logs:
            remove(names.segment_path(directory, *file), files=files)
    sizes = {base: os.stat(names.segment_path(directory, base)).st_size for base in sorted(logs)}
    snapshots = sorted(file.offset for file in found if file.kind == names.SNAPSHOT)
    for offset in [offset for offset in snapshots if logs and offset < min(logs)]:
        remove(names.segment_path(directory, offset, names.SNAPSHOT), files=files)
        snapshots.remove(offset)
    return Contents(sizes, snapshots)


def _is_of(name: str, logs: Collection[int]) -> bool:
    """Whether `name` is of a file that recovery rebuilds from the segments at `logs` if it is missing."""
    file = names.parse_segment_file(name)
    if file is None:
        return name == epochs.FILE_NAME
    return file.kind in names.INDEXES and not file.mark and file.offset in logs


def _put_aside(directory: Path, those: Iterable[str], notes: list[str], files: Files) -> None:
    for name in those:
        files.rename(directory / name, directory / f"{name}{names.CORRUPT}")
        notes.append(f"{name} is no file: renamed it to {name}{names.CORRUPT}")


def _remove_worthless(directory: Path, files: Files) -> None:
    cleaned = names.segment_files(directory, names.CLEANED)
    if cleaned:  # a split that did not finish: its .swap files are not complete (KAFKA-6264)
        swaps = names.segment_files(directory, names.SWAP)
        _remove(directory, (file for file in swaps if file.offset >= cleaned[0].offset), files)
    for name in names.regular_files(directory):
        if name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
            remove(directory / name, files=files)


def _finish_swaps(directory: Path, notes: list[str], files: Files) -> None:
    swaps = names.segment_files(directory, names.SWAP)
    logs = [file for file in swaps if file.kind == names.LOG]
    if logs:
        start = min(file.offset for file in logs)
        end = max(_next_offset(names.segment_path(directory, *file), file.offset) for file in logs)
        moving = {file.offset for file in logs} - {file.offset for file in swaps if file.kind == names.INDEX}
        replaced = [f for f in names.segment_files(directory) if start <= f.offset < end and _is_former(f, moving)]
        _remove(directory, replaced, files)
        notes.append(f"finished a compaction's replacement of the segments from offset {start} to {end}")
    for file in sorted(swaps, key=_moving_order):
        path = names.segment_path(directory, *file)
        files.rename(path, path.with_suffix(""))
    if swaps:
        files.sync_dir(directory)


def _is_former(file: names.SegmentFile, moving: set[int]) -> bool:
    """Whether a file belongs to a replaced segment. `moving`: offsets at which the new indexes are moving in."""
    return file.kind != names.SNAPSHOT and not (file.offset in moving and file.kind in names.INDEXES)


def _moving_order(file: names.SegmentFile) -> tuple[int, bool, bool]:
    """Within a segment as in storage.log.swap: `.index` first, `.log` last, so that it never has a foreign index."""
    return file.offset, file.kind == names.LOG, file.kind != names.INDEX


def _next_offset(path: Path, base: int) -> int:
    """One past the last offset of a segment, by its headers."""
    with FILES.opened(path, os.O_RDONLY) as fd:
        scan = Scan(fd, check=False, least_offset=base)
        for _ in scan:
            pass
        return scan.least_offset


def _remove(directory: Path, deletable: Iterable[names.SegmentFile], files: Files) -> None:
    for file in deletable:
        remove(names.segment_path(directory, *file), files=files)
