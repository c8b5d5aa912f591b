"""A log under the hands of all that changes one, of deaths, and of damage to its files; and its model.

What is not done to it, because the files could not tell, and Apache Kafka could not either:

- A `.txnindex` of a segment that is not scanned goes missing alone, or loses whole rows: nothing says that it was
  there. (`odradek check` finds it: it reads the whole log.)
- In a compacted log the first offset in such a row is changed: the batch at which the transaction began may be gone.
  In any log it is, when it lies below the first segment then.
- All snapshots go missing at a clean stop: there were no producers then, as far as the files say.
- The snapshots go missing, and the batches of a producer, or the beginning of an open transaction, are deleted. A
  producer goes on under another id, then, after the next kill.
- A sealed `.log` is damaged: what is below the recovery point is not read at a start. Readers get it as it is, with its
  checksum. (Above it a start refuses: test_recovery.)
- The log's end is lost below what the cleaner has seen decided.
- In a compacted log the recovery point's checkpoint goes missing, or names an earlier offset: markers were kept in the
  log behind it.
- The log start's checkpoint goes missing, and the log begins with its first segment again: the leader epochs below the
  former start stay forgotten, of which `odradek check` then tells.
- An entry in the middle of an index is changed: a start does not look at it, but a reader that uses it does (here the
  janitor's part is `reading`). Until then `odradek check` says so.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.records import batch_v2, convert
from odradek.storage.files import checkpoints, names
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.log import leader_or_follower, read, reindex, roll, transactions, trim, truncate
from odradek.storage.log.append import append
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producers import TXN_ENTRY, ProducerEntry
from odradek.storage.segment import epochs
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.scan import Scan
from odradek.storage.tools import check

from .compaction.compaction_world import TP, Producer, Row, Sent, World
from .log import by_time
from .log_model import Act, LogModel, Raw, assigned, begun
from .test_death import _dies_at
from .written import write_snapshot

MENDED = 30  # indexes that one look may find damaged


class LogWorld(World):
    """See the module's head. `said`: what was done, to find out what went wrong."""

    model: LogModel
    model_class = LogModel

    def __init__(self, root: Path, dice: random.Random, **config: Any) -> None:
        self.dice = dice
        self.said: list[str] = []
        self.excused: set[str] = set()  # files in which an entry may be wrong until a reader meets it
        self.spoiled: set[str] = set()  # transaction indexes, at this stop
        self.history: list[tuple[int, list[Producer]]] = []  # (log end, producers then)
        self.gapped = False  # the cleaner was there
        self.weak = False  # snapshots were lost: after a kill what is deleted from the log may not be known any more
        self.forgotten = 0  # the log start went back from there, but not the epochs
        self.lost_epochs = False  # they have to be found in the batches
        self.vague: set[int] = set()  # producers of whom the files need not tell how they stood
        self.epoch = 0
        self.stamps: list[int] = []  # the next ones, where they were asked for before
        super().__init__(root, **config)
        self.lead()
        self.note()

    @property
    def directory(self) -> Path:
        return self.root / "t-0"

    def say(self, what: str) -> None:
        self.said.append(what)

    def note(self) -> None:
        """How the producers stand, in case that the log's end is lost."""
        self.history.append((self.model.leo, copy.deepcopy(self.producers)))

    def lead(self) -> None:
        """Be the leader in the next epoch."""
        self.epoch += 1
        with self.partition.locked() as values:
            leader_or_follower.become_leader(self.partition, values, self.epoch, [], [1], 0)
        self.model.lead(self.epoch)

    def send(
        self, rows: list[Row], codec: int = 0, producer: Producer | None = None, inside: bool = False,
    ) -> None:  # fmt: skip
        super().send(rows, codec, producer, inside)
        self._act(producer)
        self.note()

    def _act(self, producer: Producer | None) -> None:
        """The producer's last batch stands at the log end."""
        if producer is not None:
            sent, leo = producer.last, self.model.leo
            assert sent is not None
            last = sent.timestamp + len(sent.rows) - 1
            act = Act(sent.base, leo - 1, producer.id, producer.epoch, sent.sequence, last, sent.inside)
            self._acted(act)

    def _acted(self, act: Act) -> None:
        self.model.acts.append(act)
        if not act.marker and act.sequence >= 0:  # as much as anybody has to know, from now on
            self.vague.discard(act.producer_id)

    def _ended(self, producer: Producer) -> None:
        """The producer's marker stands at the log end."""
        at = self.model.leo - 1
        self._acted(Act(at, at, producer.id, producer.epoch, -1, self.now_ms, marker=True))

    def send_as_coordinator(self, rows: list[Row], producer: Producer) -> None:
        """A producer that the log has forgotten begins again before: with its epoch known only sequence 0 goes on."""
        if not producer.fenced and producer.sequence:
            self.fence(producer)
        base, first = self.model.leo, self.stamp()
        self.stamps.append(first)
        super().send_as_coordinator(rows, producer)
        self._acted(Act(base, self.model.leo - 1, producer.id, producer.epoch, -1, first + len(rows) - 1, inside=True))
        self.note()

    def _mark(self, producer: Producer, commit: bool) -> None:
        super()._mark(producer, commit)
        self._ended(producer)
        self.note()

    def stamp(self) -> int:
        """Clocks differ."""
        if self.stamps:
            return self.stamps.pop()
        return self.now_ms + self.dice.choice([0, 0, 0, 700, -10, -5000])

    # --- deaths

    def dies(self, work: Callable[[Partition], None], step: int) -> bool:
        """`work` in a process that ends at its n-th call; whether it did."""
        return _dies_at(self.live, step, work)

    def mend(self) -> None:
        """Whoever takes the lock next repairs."""
        with self.live.partition(3).locked():
            pass

    def append_and_die(self, rows: list[Row], producer: Producer | None, inside: bool, step: int, whole: bool) -> None:
        """An append that may not come to its end; `whole`: the broker dies with it. What was written stands.

        The producer sends it again if it has heard nothing.
        """
        sequence = producer.sequence if producer is not None else -1
        before, former, timestamp = copy.deepcopy(self.model), copy.deepcopy(producer), self.stamp()
        vague = self.vague.copy()
        batch, records = self._batch(rows, 0, producer, sequence, timestamp, inside)

        def work(partition: Partition) -> None:
            with partition.locked() as values:
                append(partition, values, [batch], self.now_ms)
            assert batch.error == errors.NONE

        died = self.dies(work, step)
        base = self.model.leo
        transaction = self.model.begin(producer.id) if producer is not None and inside else None
        self.model.append([one._replace(offset=base + n) for n, one in enumerate(records)], transaction)
        if producer is not None:
            producer.fenced = True
            producer.last = Sent(rows, sequence, base, 0, timestamp, inside)
            producer.sequence += len(rows)
            self._act(producer)
        if not self._stands(before, died, whole) and producer is not None and former is not None:
            self.producers[self.producers.index(producer)], self.vague = former, vague
        self._went_on(whole)

    def mark_and_die(self, producer: Producer, commit: bool, step: int, whole: bool) -> None:
        """A marker that may not be written; the coordinator tries again."""
        before = copy.deepcopy(self.model)

        def work(partition: Partition) -> None:
            error = transactions.write_marker(partition, producer.id, producer.epoch, 1, commit, self.now_ms)
            assert error == errors.NONE

        died = self.dies(work, step)
        self.model.end(producer.id, commit)
        self._ended(producer)
        self._stands(before, died, whole)
        self._went_on(whole)
        if producer.id in self.model.open:
            self._mark(producer, commit)

    def _stands(self, before: LogModel, died: bool, whole: bool) -> bool:
        """Whether the model's last step has come into the log; only if it did not end it may not have.

        The model is `before` again where it has not.
        """
        if whole:
            self.crash()
        else:
            self.mend()
        leo = self.partition.state().leo
        if leo == self.model.leo:
            return True
        assert died and leo == before.leo, "what was acknowledged is not there"
        self.model = before
        return False

    def _went_on(self, whole: bool) -> None:
        """After a death the broker, if it was `whole`, has started again; once the model knows how the log is."""
        self.note()
        if whole:
            self._started(False)

    def roll_and_die(self, step: int, whole: bool) -> None:
        def work(partition: Partition) -> None:
            with partition.locked() as values:
                roll.roll(partition, values)

        self._stands(copy.deepcopy(self.model), self.dies(work, step), whole)
        self._went_on(whole)

    def trim_and_die(self, offset: int, step: int, whole: bool) -> None:
        """The log start may have moved, to just there; with the broker it is forgotten unless segments went."""

        def work(partition: Partition) -> None:
            with partition.locked() as values:
                trim.advance(partition, values, offset)

        self.dies(work, step)
        if whole:
            self.crash(log_start=True)
            self._started(False)
        else:
            self.mend()
            start = self.partition.state().log_start
            assert start in (self.model.log_start, offset)
            self._note_start()

    def truncate(self, offset: int) -> None:  # type: ignore[override]
        """Follow another leader for a moment, which lacks the log's end from `offset` on."""
        self.truncate_and_die(offset, None, False)

    def truncate_and_die(self, offset: int, step: int | None, whole: bool) -> None:
        """Whoever truncates may die, and then truncates again; with the broker it is elected instead."""
        first = names.segment_bases(str(self.directory))[0]
        ends = [head.base_offset + head.last_offset_delta + 1 for head in _heads(self.live.partition(5))]
        wanted = (
            max((end for end in ends if end <= offset), default=first) if offset < self.model.leo else self.model.leo
        )
        if wanted < self.model.log_start or not self._may_lose(wanted, first):
            return
        self.give_up()
        self._stand(slots.FOLLOWER)
        noted = self._checkpoint(checkpoints.RECOVERY_POINT) or 0
        checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {TP: min(noted, wanted)})
        if step is not None:
            self.dies(lambda partition: _truncate(partition, offset), step)
        if whole:
            self.crash()
        else:
            self.mend()
        leo = self.partition.state().leo
        assert wanted <= leo <= self.model.leo and leo in (*ends, first)
        if not whole:
            _truncate(self.partition, offset)
            leo = wanted
            self._stand(slots.LEADER)
        assert self.partition.state().leo == leo
        self.lose_from(leo)
        if whole:
            self._started(False)
        else:
            self.lead()
            self._reload(False)

    def _stand(self, state: int) -> None:
        with self.partition.locked() as values:
            values[slots.F_STATE] = state
            self.partition.slot.publish(values)

    # --- starts

    def crash(self, log_start: bool = False) -> None:
        """The broker dies as it is, at whatever anybody was. `log_start`: it may have moved past the checkpoint."""
        self.give_up()
        self._stack.close()
        self._open(False)
        if log_start:
            self._new_start()

    def restart(self, clean: bool, recovery_point: int, damages: int = 0) -> None:
        """Stop the broker and start it; in between its files suffer."""
        self.give_up()
        with self.partition.locked() as values:
            if clean:
                self.settle(values)
        state = self.partition.state()
        if self.gapped:  # markers below it may be gone
            recovery_point = max(recovery_point, self._checkpoint(checkpoints.RECOVERY_POINT) or 0)
        bases = self.partition.bases(state.active_base, state.generation)
        base = max((base for base in bases if base <= recovery_point), default=bases[0])
        point = state.leo if clean else base
        checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {TP: point})
        checkpoints.write_offsets(self.root, checkpoints.HIGH_WATERMARK, {TP: state.hw})
        self._stack.close()
        self.spoiled.clear()
        for _ in range(damages):
            self.damage(clean, bases, point)
        if not damages and self.dice.random() < 0.1:
            self.start_over()
        self._open(clean)
        self._new_start()
        self._started(clean)

    def _new_start(self) -> None:
        """Its checkpoint may be lost or late: the first segment begins the log then, and no earlier."""
        start, first = self.partition.state().log_start, names.segment_bases(str(self.directory))[0]
        known = self._checkpoint(checkpoints.LOG_START) or 0
        assert start == max(known, first)
        if start < self.model.log_start:
            self.forgotten = max(self.forgotten, self.model.log_start)
        self.model.log_start = start

    def _checkpoint(self, name: str) -> int | None:
        """What it says of the log; None where it does not read, too."""
        try:
            return checkpoints.read_offsets(self.root, name).get(TP)
        except checkpoints.CheckpointError:
            return None

    def _started(self, clean: bool) -> None:
        state = self.partition.state()
        assert state.state == slots.LEADER, state
        assert (state.leo, state.log_start) == (self.model.leo, self.model.log_start)
        assert state.hw == state.leo
        self._epochs_read()
        self._compare_epochs()
        self.lead()  # and only then may anybody write
        self._reload(clean and not self.weak)  # where the log's end is damaged, earlier snapshots are wanted as well
        if self._checkpoint(checkpoints.CLEANER) is None:  # as the cleaner does before its first round
            offsets = {TP: state.log_start} if self.gapped else {}
            checkpoints.write_offsets(self.root, checkpoints.CLEANER, offsets)
        self.compare_files()

    def _epochs_read(self) -> None:
        """What began at the log end and has no batch is forgotten; where the file is, all without one."""
        model = self.model
        if self.lost_epochs:
            model.epochs, self.lost_epochs = [], False
            for head in _heads(self.live.partition(5)):
                if head.leader_epoch > max((epoch for epoch, _ in model.epochs), default=-1):
                    model.epochs = assigned(model.epochs, head.leader_epoch, head.base_offset)
        known = self._checkpoint(checkpoints.LOG_START) or 0
        model.epochs = begun([one for one in model.epochs if one[1] < model.leo], known)

    def _reload(self, clean: bool) -> None:
        """The producers were read from the files."""
        self.model.reloaded = self.model.leo
        if clean:
            return
        for producer in self.producers:
            # Nothing may be left of the marker that fenced it but an empty batch, which says nothing (as in Kafka).
            producer.fenced &= producer.last is not None or not (self.gapped or self.weak)
        first = names.segment_bases(str(self.directory))[0]
        acts = [one.act for one in self.model.producers().values() if one.act is not None]
        if self.gapped or self.weak:
            self.vague |= {act.producer_id for act in acts if act.marker or (self.weak and act.offset < first)}
        if self.weak:
            self._replace_forgotten()

    def _replace_forgotten(self) -> None:
        first = names.segment_bases(str(self.directory))[0]
        for index, producer in enumerate(self.producers):
            if producer.fenced and (producer.last is None or producer.last.base < first):
                self.end(producer, False)
                self.vague.add(producer.id)
                self.producers[index] = Producer(producer.id + 10)
        self.note()

    def retain(self) -> None:
        if not (self.weak and self.model.open):
            super().retain()

    def _look(self) -> Any:
        noted = self._checkpoint(checkpoints.RECOVERY_POINT)
        what = super()._look()
        if self.dice.random() < 0.5:  # it is written each minute, and the cleaner was faster
            checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {} if noted is None else {TP: noted})
        self.gapped |= what is not None
        return what

    # --- damage between a stop and a start

    def damage(self, clean: bool, bases: list[int], point: int) -> None:
        """Something happens to one of the files."""
        some = [self.tear, self.spoil_index, self.spoil_index, self.lose_indexes, self.spoil_rows, self.spoil_snapshot]
        some += [self.lose_snapshots, self.stale_snapshot, self.spoil_epochs, self.spoil_checkpoints]
        self.dice.choice(some)(clean, [base for base in bases if self.path(base).exists()], point)

    def path(self, base: int, kind: str = names.LOG) -> Path:
        return names.segment_path(self.directory, base, kind)

    def _active(self, bases: list[int]) -> int:
        return bases[-1]

    def tear(self, clean: bool, bases: list[int], point: int) -> None:
        """Garbage behind the log's end, or its end is lost: in the last segment, which has not been synced."""
        path = self.path(bases[-1])
        data = path.read_bytes()
        cut = self.dice.randrange(len(data)) if data else 0
        leo = _end_within(path, bases[-1], cut)
        if self.dice.random() < 0.5 or not self._may_lose(leo, bases[0]):
            self.say("garbage behind the end")
            tail = self.dice.choice([self.dice.randbytes(self.dice.randrange(1, 200)), bytes(100), data[:70]])
            path.write_bytes(data + tail)
            return
        self.say(f"cut {path.name} at byte {cut} of {len(data)}")
        path.write_bytes(data[:cut])
        self.lose_from(leo)

    def _may_lose(self, leo: int, first: int) -> bool:
        """Nothing that the cleaner saw decided, and no end of a transaction whose beginning the log no more tells."""
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
        """The log knows no producers any more; they go on, all the same."""
        for producer in self.producers:
            producer.last, producer.fenced = None, False
        self.history.clear()
        self.note()

    def spoil_index(self, clean: bool, bases: list[int], point: int) -> None:
        """An offset or a time index is cut, changed, or ends in what a crashed Kafka leaves."""
        kind = self.dice.choice([names.INDEX, names.TIME_INDEX])
        path = self.path(self.dice.choice(bases), kind)
        if not path.exists():
            return
        data = bytearray(path.read_bytes())
        how = self.dice.choice(["cut", "flip", "flip", "zeros", "garbage"])
        if how == "cut":
            del data[self.dice.randrange(len(data) + 1) :]
        elif how == "flip" and data:
            data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
            self.excused.add(path.name)
        elif how == "zeros":
            data += bytes(24 * self.dice.randrange(1, 9))
        elif how == "garbage":
            data[:] = self.dice.randbytes(self.dice.randrange(1, 100))
        self.say(f"{how}: {path.name}")
        path.write_bytes(data)

    def lose_indexes(self, clean: bool, bases: list[int], point: int) -> None:
        for base in self.dice.sample(bases, self.dice.randrange(1, len(bases) + 1)):
            some = self.dice.choice(
                [(names.INDEX,), (names.TIME_INDEX,), names.INDEXES, (names.INDEX, names.TXN_INDEX)]
            )
            self.say(f"lost {some} of segment {base}")
            for kind in some:
                self.path(base, kind).unlink(missing_ok=True)

    def spoil_rows(self, clean: bool, bases: list[int], point: int) -> None:
        """A transaction index is changed, or loses a part of a row: once, or it might lose whole ones by parts."""
        there = [base for base in bases if self.path(base, names.TXN_INDEX).exists()]
        if not there:
            return
        path = self.path(self.dice.choice(there), names.TXN_INDEX)
        data = bytearray(path.read_bytes())
        if not data or path.name in self.spoiled:
            return
        self.spoiled.add(path.name)
        if self.dice.random() < 0.3:
            data += self.dice.randbytes(self.dice.randrange(1, 80))
        elif self.dice.random() < 0.3:
            del data[len(data) - self.dice.randrange(1, TXN_ENTRY.size) :]
        else:
            at = self.dice.randrange(len(data))
            data[at] ^= 1 << self.dice.randrange(8)
            first = int.from_bytes(data[at - at % TXN_ENTRY.size + 10 :][:8], "big")
            if 10 <= at % TXN_ENTRY.size < 18 and (self.gapped or 0 <= first < bases[0]):
                return
        self.say(f"spoiled {path.name}")
        path.write_bytes(data)

    def spoil_snapshot(self, clean: bool, bases: list[int], point: int) -> None:
        """One that does not read any more: the one before it is used."""
        if (found := self._snapshots()) and self._only_in_log(bases):
            path = self.dice.choice(found)
            data = bytearray(path.read_bytes())
            data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
            del data[self.dice.choice([len(data), self.dice.randrange(len(data))]) :]
            self.say(f"spoiled {path.name}")
            self.weak = True
            self.excused.add(path.name)  # until an older state is wanted
            path.write_bytes(data)

    def lose_snapshots(self, clean: bool, bases: list[int], point: int) -> None:
        found = self._snapshots()
        if not clean and found and self._only_in_log(bases):
            gone = self.dice.sample(found, self.dice.randrange(1, len(found) + 1))
            self.say(f"lost {[path.name for path in gone]}")
            self.weak = True
            for path in gone:
                path.unlink()

    def _snapshots(self) -> list[Path]:
        return sorted(self.directory.glob(f"*{names.SNAPSHOT}"))

    def _only_in_log(self, bases: list[int]) -> bool:
        """Whether the log's batches tell all there is to know of producers."""
        known = all(one.last is not None and one.last.base >= bases[0] for one in self.producers if one.fenced)
        return known and all(one.first >= bases[0] for one in self.model.open.values())

    def stale_snapshot(self, clean: bool, bases: list[int], point: int) -> None:
        """One of what was before the log's beginning, with a transaction that is long over."""
        if bases[0] > 1:
            offset = self.dice.randrange(1, bases[0])
            self.say(f"a stale snapshot at {offset}")
            write_snapshot(self.directory, offset, {99: ProducerEntry(0, 1, self.now_ms, offset - 1, [])})

    def spoil_epochs(self, clean: bool, bases: list[int], point: int) -> None:
        path = self.directory / epochs.FILE_NAME
        if path.exists():
            what = self.dice.choice(
                [None, self.dice.randbytes(30), b"0\n5\n0 0\n", path.read_bytes()[:-3] + b"x\n", b""]
            )
            self.say(f"{epochs.FILE_NAME}: {what!r}")
            self.lost_epochs = True
            path.unlink() if what is None else path.write_bytes(what)

    def spoil_checkpoints(self, clean: bool, bases: list[int], point: int) -> None:
        name = self.dice.choice(checkpoints.OFFSET_CHECKPOINTS)
        if name in (checkpoints.RECOVERY_POINT, checkpoints.LOG_START) and self.gapped:
            return  # the one keeps markers in the log, and below the other nothing was cleaned
        if name == checkpoints.LOG_START and self.model.leo == self.model.log_start:
            return  # the log may end below, and would begin there
        path = self.root / name
        how = self.dice.choice(["lost", "empty", "garbage"])
        self.say(f"{name}: {how}")
        path.unlink(missing_ok=True)
        if how != "lost":
            path.write_bytes(b"" if how == "empty" else self.dice.randbytes(40))

    def start_over(self) -> None:
        """The log ends below its checkpointed start."""
        start = self.model.leo + self.dice.randrange(1, 20)
        self.say(f"starts over at {start}")
        checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: start})
        self.model.start_over(start)
        self.forget()

    # --- what is there

    def reading(self, look: Callable[[], Any]) -> Any:
        """As readers do: where an index is damaged they try again, once the janitor has made it again."""
        for _ in range(MENDED):
            try:
                return look()
            except DamagedIndex as error:
                self.say(str(error))
                reindex.mend(self.partition)
        raise AssertionError("damaged again and again")

    def compare(self) -> None:
        self.reading(super().compare)
        self.reading(self._compare_raw)
        if self.dice.random() < 0.3:
            self.compare_files()

    def _compare_raw(self) -> None:
        found = _raw(self.live.partition(5))
        self.model.compare_raw([one for one in found if one.offset >= self.model.log_start])
        self._compare_aborted({one.offset for one in found})
        self._compare_times(found)
        self._compare_places([one.offset for one in found])
        self._compare_state()

    def _compare_places(self, found: list[int]) -> None:
        """From any offset on a reader gets the batch that holds the next record, whatever the index is like."""
        reader = self.live.partition(5)
        values = reader.slot.read()
        for offset in self.dice.sample(found, min(len(found), 10)):
            piece = read.fetch(reader, values, offset, self.model.leo, 1)
            assert piece is not None or offset < self.model.log_start
            first = next(iter(convert.split(piece.read()))) if piece is not None else b""
            assert piece is None or offset in [row[0] for row in batch_v2.iterate(first)]

    def _compare_state(self) -> None:
        """What appends go by, and what followers are told of epochs."""
        with self.partition.locked() as values:
            table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
            entries = {one.producer_id: one for one in table.entries()} if table is not None else {}
        self.model.compare_producers(entries, self.vague, self.gapped or self.weak)
        self._compare_epochs()

    def _compare_epochs(self) -> None:
        self.model.compare_epochs(list(EpochCache.read(self.directory).entries), self.forgotten)

    def _compare_aborted(self, there: set[int]) -> None:
        reader, first = self.live.partition(6), names.segment_bases(str(self.directory))[0]
        values = reader.slot.read()
        for _ in range(4):
            start = self.dice.randrange(self.model.log_start, self.model.leo + 1)
            end = self.dice.randrange(start, self.model.leo + 1)
            rows = transactions.aborted_between(reader, values, start, end)
            assert len(rows) == len(set(rows)), "one is there twice"
            self.model.compare_aborted(rows, start, end, first, there)

    def _compare_times(self, found: list[Raw]) -> None:
        """By a look at every record: those of markers count too, as in Kafka."""
        reader = self.live.partition(7)
        values = reader.slot.read()
        limit = self.dice.choice([self.model.leo, self.model.lso])
        stamps = sorted({one.timestamp for one in found})
        for _ in range(4 if stamps else 0):
            wanted = max(0, self.dice.choice(stamps) + self.dice.choice([-1, 0, 0, 1]))
            expected = next(
                (one for one in found if self.model.log_start <= one.offset < limit and one.timestamp >= wanted), None
            )
            got = by_time.first_not_before(reader, values, wanted, limit)
            assert (got and got[:2]) == (expected and (expected.timestamp, expected.offset))
        newest = max(found, key=lambda one: (one.timestamp, -one.offset), default=None)
        if newest is not None and (newest.timestamp < 0 or newest.offset >= limit):
            newest = None
        latest = by_time.newest(reader, values, limit)
        assert (latest and latest[:2]) == (newest and (newest.timestamp, newest.offset))

    def compare_files(self) -> None:
        """`odradek check` finds no fault but in indexes that were spoiled in a place that nobody has looked at yet."""
        faults = [one for one in check.check(self.directory, deep=True) if one.path.name not in self.excused]
        if self.forgotten:
            faults = [one for one in faults if not one.message.endswith("leader-epoch-checkpoint says -1")]
        assert not faults, [str(one) for one in faults]
        bad = {one.path.name for one in check.check(self.directory)} if self.excused else set()
        self.excused &= bad


def _truncate(partition: Partition, offset: int) -> None:
    with partition.locked() as values:
        truncate.truncate(partition, values, offset)


def _heads(partition: Partition) -> list[batch_v2.Header]:
    """Of all batches in the log's files."""
    return [batch_v2.header(one) for one in _batches(partition)]


def _end_within(path: Path, base: int, size: int) -> int:
    """Where the log ends when only so many bytes of its last segment are left."""
    with path.open("rb") as file:
        whole = Scan(file.fileno(), check=False, least_offset=base)
        return max((one.last_offset + 1 for one in whole if one.position + one.size <= size), default=base)


def _batches(partition: Partition) -> Iterator[bytes]:
    values = partition.slot.read()
    at = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])[0]
    while piece := read.fetch(partition, values, at, values[slots.F_LEO], 1 << 20):
        yield from convert.split(piece.read())
        assert piece.following > at
        at = piece.following


def _raw(partition: Partition) -> list[Raw]:
    """All records of the log's files."""
    found: list[Raw] = []
    for one in _batches(partition):
        control = batch_v2.header(one).is_control
        found += [Raw(row[0], row[1], control) for row in batch_v2.iterate(one)]
    return found
