"""Damage to the files of a log between a stop and a start."""

from __future__ import annotations

import copy
from pathlib import Path

from odradek.storage.files import checkpoints, names
from odradek.storage.producers.producer_state import TXN_ENTRY, ProducerEntry
from odradek.storage.segment import epochs

from .compaction.compaction_world import TP
from .log_batches import end_within
from .log_comparison import LogComparison
from .written import write_snapshot


class LogDamage(LogComparison):
    """Each method damages one kind of file; the model records the loss."""

    def damage(self, clean: bool, bases: list[int], point: int) -> None:
        """Damage one of the files."""
        some = [self.tear, self.spoil_index, self.spoil_index, self.lose_indexes, self.spoil_rows, self.spoil_snapshot]
        some += [self.lose_snapshots, self.stale_snapshot, self.spoil_epochs, self.spoil_checkpoints]
        self.rng.choice(some)(clean, [base for base in bases if self.path(base).exists()], point)

    def path(self, base: int, kind: str = names.LOG) -> Path:
        return names.segment_path(self.directory, base, kind)

    def _active(self, bases: list[int]) -> int:
        return bases[-1]

    def tear(self, clean: bool, bases: list[int], point: int) -> None:
        """Garbage behind the log's end, or its end is lost: in the last segment, which has not been synced."""
        path = self.path(bases[-1])
        data = path.read_bytes()
        cut = self.rng.randrange(len(data)) if data else 0
        leo = end_within(path, bases[-1], cut)
        if self.rng.random() < 0.5 or not self._may_lose(leo, bases[0]):
            self.say("garbage behind the end")
            tail = self.rng.choice([self.rng.randbytes(self.rng.randrange(1, 200)), bytes(100), data[:70]])
            path.write_bytes(data + tail)
            return
        self.say(f"cut {path.name} at byte {cut} of {len(data)}")
        path.write_bytes(data[:cut])
        self.lose_from(leo)

    def _may_lose(self, leo: int, first: int) -> bool:
        """Nothing that the cleaner saw decided, and no end of a transaction whose start is no longer in the log."""
        reopened = [one for one in self.model.ended() if one.marker >= leo and one.first < first]
        known = leo >= self.model.log_start or self._checkpoint(checkpoints.LOG_START) == self.model.log_start
        return known and leo >= self.model.looked_leo and not (self.weak and reopened)

    def lose_from(self, leo: int) -> None:
        """The log ends at `leo` now, and its producers know no more."""
        if leo < self.model.log_start:
            self.model.start_over(self.model.log_start)
            self.forget()
        elif leo < self.model.leo:
            self.model.truncate(leo, self.model.log_start)
            self.producers = copy.deepcopy(next(row for end, row in reversed(self.history) if end <= leo))
        self.history = [one for one in self.history if one[0] <= leo]
        self.note()

    def forget(self) -> None:
        """The log forgets all producers; they continue all the same."""
        for producer in self.producers:
            producer.last, producer.fenced = None, False
        self.history.clear()
        self.note()

    def spoil_index(self, clean: bool, bases: list[int], point: int) -> None:
        """An offset or a time index is cut, changed, or ends in what a crashed Kafka leaves."""
        kind = self.rng.choice([names.INDEX, names.TIME_INDEX])
        path = self.path(self.rng.choice(bases), kind)
        if not path.exists():
            return
        data = bytearray(path.read_bytes())
        how = self.rng.choice(["cut", "flip", "flip", "zeros", "garbage"])
        if how == "cut":
            del data[self.rng.randrange(len(data) + 1) :]
        elif how == "flip" and data:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            self.excused.add(path.name)
        elif how == "zeros":
            data += bytes(24 * self.rng.randrange(1, 9))
        elif how == "garbage":
            data[:] = self.rng.randbytes(self.rng.randrange(1, 100))
        self.say(f"{how}: {path.name}")
        path.write_bytes(data)

    def lose_indexes(self, clean: bool, bases: list[int], point: int) -> None:
        for base in self.rng.sample(bases, self.rng.randrange(1, len(bases) + 1)):
            some = self.rng.choice([(names.INDEX,), (names.TIME_INDEX,), names.INDEXES, (names.INDEX, names.TXN_INDEX)])
            self.say(f"lost {some} of segment {base}")
            for kind in some:
                self.path(base, kind).unlink(missing_ok=True)

    def spoil_rows(self, clean: bool, bases: list[int], point: int) -> None:
        """A transaction index is changed, or loses a part of a row: once, or it might lose whole ones by parts."""
        there = [base for base in bases if self.path(base, names.TXN_INDEX).exists()]
        if not there:
            return
        path = self.path(self.rng.choice(there), names.TXN_INDEX)
        data = bytearray(path.read_bytes())
        if not data or path.name in self.spoiled:
            return
        self.spoiled.add(path.name)
        if self.rng.random() < 0.3:
            data += self.rng.randbytes(self.rng.randrange(1, 80))
        elif self.rng.random() < 0.3:
            del data[len(data) - self.rng.randrange(1, TXN_ENTRY.size) :]
        else:
            at = self.rng.randrange(len(data))
            data[at] ^= 1 << self.rng.randrange(8)
            first = int.from_bytes(data[at - at % TXN_ENTRY.size + 10 :][:8], "big")
            if 10 <= at % TXN_ENTRY.size < 18 and (self.gapped or 0 <= first < bases[0]):
                return
        self.say(f"spoiled {path.name}")
        path.write_bytes(data)

    def spoil_snapshot(self, clean: bool, bases: list[int], point: int) -> None:
        """Damage the newest snapshot: the one before it is used."""
        if (found := self._snapshots()) and self._only_in_log(bases):
            path = self.rng.choice(found)
            data = bytearray(path.read_bytes())
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            del data[self.rng.choice([len(data), self.rng.randrange(len(data))]) :]
            self.say(f"spoiled {path.name}")
            self.weak = True
            self.excused.add(path.name)  # until an older state is wanted
            path.write_bytes(data)

    def lose_snapshots(self, clean: bool, bases: list[int], point: int) -> None:
        found = self._snapshots()
        if not clean and found and self._only_in_log(bases):
            gone = self.rng.sample(found, self.rng.randrange(1, len(found) + 1))
            self.say(f"lost {[path.name for path in gone]}")
            self.weak = True
            for path in gone:
                path.unlink()

    def _snapshots(self) -> list[Path]:
        return sorted(self.directory.glob(f"*{names.SNAPSHOT}"))

    def _only_in_log(self, bases: list[int]) -> bool:
        """Whether the log's batches contain all state of producers."""
        known = all(one.last is not None and one.last.base >= bases[0] for one in self.producers if one.fenced)
        return known and all(one.first >= bases[0] for one in self.model.open.values())

    def stale_snapshot(self, clean: bool, bases: list[int], point: int) -> None:
        """One of what was before the log's beginning, with a transaction that is long over."""
        if bases[0] > 1:
            offset = self.rng.randrange(1, bases[0])
            self.say(f"a stale snapshot at {offset}")
            write_snapshot(self.directory, offset, {99: ProducerEntry(0, 1, self.now_ms, offset - 1, [])})

    def spoil_epochs(self, clean: bool, bases: list[int], point: int) -> None:
        path = self.directory / epochs.FILE_NAME
        if path.exists():
            what = self.rng.choice([None, self.rng.randbytes(30), b"0\n5\n0 0\n", path.read_bytes()[:-3] + b"x\n", b""])
            self.say(f"{epochs.FILE_NAME}: {what!r}")
            self.lost_epochs = True
            path.unlink() if what is None else path.write_bytes(what)

    def spoil_checkpoints(self, clean: bool, bases: list[int], point: int) -> None:
        name = self.rng.choice(checkpoints.OFFSET_CHECKPOINTS)
        if name in (checkpoints.RECOVERY_POINT, checkpoints.LOG_START) and self.gapped:
            return  # the one keeps markers in the log, and below the other nothing was cleaned
        if name == checkpoints.LOG_START and self.model.leo == self.model.log_start:
            return  # the log may end below, and would begin there
        path = self.root / name
        how = self.rng.choice(["lost", "empty", "garbage"])
        self.say(f"{name}: {how}")
        path.unlink(missing_ok=True)
        if how != "lost":
            path.write_bytes(b"" if how == "empty" else self.rng.randbytes(40))

    def start_over(self) -> None:
        """The log ends below its checkpointed start."""
        start = self.model.leo + self.rng.randrange(1, 20)
        self.say(f"starts over at {start}")
        checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: start})
        self.model.start_over(start)
        self.forget()
