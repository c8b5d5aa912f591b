"""What recovery knows of leader epochs and producers before it checks a batch: from their files, and trusted segments.

Caller owns the directory alone. Only producer snapshots that are broken are removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.ipc import renewal
from odradek.protocol.batch import CONTROL, TRANSACTIONAL
from odradek.storage.files import names
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.files.durable import FILES, Files
from odradek.storage.producers.snapshots import newest_snapshot
from odradek.storage.recovery.rebuild import LogState, position_before, walk_headers
from odradek.storage.recovery.sealed_segment import batch_at
from odradek.storage.recovery.tidy import Contents
from odradek.storage.segment import epochs
from odradek.storage.segment.epochs import Epoch, EpochCache
from odradek.storage.segment.scan import Scan

_END = 1 << 63


def read_epochs(
    directory: Path, trusted: Sequence[int], clean: bool, notes: list[str]
) -> tuple[EpochCache, tuple[Epoch, ...] | None]:
    """The epochs, and what the file says of them: from the batches of `trusted` segments when it does not tell.

    An empty file is right only of a log whose batches have none. A power failure leaves one where it was renamed but
    not synced.
    """
    cache, as_read = EpochCache(), None
    try:
        if os.path.exists(os.path.join(directory, epochs.FILE_NAME)):
            cache = EpochCache.read(directory)
            as_read = cache.entries
            if as_read or (clean and not _has_epochs(directory, trusted)):
                return cache, as_read
    except CheckpointError as problem:
        notes.append(f"rebuilt the leader epochs: {problem}")
    collect = LogState(cache, {}, _END)
    for base in trusted:
        walk_headers(directory, base, collect, upto=_END)
    return cache, as_read


def _has_epochs(directory: Path, trusted: Sequence[int]) -> bool:
    """Whether the last of the `trusted` segments that holds anything begins with a batch of a leader epoch."""
    for base in reversed(trusted):
        with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
            for batch in Scan(fd, check=False):
                return batch.leader_epoch >= 0
    return False


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
    """Let a transaction that a snapshot has for open begin with the first of its batches that compaction has left.

    If it has left none, the transaction is over: it leaves open ones alone, but the marker may be gone as well, when it
    was written behind the snapshot, and read from there on the log would never end it. If some are left, the marker
    may still come (again): a power failure or a truncation has taken it, and only an open transaction is ended by it.

    `clean_upto`: the cleaner has come to there, 0 when it was only let go past what is deleted. A transaction of which
    the beginning is deleted is open all the same, unless it began below that.
    """
    bases = list(sizes)
    clean_upto = clean_upto if clean_upto <= leo else 0
    begins = {}
    for producer_id, entry in renewal.along(state.replay.producers.items()):
        first = entry.txn_first_offset
        if 0 <= first < leo and _lacks_first(directory, bases, producer_id, first, clean_upto):
            begins[producer_id] = max(first, bases[0])
    left = _first_batches(directory, bases, begins, leo) if begins else {}
    for producer_id in begins:
        state.replay.producers[producer_id].txn_first_offset = left.get(producer_id, -1)


def _lacks_first(directory: Path, bases: list[int], producer_id: int, first: int, clean_upto: int) -> bool:
    if first < bases[0]:
        return first < clean_upto
    batch, _ = batch_at(directory, max(base for base in bases if base <= first), first)
    return batch is None or batch.producer_id != producer_id


def _first_batches(directory: Path, bases: list[int], begins: Mapping[int, int], leo: int) -> dict[int, int]:
    """Where below `leo` the first batch is of the transaction that each of these producers has open, from these
    offsets on: what is there behind its last marker is of one, since a former one has left nothing.
    """
    found: dict[int, int] = {}
    least = min(begins.values())
    for base, following in zip(bases, [*bases[1:], _END], strict=True):
        if following <= least:
            continue
        with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
            for batch in renewal.along(Scan(fd, position_before(directory, base, least), check=False)):
                if not begins.get(batch.producer_id, leo) <= batch.base_offset < leo:
                    continue
                if batch.attributes & CONTROL:
                    found.pop(batch.producer_id, None)
                elif batch.attributes & TRANSACTIONAL:
                    found.setdefault(batch.producer_id, batch.base_offset)
    return found
