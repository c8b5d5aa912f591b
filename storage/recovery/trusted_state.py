"""The leader epochs and producers before recovery checks a batch: from their files, and trusted segments.

Caller owns the directory alone. This removes only broken producer snapshots.
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
from odradek.storage.recovery.crash_cleanup import Contents
from odradek.storage.recovery.rebuild import LogState, position_before, walk_headers
from odradek.storage.recovery.sealed_segment import batch_at
from odradek.storage.segment import epochs
from odradek.storage.segment.epochs import Epoch, EpochCache
from odradek.storage.segment.scan import Scan

_END = 1 << 63


def read_epochs(
    directory: Path, trusted: Sequence[int], clean: bool, notes: list[str]
) -> tuple[EpochCache, tuple[Epoch, ...] | None]:
    """The epochs, and the file's contents: from the batches of `trusted` segments if the file is missing or wrong.

    An empty file is right only if the log's batches have no epochs. A power failure leaves one if the file was renamed
    but not synced.
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
    """Whether the last non-empty one of the `trusted` segments begins with a batch that has a leader epoch."""
    for base in reversed(trusted):
        with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
            for batch in Scan(fd, check=False):
                return batch.leader_epoch >= 0
    return False


def load_producers(
    directory: Path, contents: Contents, upto: int, cache: EpochCache, notes: list[str], files: Files = FILES
) -> LogState:
    """Producers as of offset `upto`: the newest intact snapshot, and the batches after it.

    A snapshot below the first segment is of a deleted log, or a deleted part of one: it may have open transactions
    whose end is deleted too.
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
    """Make a transaction that is open in a snapshot begin with the first of its batches that compaction has left.

    If none is left, the transaction is over: compaction does not touch open ones, but the marker may be gone as well,
    if it was written after the snapshot, and a replay from there would never end the transaction. If some are left, the
    marker may still come (again): a power failure or a truncation has removed it, and it only ends an open transaction.

    `clean_upto`: the end of the part that the cleaner has cleaned, 0 if that was only moved past deleted records. A
    transaction whose beginning is deleted is still open, unless it began below `clean_upto`.
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
    """The offset below `leo` of the first batch of each producer's open transaction, from the offsets in `begins`:
    batches after the producer's last marker belong to it, since a former transaction has left none.
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
