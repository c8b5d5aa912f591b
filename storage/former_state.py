"""What recovery knows of leader epochs and producers before it checks a batch: from their files, and trusted segments.

Caller owns the directory alone. Only producer snapshots that are broken are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from odradek.storage import epochs, index_files, names
from odradek.storage.checkpoints import CheckpointError
from odradek.storage.durable import FILES, Files
from odradek.storage.epochs import Epoch, EpochCache
from odradek.storage.rebuild import LogState, walk_headers
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
    """Producers as of offset `upto`: the newest intact snapshot, and the batches from there on."""
    bases = list(contents.sizes)
    found = newest_snapshot(directory, contents.snapshots, upto, notes, files=files)
    since, producers = found or (bases[0], {})
    state = LogState(cache, producers, since)
    for base, following in zip(bases, [*bases[1:], _END], strict=True):
        if following > since and base < upto and since < upto:
            walk_headers(directory, base, state, position=_position_before(directory, base, since), upto=upto)
    return state


def _position_before(directory: Path, base: int, offset: int) -> int:
    """Where to begin to look for `offset` in a trusted segment, by its index."""
    entries = index_files.read_offset_index(names.segment_path(directory, base, names.INDEX), base)
    return next((entry.position for entry in reversed(entries) if entry.offset <= offset), 0)
