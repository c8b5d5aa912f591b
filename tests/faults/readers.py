"""Readers at the end of a log, and one that reads it from its start, for the checker."""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import wires
from .checker import Log
from .load import AWAY, MOVE_AFTER, PATIENCE_S, RETRY_S, Client
from .wires import Frames


class Tail(Client):
    """Reads all partitions from the start, and waits for more at the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, number: int = 0) -> None:
        super().__init__(bootstrap, number)
        self.log: Log = {partition: [] for partition in range(partitions)}
        self.errors: dict[int, int] = {}
        self._topic = topic
        self._offsets = dict.fromkeys(range(partitions), 0)
        self._move_in = self.rng.randint(*MOVE_AFTER)

    def _run(self) -> None:
        while not self._stop.is_set():
            frames = self._connected()
            if frames is None:
                continue
            try:
                self._turn(frames)
            except (OSError, EOFError):
                self._drop()
        self._drop()

    def _turn(self, frames: Frames) -> None:
        self._asked(True)
        frames.send(wires.fetch(self._topic, self._offsets, 1))
        for frame in self._frame(frames):
            self._answered()
            for partition, error, data in wires.fetched(frame):
                self._take(partition, error, data)
        self._move_in -= 1
        if self._move_in <= 0:
            self._move_in = self.rng.randint(*MOVE_AFTER)
            self._drop()

    def _frame(self, frames: Frames) -> Iterator[bytes]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = list(frames.take(0.2))
            if found:
                yield from found
                return
            if self._stop.is_set():
                return
        raise OSError("no answer")

    def _take(self, partition: int, error: int, data: bytes) -> None:
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
            if error not in AWAY:
                self.problems.append(f"tail: error {error} at offset {self._offsets[partition]}")
            time.sleep(RETRY_S)
            return
        rows = self.log[partition]
        rows.extend(wires.records_in(data, self._offsets[partition]))
        if rows:
            self._offsets[partition] = rows[-1].offset + 1


def read_all(bootstrap: str, topic: str, ends: dict[int, int], starts: dict[int, int]) -> Log:
    """Every record of a topic between its offsets `starts` and `ends`."""
    log: Log = {partition: [] for partition in ends}
    frames = Frames(bootstrap, 30)
    offsets = dict(starts)
    try:
        while behind := {partition: at for partition, at in offsets.items() if at < ends[partition]}:
            frames.send(wires.fetch(topic, behind, 1))
            for frame in frames.take(30):
                for partition, error, data in wires.fetched(frame):
                    assert not error, f"{topic}-{partition}: error {error} at {offsets[partition]}"
                    found = list(wires.records_in(data, offsets[partition]))
                    log[partition] += found
                    offsets[partition] = found[-1].offset + 1 if found else offsets[partition]
    finally:
        frames.close()
    return log
