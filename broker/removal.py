"""Removing what was renamed away: `.deleted` files of segments, `-delete` directories of partitions.

A rename sets the inode's change time, so that is how long something has been waiting, also across restarts.
Readers that still have a file open keep its blocks until they close it.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator

from odradek.storage import names
from odradek.storage.partition import Partition

log = logging.getLogger(__name__)


def remove_segments(partition: Partition, now_ms: int, delay_ms: int | None = None) -> tuple[int, int]:
    """Unlink what has waited for `delay_ms` (file.delete.delay.ms) in a partition's directory; (removed, waiting).

    With 0 all goes, also what was renamed after `now_ms`.
    """
    removed = waiting = 0
    delay = partition.config.file_delete_delay_ms if delay_ms is None else delay_ms
    for entry in _marked(partition.directory):
        if not delay or _waited_ms(entry, now_ms) >= delay:
            os.unlink(entry.path)
            removed += 1
        else:
            waiting += 1
    return removed, waiting


def _marked(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from [entry for entry in entries if entry.name.endswith(names.DELETED)]
    except FileNotFoundError:
        return


def remove_directories(log_dir: str, now_ms: int, delay_ms: int) -> tuple[int, int]:
    """Remove the directories of deleted partitions that have waited for `delay_ms`; (removed, waiting)."""
    removed = 0
    with os.scandir(log_dir) as entries:
        doomed = [entry for entry in entries if _is_doomed(entry.name)]
    for entry in doomed:
        if _waited_ms(entry, now_ms) >= delay_ms:
            shutil.rmtree(entry.path, ignore_errors=True)
            log.info("removed %s", entry.name)
            removed += 1
    return removed, len(doomed) - removed


def _is_doomed(name: str) -> bool:
    return name.endswith(names.DELETE_DIR) and names.parse_partition_dir(name) is not None


def _waited_ms(entry: os.DirEntry[str], now_ms: int) -> int:
    try:
        return now_ms - entry.stat(follow_symlinks=False).st_ctime_ns // 1_000_000
    except FileNotFoundError:
        return -1
