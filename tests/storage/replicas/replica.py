"""One replica of a log: its files, its shared memory, and how the model's view of it differs from the leader's."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from odradek.broker.janitor import log_retention
from odradek.broker.janitor.log_retention import Retention
from odradek.broker.replicator import follower_log
from odradek.ipc import slots
from odradek.ipc.producers import ProducerEntry
from odradek.protocol.fetch import FetchPartition
from odradek.protocol.fetch_client import FetchedPartition
from odradek.storage.compaction import compaction
from odradek.storage.compaction.compaction import CleaningAborted, Compaction, DedupeBuffer
from odradek.storage.files import checkpoints, names
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import leader_or_follower, opening, read, roll, transactions
from odradek.storage.log.log import Log
from odradek.storage.log.opening import LogDir
from odradek.storage.log.partition import Partition
from odradek.storage.producers import snapshots
from odradek.storage.segment.epochs import EpochCache, UnknownEpoch, diverges
from odradek.storage.tools import check

from ..compaction.compaction_model import Transaction
from ..compaction.compaction_reader import stable, view
from ..compaction.compaction_world import TP, Producer
from ..live import live, note_flushed
from ..log_batches import heads, raw
from ..log_model import LogModel
from ..test_death import _dies_at
from ..written import write_snapshot


class Replica:
    """See the module's docstring. Broker `number`."""

    def __init__(self, root: Path, number: int, rng: random.Random, config: dict[str, Any]) -> None:
        self.root, self.number, self.rng, self.config = root, number, rng, config
        self.stack = ExitStack()
        self.reported = 0  # the log end that the leader knows of
        self.looked_upto = self.cleaned_upto = self.looked_leo = 0
        self.looked_at: dict[int, int] = {}
        self.reloaded = 0
        self.gapped = self.vague = False
        self.source = 0  # the leader epoch in which its log was last a prefix of its leader's
        self.expired: set[int] = set()  # producers that this replica has forgotten, at least once
        self.evicts = config.get("producers_max", 1000) < 10
        self.forgotten = 0  # the log start went back from there, but not the epochs
        self.begins = 0  # where a log that was started over begins
        self.open(True, slots.FOLLOWER)

    @property
    def directory(self) -> Path:
        return self.root / "t-0"

    @property
    def values(self) -> Any:
        return self.partition.slot.read()

    @property
    def leo(self) -> int:
        return int(self.values[slots.F_LEO])

    @property
    def hw(self) -> int:
        return int(self.values[slots.F_HW])

    @property
    def log_start(self) -> int:
        return int(self.values[slots.F_LOG_START])

    # -- starts

    def open(self, clean: bool, state: int) -> None:
        self.live = self.stack.enter_context(live(self.root, **self.config))
        self.partition = self.live.partition()
        slot = self.partition.slot
        slot.publish(slot.state()._replace(state=slots.RECOVERING, recovers_to=state))
        assert isinstance(self.partition.owner, Log)
        log_dir = LogDir.read(str(self.root), clean)
        assert opening.open_all(self.partition.owner, [TP], [log_dir], lambda: None) == 1
        assert self.partition.state().state == state, self.partition.state()

    def restart(self, clean: bool) -> None:
        """Stop or kill the broker, and start it. Checkpoints are of any age that the janitor may have written."""
        with self.partition.locked() as values:
            if clean:
                self._settle(values)
        state = self.partition.state()
        bases = self.partition.bases(state.active_base, state.generation)
        noted = self._checkpoint(checkpoints.RECOVERY_POINT)
        flushed = max(noted, self.rng.choice([base for base in bases if base <= max(state.flushed, noted)] or [0]))
        checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {TP: state.leo if clean else flushed})
        hw = state.hw if clean else self.rng.choice([state.hw, self._checkpoint(checkpoints.HIGH_WATERMARK)])
        checkpoints.write_offsets(self.root, checkpoints.HIGH_WATERMARK, {TP: min(hw, state.hw)})
        if clean or self.rng.random() < 0.5:
            checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: state.log_start})
        self._reopen(clean)
        assert self.leo == state.leo
        assert self.log_start <= state.log_start

    def crash(self) -> None:
        """The broker dies at any step of one of its processes."""
        self._reopen(False)

    def _reopen(self, clean: bool) -> None:
        start = self.log_start
        self.stack.close()
        self.stack = ExitStack()
        self.open(clean, slots.FOLLOWER)
        if self.log_start < start:
            self.forgotten = max(self.forgotten, start)
        self.reloaded = self.leo

    def _settle(self, values: slots.Fields) -> None:
        table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
        if table is not None:
            producers = snapshots.decode(snapshots.encode_table(table))
            write_snapshot(self.directory, values[slots.F_LEO], producers, sync=False)
        if values[slots.F_ACTIVE_SIZE]:
            roll.seal_time_index(self.partition, values)
            self.partition.slot.publish(values)

    def _checkpoint(self, name: str) -> int:
        try:
            return checkpoints.read_offsets(self.root, name).get(TP, 0)
        except CheckpointError:
            return 0

    # -- leading

    def lead(self, epoch: int, others: list[int], isr: list[int]) -> None:
        with self.partition.locked() as values:
            leader_or_follower.become_leader(self.partition, values, epoch, others, isr, 0)

    def keep_isr(self, isr: list[int]) -> None:
        with self.partition.locked() as values:
            leader_or_follower.apply_isr(self.partition, values, isr)

    def follow(self, epoch: int) -> None:
        with self.partition.locked() as values:
            leader_or_follower.become_follower(self.partition, values, epoch)

    def advance(self, hw: int) -> None:
        """The in-sync replicas have all below `hw`."""
        with self.partition.locked() as values:
            if hw > values[slots.F_HW]:
                values[slots.F_HW] = min(hw, values[slots.F_LEO])
                self.partition.slot.publish(values)

    # -- following

    def fetch(self, leader: Replica, now_ms: int, most: int, die: int | None = None, whole: bool = False) -> str:
        """One fetch and what follows from it; `die`: the replicator ends at that call, `whole`: with its broker."""
        where = follower_log.position(self.partition)
        there = leader.values
        cache = EpochCache.read_noted(leader.directory, there[slots.F_LATEST_EPOCH])
        epoch = self.partition.state().leader_epoch
        leader_of = leader.live.partition(3)
        if not there[slots.F_LOG_START] <= where.offset <= there[slots.F_LEO]:
            return self._out_of_range(leader, where.offset, epoch, die, whole)
        try:
            diverging = diverges(cache, where.last_epoch, where.offset, there[slots.F_LEO])
        except UnknownEpoch:
            return self._out_of_range(leader, where.offset, epoch, die, whole)
        if diverging is not None:
            epoch_, end = diverging
            self._do("diverged", epoch, lambda one: follower_log.cut_diverging(one, epoch_, end), die, whole)
            return "diverged"
        self.reported = max(self.reported, where.offset)
        piece = read.fetch(leader_of, there, where.offset, there[slots.F_LEO], most)
        data = b"" if piece is None else piece.read()
        sent = FetchPartition(b"t", 0, *where, most)
        part = FetchedPartition(b"t", 0, 0, there[slots.F_HW], there[slots.F_LOG_START], memoryview(data), None)
        self._do("append", epoch, lambda one: follower_log.append(one, sent, part, now_ms, None), die, whole)
        return "append"

    def _out_of_range(self, leader: Replica, own: int, epoch: int, die: int | None, whole: bool) -> str:
        if leader.leo < own:
            self._do("cut", epoch, lambda one: follower_log.cut_to(one, leader.leo), die, whole)
        elif leader.log_start > own:
            self._do("restart", epoch, lambda one: follower_log.restart(one, leader.log_start), die, whole)
            self.begins, self.vague = leader.log_start, True
        else:
            raise AssertionError(f"{own} is within {leader.log_start} to {leader.leo}")
        return "out of range"

    def _do(self, what: str, epoch: int, change: Any, die: int | None, whole: bool) -> None:
        if die is None:
            follower_log.change(self.partition, epoch, change(self.partition))
        else:

            def work(partition: Partition) -> None:
                follower_log.change(partition, epoch, change(partition))

            _dies_at(self.live, die, work)
            if whole:
                self.crash()
                self.follow(epoch)
            else:
                self.mend()
        if what != "append":
            self.reloaded = self.leo

    def mend(self) -> None:
        """Take the lock, which repairs."""
        with self.live.partition(2).locked():
            pass

    # -- the janitor

    def flush(self) -> None:
        note_flushed(self.partition)

    def roll(self) -> None:
        with self.partition.locked() as values:
            roll.roll(self.partition, values)

    def configure(self, **config: Any) -> None:
        """The topic's configs become others."""
        self.config = self.config | config
        self.live.config |= {name.replace("_", "."): value for name, value in config.items()}
        for log in self.live.logs:
            log.refresh()

    def expire(self, truth: LogModel, now_ms: int, after_ms: int) -> int:
        """Expire producers as the janitor does; any may be forgotten from now on, but no open transaction."""
        gone = log_retention.expire_producers(self.partition, now_ms, after_ms)
        self.expired |= set(truth.producers())
        return gone

    def retain(self, now_ms: int) -> int:
        Retention().trim(self.partition, now_ms)
        return self.log_start

    def clean(self, truth: LogModel, now_ms: int, memory: DedupeBuffer) -> bool:
        """One round of the cleaner, by what is below the high watermark."""
        self.flush()
        try:
            offsets = checkpoints.read_offsets(self.root, checkpoints.CLEANER)
        except CheckpointError:
            offsets = {}
        what = compaction.find_range(self.partition, offsets.get(TP), now_ms)
        if not what.due(0.0):
            return False
        checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: what.first_dirty})
        self.gapped = True
        self.looked_upto, self.looked_leo = max(self.looked_upto, what.upto), self.leo
        for offset in truth.written:
            if offset < what.upto:
                self.looked_at[offset] = min(self.looked_at.get(offset, now_ms), now_ms)
        going = Compaction(self.live.partition(2), what, memory, now_ms)
        try:
            for _ in going.steps():
                pass
        except CleaningAborted:
            return False
        checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: going.cleaned_upto})
        self.cleaned_upto = max(self.cleaned_upto, going.cleaned_upto)
        return True

    def takes_over(self, leader: Replica, start: int) -> None:
        """What the leader's cleaner may have removed is not there either, from `start` on."""
        self.looked_upto = max(self.looked_upto, leader.looked_upto)
        for offset, at in leader.looked_at.items():
            self.looked_at[offset] = min(self.looked_at.get(offset, at), at)
        self.gapped |= leader.gapped
        if leader.gapped and start < leader.looked_upto:  # of a producer's batches there only the last is left
            self.reloaded = max(self.reloaded, leader.looked_upto)
        self.vague |= leader.vague

    # -- comparison

    def compare(self, truth: LogModel, now_ms: int) -> None:
        """All that the leader has written is here, as far as it is not cleaned or deleted."""
        values = self.values
        assert values[slots.F_LEO] == truth.leo == values[slots.F_HW], (self.number, values[slots.F_HW])
        model = self._model(truth)
        assert stable(values) == model.lso, self.number
        committed, uncommitted = view(self.partition, True), view(self.partition, False)
        model.compare(committed, uncommitted, now_ms)
        found = raw(self.live.partition(5))
        model.compare_raw([one for one in found if one.offset >= self.log_start])
        self._compare_aborted(model, {one.offset for one in found})
        self._compare_producers(model)
        self._compare_epochs(truth)
        if (self.gapped or self.partition.config.compacted) and not self._checkpoint(checkpoints.CLEANER):
            # As the janitor does before the first round. (Not for what came when the topic was no longer compacted:
            # there `odradek check` says that it cannot know.)
            checkpoints.write_offsets(self.root, checkpoints.CLEANER, {TP: self.log_start})
        if self._checkpoint(checkpoints.LOG_START) < self.log_start:  # a truncation may have lowered it
            checkpoints.write_offsets(self.root, checkpoints.LOG_START, {TP: self.log_start})
        faults = [str(one) for one in check.check(self.directory, deep=True)]
        if self.forgotten:
            faults = [one for one in faults if not one.endswith("leader-epoch-checkpoint says -1")]
        assert not faults, faults

    def _model(self, truth: LogModel) -> LogModel:
        model = copy.copy(truth)
        model.log_start, model.looked_upto, model.cleaned_upto = self.log_start, self.looked_upto, self.cleaned_upto
        model.looked_leo, model.reloaded = self.looked_leo, self.reloaded
        if self.begins:
            model.open = dict(self._opened(truth))
        model.written = {offset: copy.copy(one) for offset, one in truth.written.items()}
        for offset, one in model.written.items():
            one.looked_at = self.looked_at.get(offset, one.looked_at)
        return model

    def _opened(self, truth: LogModel) -> Iterator[tuple[int, Transaction]]:
        """The open transactions as a log that begins late knows them."""
        for producer_id, one in truth.open.items():
            acts = [act.offset for act in truth.acts if act.producer_id == producer_id and act.last >= self.begins]
            first = min((at for at in acts if at >= one.first), default=None)
            if first is not None:
                yield producer_id, Transaction(producer_id, first)

    def _compare_aborted(self, model: LogModel, there: set[int]) -> None:
        reader, first = self.live.partition(6), names.segment_bases(str(self.directory))[0]
        values = reader.slot.read()
        for _ in range(4):
            start = self.rng.randrange(self.log_start, model.leo + 1)
            end = self.rng.randrange(start, model.leo + 1)
            rows = transactions.aborted_between(reader, values, start, end)
            assert len(rows) == len(set(rows)), "one is there twice"
            model.compare_aborted(rows, start, end, first, there)

    def knows(self, producer_id: int, sequence: int) -> bool:
        """Whether the producer table has the batch that begins with this sequence."""
        entry = self._entry(producer_id)
        return entry is not None and any(batch.first_sequence == sequence for batch in entry.batches)

    def lacks_sequence(self, producer: Producer) -> bool:
        """Whether a log that was started over begins between a producer's last batch and its marker.

        Kafka refuses the next batch then, too (ProducerAppendInfo.checkSequence): the client gets another epoch.
        """
        entry = self._entry(producer.id)
        return self.vague and entry is not None and entry.epoch == producer.epoch and not entry.batches

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        with self.partition.locked() as values:
            table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
            at = table.find(producer_id) if table is not None else -1
            return table.entry(at) if table is not None and at >= 0 else None

    def _compare_producers(self, model: LogModel) -> None:
        with self.partition.locked() as values:
            table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
            entries = {one.producer_id: one for one in table.entries()} if table is not None else {}
        everyone = set(model.producers())
        if self.evicts:
            if not self.vague:
                model.compare_some_producers(entries, self.gapped)
            return
        vague = everyone if self.vague else self.expired
        model.compare_producers(entries, vague, self.gapped)

    def _compare_epochs(self, truth: LogModel) -> None:
        cache = EpochCache.read(self.directory)
        for head in heads(self.live.partition(5)):
            at = max(head.base_offset, self.log_start, self.forgotten)
            if at <= head.last_offset:
                expected = max((epoch for epoch, start in truth.epochs if start <= at), default=-1)
                assert cache.epoch_of(at) == head.leader_epoch == expected, (self.number, head, cache.entries)
