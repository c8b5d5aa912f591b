"""A compacted log with producers, the cleaner, retention, deaths and restarts, and its model."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor.log_retention import Retention
from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records import batch_v2
from odradek.storage.compaction import compaction
from odradek.storage.compaction.cleanable import CleanableRange
from odradek.storage.compaction.compaction import BUSY, CleaningAborted, Compaction, DedupeBuffer
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import control_batch, opening, roll, trim, truncate
from odradek.storage.log.append import append
from odradek.storage.log.flush import Flush
from odradek.storage.log.log import Log
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.opening import LogDir
from odradek.storage.log.partition import Partition
from odradek.storage.producers import snapshots
from odradek.storage.tools import check

from ..live import NOW, live, note_flushed
from ..written import write_snapshot
from .compaction_model import Model
from .compaction_reader import Seen, stable, view

Header = tuple[bytes, bytes | None]
Row = tuple[bytes | None, bytes | None, tuple[Header, ...]]
TP = ("t", 0)


class Sent:
    """A batch that a producer may send again."""

    def __init__(self, rows: list[Row], sequence: int, base: int, codec: int, timestamp: int, inside: bool) -> None:
        self.rows, self.sequence, self.base, self.codec, self.timestamp = rows, sequence, base, codec, timestamp
        self.inside = inside  # a transaction


class Producer:
    """The state of an idempotent producer on the client's side."""

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.last: Sent | None = None
        self.former = 0  # the sequence that was next in the epoch before
        self.fenced = True  # the log knows its epoch

    def bump(self) -> None:
        self.epoch, self.former = self.epoch + 1, self.sequence
        self.sequence, self.last, self.fenced = 0, None, True


class World:
    """See the module's head; `close` it."""

    model_class: type[Model] = Model

    def __init__(self, root: Path, **config: Any) -> None:
        self.root = root
        self.config = config
        self.now_ms = NOW
        self.model = self.model_class(config["delete_retention_ms"])
        self.producers = [Producer(100 + n) for n in range(3)]
        self.going: tuple[Compaction, Iterator[int]] | None = None
        self._spoiled = False  # the checkpoint
        self._stack = ExitStack()
        self._open(True)

    def _open(self, clean: bool) -> None:
        """Start as a broker: create shared memory, and recover the log."""
        self.live = self._stack.enter_context(live(self.root, **self.config))
        self.partition = self.live.partition()
        slot = self.partition.slot
        slot.publish(slot.state()._replace(state=slots.RECOVERING, recovers_to=slots.LEADER))
        log_dir = LogDir.read(str(self.root), clean)
        assert isinstance(self.partition.owner, Log)
        assert opening.open_all(self.partition.owner, [TP], [log_dir], lambda: None) == 1

    def close(self) -> None:
        """Abort the current round and release everything."""
        self.give_up()
        self._stack.close()

    # --- producers

    def stamp(self) -> int:
        """The time of the next batch's first record."""
        return self.now_ms

    def send(
        self, rows: list[Row], codec: int = 0, producer: Producer | None = None, inside: bool = False,
    ) -> None:  # fmt: skip
        """Append a batch, in a transaction of the producer if `inside`."""
        sequence = producer.sequence if producer is not None else -1
        timestamp = self.stamp()
        batch, records = self._batch(rows, codec, producer, sequence, timestamp, inside)
        base = self.model.leo
        transaction = self.model.begin(producer.id) if producer is not None and inside else None
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, base)
        self.model.append([one._replace(offset=base + n) for n, one in enumerate(records)], transaction)
        if producer is not None:
            producer.fenced = True
            producer.last = Sent(rows, sequence, base, codec, timestamp, inside)
            producer.sequence += len(rows)

    def send_as_coordinator(self, rows: list[Row], producer: Producer) -> None:
        """A batch of a transaction that has no sequence: offsets that a group coordinator wrote."""
        batch, records = self._batch(rows, 0, producer, -1, self.stamp(), True)
        transaction = self.model.begin(producer.id)
        base = self.model.leo
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, base)
        self.model.append([one._replace(offset=base + n) for n, one in enumerate(records)], transaction)

    def retry(self, producer: Producer) -> None:
        """Send the producer's last batch again after a lost response: the log detects the duplicate."""
        sent = producer.last
        if sent is None:
            return
        batch, _ = self._batch(sent.rows, sent.codec, producer, sent.sequence, sent.timestamp, sent.inside)
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, sent.base), "a retry was not recognised"

    def send_stale(self, producer: Producer) -> None:
        """A batch of the producer's former epoch, and one behind a gap: both are refused."""
        rows: list[Row] = [(b"stale", b"stale", ())]
        if producer.epoch and producer.fenced:
            former = Producer(producer.id)
            former.epoch = producer.epoch - 1
            for sequence in {0, producer.former}:
                batch, _ = self._batch(rows, 0, former, sequence, self.now_ms, sequence > 0)
                self._append(batch)
                assert batch.error == errors.INVALID_PRODUCER_EPOCH
        if producer.last is not None:
            batch, _ = self._batch(rows, 0, producer, producer.sequence + 7, self.now_ms, False)
            self._append(batch)
            assert batch.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER

    def end(self, producer: Producer, commit: bool) -> None:
        """Commit or abort what the producer has open."""
        if producer.id in self.model.open:
            self._mark(producer, commit)

    def fence(self, producer: Producer) -> None:
        """Initialize the producer again: its open transaction is aborted under its next epoch."""
        producer.bump()
        self._mark(producer, False)

    def _mark(self, producer: Producer, commit: bool) -> None:
        written = control_batch.write_marker(self.partition, producer.id, producer.epoch, 1, commit, self.now_ms)
        assert written == errors.NONE
        self.model.end(producer.id, commit)

    def _batch(
        self, rows: list[Row], codec: int, producer: Producer | None, sequence: int, timestamp: int, inside: bool
    ) -> tuple[Batch, list[Seen]]:
        records = [(n, timestamp + n, key, value, headers) for n, (key, value, headers) in enumerate(rows)]
        who = (producer.id, producer.epoch, sequence) if producer is not None else (-1, -1, -1)
        fields = dict(zip(("producer_id", "producer_epoch", "base_sequence"), who, strict=True))
        attributes = TRANSACTIONAL if inside else 0
        data = bytearray(batch_v2.build(records, base_offset=0, codec=codec, attributes=attributes, **fields))
        batch = Batch(memoryview(data), len(rows), records[-1][1], *who)
        batch.transactional = inside
        return batch, [Seen(*one) for one in records]

    def _append(self, batch: Batch) -> None:
        with self.partition.locked() as values:
            append(self.partition, values, [batch], self.now_ms)

    # --- administrators and time

    def roll(self) -> None:
        """Seal the active segment."""
        with self.partition.locked() as values:
            roll.roll(self.partition, values)

    def delete_records(self, offset: int) -> None:
        """DeleteRecords up to `offset`, which is at most the last stable one."""
        with self.partition.locked() as values:
            trim.advance(self.partition, values, offset)
        self._note_start()

    def retain(self) -> None:
        """Retention by cleanup.policy, retention.ms and retention.bytes."""
        Retention().trim(self.partition, self.now_ms)
        self._note_start()

    def _note_start(self) -> None:
        start = self.partition.state().log_start
        assert start >= self.model.log_start
        self.model.log_start = start
        checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: start})

    def configure(self, **config: Any) -> None:
        """The topic's configs become others."""
        self.config |= config
        self.live.config |= {name.replace("_", "."): value for name, value in config.items()}
        for log in self.live.logs:
            log.refresh()

    def truncate(self, part: int) -> None:
        """Follow another leader for a moment, which lacks the end of the log; then the producers begin again."""
        first = max(self.model.looked_leo, self.model.log_start)
        offset = first + (self.model.leo - first) * part // 4
        slot = self.partition.slot
        with self.partition.locked() as values:
            values[slots.F_STATE] = slots.FOLLOWER
            slot.publish(values)
            truncate.truncate(self.partition, values, offset)
            values[slots.F_STATE] = slots.LEADER
            slot.publish(values)
        state = self.partition.state()
        assert state.leo <= offset
        self.model.truncate(state.leo, state.log_start)
        checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: state.log_start})
        for producer in self.producers:
            self.fence(producer)

    # --- the cleaner

    def _look(self) -> CleanableRange | None:
        note_flushed(self.partition)
        try:
            offsets = checkpoints.read_offsets(self.root, checkpoints.CLEANER)
        except CheckpointError:  # as broker.janitor.cleaner_offsets
            offsets = {}
        what = compaction.find_range(self.partition, offsets.get(TP), self.now_ms)
        if not self.partition.config.compacted or not what.due(0.0):
            return None
        assert what.upto <= self.model.lso
        checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: what.first_dirty})
        self.model.look(what.upto, self.now_ms)
        return what

    def spoil_checkpoint(self, text: str) -> None:
        """Corrupt the cleaner's checkpoint; then no part of the log counts as clean."""
        (self.root / checkpoints.CLEANER).write_text(text)
        self._spoiled = True

    def begin_round(self, memory: DedupeBuffer) -> None:
        """Begin a round of the cleaner that other operations interrupt."""
        self.give_up()
        what = self._look()
        if what is not None:
            going = Compaction(self.live.partition(2), what, memory, self.now_ms)
            self.going = going, going.steps()

    def go_on(self, steps: int) -> None:
        """Run some steps of the current round."""
        for _ in range(steps):
            if self.going is None:
                return
            going, monitored = self.going
            try:
                if next(monitored, None) is None:
                    self.going = None
                    self._finished(going)
            except CleaningAborted:
                self.going = None

    def clean_refused(self, memory: DedupeBuffer, call: int) -> None:
        """Run a whole round in which the disk refuses one of the changing calls. The log is synced before, because a
        failed sync takes it offline.
        """
        calls = iter(range(call))

        def around(do: Callable[..., Any]) -> Callable[..., Any]:
            def refusing(*args: Any, **keywords: Any) -> Any:
                if next(calls, None) is None and next(once, False):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return do(*args, **keywords)

            return refusing

        once = iter([True])
        flush = Flush.begin(self.partition)
        flush.sync()
        with self.partition.locked() as values:
            flush.publish(values)
        self.begin_round(memory)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("pwrite", "fsync", "rename", "replace", "open", "utime"):
                patch.setattr(os, name, around(getattr(os, name)))
            while self.going is not None:
                self._go_on_refused()
        with self.live.partition(3).locked():
            pass  # repairs

    def _go_on_refused(self) -> None:
        assert self.going is not None
        going, steps = self.going
        try:
            if next(steps, None) is None:
                self.going = None
        except (CleaningAborted, OSError):
            self.going = None
        if self.going is None:
            self.model.cleaned_upto = max(self.model.cleaned_upto, going.cleaned_upto)

    def give_up(self) -> None:
        """Abort the current round."""
        if self.going is not None:
            self.going[1].close()  # type: ignore[attr-defined]  # a generator
            self.going = None

    def clean(self, memory: DedupeBuffer) -> None:
        """A whole round."""
        self.begin_round(memory)
        while self.going is not None:
            self.go_on(1)

    def _finished(self, going: Compaction) -> None:
        checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: going.cleaned_upto})
        self.model.cleaned_upto = max(self.model.cleaned_upto, going.cleaned_upto)

    def clean_and_die(self, memory: DedupeBuffer, dies: Callable[[Any, int, Callable[[Partition], None]], bool],
                      step: int) -> None:  # fmt: skip
        """Run a round in a separate process that exits, without cleaning up, at its n-th call."""
        self.give_up()
        what = self._look()
        if what is None:
            return

        def work(partition: Partition) -> None:
            going = Compaction(partition, what, memory, self.now_ms)
            for one in going.steps():
                if one == BUSY:
                    time.sleep(0.001)
            checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: going.cleaned_upto})

        if not dies(self.live, step, work):
            upto = checkpoints.read_offsets(self.root, checkpoints.CLEANER)[TP]
            self.model.cleaned_upto = max(self.model.cleaned_upto, upto)
        with self.live.partition(3).locked():
            pass  # repairs

    # --- starts

    def restart(self, clean: bool, recovery_point: int) -> None:
        """Stop the broker and start it: after a kill, what is past `recovery_point` is checked batch by batch."""
        self.give_up()
        with self.partition.locked() as values:
            if clean:
                self.settle(values)
        state = self.partition.state()
        base = max(base for base in self.partition.bases(state.active_base, state.generation) if base <= recovery_point)
        point = state.leo if clean else base
        checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {TP: point})
        checkpoints.write_offsets(self.root, checkpoints.HIGH_WATERMARK, {TP: state.hw})
        self._stack.close()
        self._open(clean)
        for producer in self.producers:
            # The marker that fenced it may be only an empty batch now, which has no epoch (as in Kafka).
            producer.fenced &= clean or producer.last is not None
        again = self.partition.state()
        assert (again.state, again.leo, again.hw) == (slots.LEADER, state.leo, state.hw)
        assert again.log_start == state.log_start

    def settle(self, values: slots.Fields) -> None:
        """What a clean stop writes. Caller holds the lock."""
        table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
        if table is not None:
            producers = snapshots.decode(snapshots.encode_table(table))
            write_snapshot(self.partition.directory, values[slots.F_LEO], producers, sync=False)
        if values[slots.F_ACTIVE_SIZE]:
            roll.seal_time_index(self.partition, values)
            self.partition.slot.publish(values)

    # --- what is there

    def compare(self) -> None:
        """Check that all readers see only permitted records, and that the files are consistent."""
        values = self.partition.slot.read()
        assert values[slots.F_LEO] == self.model.leo
        assert stable(values) == self.model.lso
        committed, uncommitted = view(self.partition, True), view(self.partition, False)
        self.model.compare(committed, uncommitted, self.now_ms)
        reader = self.live.partition(4)
        for offset in range(self.model.log_start, self.model.leo, max(1, self.model.leo // 5)):
            assert view(reader, True, offset, 1) == [one for one in committed if one.offset >= offset]

    def compare_files(self) -> None:
        """`odradek check` finds no fault; gaps are none once the cleaner was there."""
        if self._spoiled:  # by the checkpoint it knows that the cleaner was there
            checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: 0})
            self._spoiled = False
        found = [str(fault) for fault in check.check(self.root / "t-0", deep=True)]
        assert found == [], "\n".join([*found, *os.listdir(self.root / "t-0")])
