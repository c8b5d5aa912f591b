"""Compares the logs of all replicas, batch by batch and byte by byte, from their files.

Segments may begin at different offsets; batches above the high watermark, or above the published end of the active
segment, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD

_SHOWN = 5


class Stored(NamedTuple):
    """A batch as it is in a file."""

    base: int
    last: int
    data: bytes


def batches(directory: Path, until: int) -> Iterator[Stored]:
    """The batches of a partition's directory that begin below offset `until`."""
    for path in sorted(directory.glob("*.log")):
        yield from _of_file(path, until)


def _of_file(path: Path, until: int) -> Iterator[Stored]:
    data = path.read_bytes()
    at = 0
    while at + HEADER_SIZE <= len(data):
        header = HEADER.unpack_from(data, at)
        size = header[1] + LOG_OVERHEAD
        if header[0] >= until or size < HEADER_SIZE or at + size > len(data):
            return
        yield Stored(header[0], header[0] + header[6], data[at : at + size])
        at += size


def differences(name: str, directories: Sequence[Path], until: int) -> list[str]:
    """The differences of the replicas of partition `name` below offset `until`; [] if they are equal."""
    found = []
    columns = [batches(directory, until) for directory in directories]
    for row in zip_longest(*columns):
        if len({one.data if one is not None else b"" for one in row}) > 1:
            found.append(f"divergence: {name}: " + " | ".join(_shown(one) for one in row))
            if len(found) == _SHOWN:
                break
    return found


def _shown(one: Stored | None) -> str:
    if one is None:
        return "no batch"
    epoch = int.from_bytes(one.data[12:16], "big", signed=True)
    return f"{one.base}..{one.last} epoch {epoch}, {len(one.data)} bytes, hash {hash(one.data) & 0xFFFF:x}"
