"""What recovery knows of leader epochs and producers before it checks a batch: from their files, and trusted segments.

Caller owns the directory alone. Only producer snapshots that are broken are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.ipc import renewal
from odradek.storage import epochs
from odradek.storage.checkpoints import CheckpointError
from odradek.storage.durable import FILES, Files
from odradek.storage.epochs import Epoch, EpochCache
from odradek.storage.rebuild import LogState, position_before, walk_headers
from odradek.storage.sealed_segment import batch_at
from odradek.storage.snapshots import newest_snapshot
from odradek.storage.tidy import Contents

_END = 1 << 63


def read_epochs(
    directory: Path, trusted: Iterable[int], clean: bool, notes: list[str]
) -> tuple[EpochCache, tuple[Epoch, ...] | None]:
    """The epochs, and what the file says of them: from the batches of `trusted` segments when it does not tell."""
    cache, as_read = EpochCache(), None
    try:
        if os.path.exists(os.path.join(directory, epochs.FILE_NAME)):
            cache = EpochCache.read(directory)
            as_read = cache.entries
            if as_read or clean:
                return cache, as_read  # a power failure leaves an empty file where it was renamed but not synced
    except CheckpointError as problem:
        notes.append(f"rebuilt the leader epochs: {problem}")
    collect = LogState(cache, {}, _END)
    for base in trusted:
        walk_headers(directory, base, collect, upto=_END)
    return cache, as_read


def load_producers(
    directory: Path, contents: Contents, upto: int, cache: EpochCache, notes: list[str], files: Files = FILES
) -> LogState:
    """Producers as of offset `upto`: the newest intact snapshot, and the batches from there on.

    One below the first segment is of a log, or of a part of one, that is gone: it may know transactions whose end is.
    """
    bases = list(contents.sizes)
    there = [offset for offset in contents.snapshots if offset >= bases[0]]
    found = newest_snapshot(directory, there, upto, notes, files=files)
    contents.snapshots[:] = there
    since, producers = found or (bases[0], {})
    state = LogState(cache, producers, since)
    for base, following in zip(bases, [*bases[1:], _END], strict=True):
        if following > since and base < upto and since < upto:
            walk_headers(directory, base, state, position=position_before(directory, base, since), upto=upto)
    return state


def forget_compacted(directory: Path, sizes: Mapping[int, int], state: LogState, leo: int, clean_upto: int) -> None:
    """End the transactions that a snapshot has for open and of which compaction has left nothing.

    It leaves open ones alone, so that the first batch of one that is open is there. Its marker is not when it was
    written behind the snapshot and compacted away, or emptied: read from there on the log would never end it.

    `clean_upto`: the cleaner has come to there, 0 when it was only let go past what is deleted. It stops at the last
    stable offset, so that a transaction that began below is over, also when its beginning is deleted.
    """
    bases = list(sizes)
    for producer_id, entry in renewal.along(state.replay.producers.items()):
        first = entry.txn_first_offset
        if 0 <= first < clean_upto <= leo:
            entry.txn_first_offset = -1
        if not bases[0] <= first < leo:
            continue
        batch, _ = batch_at(directory, max(base for base in bases if base <= first), first)
        if batch is None or batch.producer_id != producer_id:
            entry.txn_first_offset = -1
