"""Removes what was renamed for deletion: `.deleted` files of segments, `-delete` directories of partitions.

A rename sets the inode's change time, which shows how long a file has been waiting, also across restarts.
Readers that still have a file open keep its blocks until they close it.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator

from odradek.storage.files import names
from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

Failed = Callable[[str, OSError], None]


def remove_segments(partition: Partition, now_ms: int, delay_ms: int | None = None) -> tuple[int, int]:
    """Unlink files that waited for `delay_ms` (file.delete.delay.ms) in a partition's directory; (removed, waiting).

    With 0, removes all files, also ones renamed after `now_ms`. Raises OSError for the first file that cannot be
    removed, after it has removed the others.
    """
    removed, waiting, failure = 0, 0, None
    delay = partition.config.file_delete_delay_ms if delay_ms is None else delay_ms
    for entry in _marked(partition.directory):
        if delay and _waited_ms(entry, now_ms) < delay:
            waiting += 1
            continue
        try:
            os.unlink(entry.path)
            removed += 1
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return removed, waiting


def _marked(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from [entry for entry in entries if entry.name.endswith(names.DELETED) and entry.is_file()]
    except FileNotFoundError:
        return


def remove_directories(log_dir: str, now_ms: int, delay_ms: int, failed: Failed = lambda *_: None) -> tuple[int, int]:
    """Remove the directories of deleted partitions that have waited for `delay_ms`; (removed, waiting).

    A directory that cannot be removed stays; `failed` gets its path and the error.
    """
    removed = 0
    with os.scandir(log_dir) as entries:
        deletable = [entry for entry in entries if _is_deletable(entry)]
    for entry in deletable:
        if _waited_ms(entry, now_ms) >= delay_ms:
            removed += _remove_tree(entry.path, failed)
    return removed, len(deletable) - removed


def _remove_tree(path: str, failed: Failed) -> bool:
    try:
        if os.path.islink(path):
            os.unlink(path)  # its target stays, as in Kafka
        else:
            shutil.rmtree(path)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)  # all but what cannot be removed
        failed(path, error)
        return False
    log.info("removed %s", os.path.basename(path))
    return True


def _is_deletable(entry: os.DirEntry[str]) -> bool:
    """Does not follow links: a link is removed even if it leads to a missing disk, or to itself."""
    marked = entry.name.endswith(names.DELETE_DIR) and names.parse_partition_dir(entry.name) is not None
    return marked and (entry.is_symlink() or entry.is_dir())


def _waited_ms(entry: os.DirEntry[str], now_ms: int) -> int:
    try:
        return now_ms - entry.stat(follow_symlinks=False).st_ctime_ns // 1_000_000
    except FileNotFoundError:
        return -1
