"""What a run directory says about the broker that has it, for the one that finds it dead: the content of `roles.lock`.

Layout    : one line of JSON: `boot`, the kernel's boot id; `data_dir`, the first log directory; `key`, in the names of
            the regions; `incarnation` of the regions, 0 before there are any; `file`, the device and inode of the file
            itself: a copy of a living broker's run directory has no locks, and is no dead broker. Empty: see below.
Owner     : the broker that has the run directory.
Writers   : the holder of the supervisor's byte, before it creates anything else.
Lock      : the supervisor's byte of the same file (ipc.locks).
Crash rule: the note outlives its broker, and is removed with the file, when all else is removed. It names regions
            before they exist, and the regions that a former note names are removed before it is replaced.

A file without a note is of a broker whose memory belongs to systemd, which outlives its processes, or of a version that
wrote none: that no process holds a role says nothing about such a broker.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class RunNote(NamedTuple):
    """See above. `incarnation` is that of the region headers (ipc.region)."""

    boot: str
    data_dir: str
    key: str
    incarnation: int
    file: str

    def encode(self) -> bytes:
        """The line."""
        return json.dumps(self._asdict()).encode() + b"\n"


def decode(content: bytes) -> RunNote | None:
    """The note; None when there is none, or none that this version understands."""
    line, end, _ = content.partition(b"\n")
    if not end:
        return None
    try:
        found = RunNote(**json.loads(line))
    except (ValueError, TypeError):
        return None
    return found if _types(found) else None


def _types(note: RunNote) -> bool:
    texts = (note.boot, note.data_dir, note.key, note.file)
    return all(isinstance(text, str) and text for text in texts) and type(note.incarnation) is int
