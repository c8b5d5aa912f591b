"""Stops and starts of the broker of a log."""

from __future__ import annotations

from typing import Any

from odradek.ipc import slots
from odradek.storage.files import checkpoints, names

from .compaction.compaction_world import TP, Producer
from .log_batches import heads
from .log_damage import LogDamage
from .log_model import assigned, begun


class LogStarts(LogDamage):
    """The state that a start reads from the files, with its comparison."""

    def restart(self, clean: bool, recovery_point: int, damages: int = 0) -> None:
        """Stop the broker and start it; damage its files in between."""
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
        if not damages and self.rng.random() < 0.1:
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

    def _started(self, clean: bool) -> None:
        state = self.partition.state()
        assert state.state == slots.LEADER, state
        assert (state.leo, state.log_start) == (self.model.leo, self.model.log_start)
        assert state.hw == state.leo
        self._epochs_read()
        self._compare_epochs()
        self.lead()  # and only then may a process write
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
            for head in heads(self.live.partition(5)):
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
        if self.rng.random() < 0.5:  # it is written each minute, and the cleaner was faster
            checkpoints.write_offsets(self.root, checkpoints.RECOVERY_POINT, {} if noted is None else {TP: noted})
        self.gapped |= what is not None
        return what
