"""A power failure: the data directory without what was not synced, which is lost wholly or by pages.

Built from the records of tests/faults/seam/shadow.py. SQLite calls fsync from C, which is not recorded, so its files
are copied as they are; tests/cluster checks that SQLite syncs.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

from odradek.storage.dirs import boot_id

from .seam.shadow import entries

PAGE = 4096
SEAM = Path(__file__).parent / "seam"


class Disk:
    """The durable state of the files under `root`, by the records in `shadow`."""

    def __init__(self, root: Path, shadow: Path) -> None:
        self.root = root
        self._contents: dict[str, Path] = {}
        self._entries: dict[str, Path] = {}
        for path in sorted(shadow.iterdir(), key=_when):
            if not path.name.endswith("~"):
                kind = self._entries if path.suffix == ".dir" else self._contents
                kind[path.name.split(".")[0]] = path

    def rebuild(self, target: Path, seed: int | None) -> None:
        """Write it to `target`. `seed`: a random part of the unsynced data reached the disk; None: none of it."""
        self._directory(self.root, target, random.Random(seed) if seed is not None else None)
        assert (target / boot_id.FILE_NAME).read_text(), "the boot id is not on the disk"
        (target / boot_id.FILE_NAME).write_text("the boot before this one\n")

    def durable(self, name: str) -> bytes:
        """The durable contents of a file directly under `root`; b"" if none."""
        inode = self._synced_entries(self.root, entries(str(self.root))).get(name, "")
        return self._contents[inode].read_bytes() if inode in self._contents else b""

    def _directory(self, source: Path, target: Path, luck: random.Random | None) -> None:
        target.mkdir(parents=True)
        now = entries(str(source))
        synced = self._synced_entries(source, now)
        found = {name: synced.get(name) for name in sorted(now.keys() | synced.keys())}
        if luck:
            found |= {name: now.get(name) for name in found if found[name] != now.get(name) and luck.random() < 0.5}
            _in_order(found, now)
        for name, mine in found.items():
            if mine is not None:
                self._entry(source / name, target / name, mine, now.get(name) == mine, luck)

    def _synced_entries(self, source: Path, now: Mapping[str, str]) -> dict[str, str]:
        found = os.stat(source)
        note = self._entries.get(f"{found.st_dev}-{found.st_ino}")
        if source == self.root and note is None:
            return dict(now)
        return json.loads(note.read_text()) if note else {}

    def _entry(self, source: Path, target: Path, inode: str, is_there: bool, luck: random.Random | None) -> None:
        if is_there and source.is_dir():
            self._directory(source, target, luck)
        elif source.name.startswith("odradek-metadata.db") or source.name == "meta.properties":
            target.write_bytes(source.read_bytes())
        else:
            durable = self._contents[inode].read_bytes() if inode in self._contents else b""
            now = source.read_bytes() if is_there and luck else durable
            target.write_bytes(torn(durable, now, luck) if luck else durable)


def _in_order(found: dict[str, str | None], now: Mapping[str, str]) -> None:
    """The first segment of a partition is created before the others, and a journal keeps that order in a directory.

    A missing first segment would look like retention.
    """
    logs = [name for name in found if name.endswith(".log")]
    if any(found[name] for name in logs) and logs[0] in now:
        found[logs[0]] = now[logs[0]]


def torn(durable: bytes, now: bytes, luck: random.Random) -> bytes:
    """`durable` with some pages of `now`, of any size between the two; missing pages are zeros."""
    size = luck.randint(min(len(durable), len(now)), max(len(durable), len(now)))
    out = bytearray(durable[:size].ljust(size, b"\0"))
    for at in range(0, size, PAGE):
        page = now[at : min(at + PAGE, size)]
        if luck.random() < 0.5 and page:
            out[at : at + len(page)] = page
    return bytes(out)


def _when(path: Path) -> int:
    return int(path.name.rstrip("~").split(".")[1])
