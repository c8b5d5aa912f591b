"""A log and its model, which change together."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from odradek.storage.files import checkpoints
from odradek.storage.log import leader_or_follower

from .compaction.compaction_world import TP, Producer, Row, World
from .log_model import Act, LogModel


class LogSteps(World):
    """`said`: the operations so far, for failure messages."""

    model: LogModel
    model_class = LogModel

    def __init__(self, root: Path, rng: random.Random, **config: Any) -> None:
        self.rng = rng
        self.said: list[str] = []
        self.excused: set[str] = set()  # files in which an entry may be wrong until a reader meets it
        self.spoiled: set[str] = set()  # transaction indexes, at this stop
        self.history: list[tuple[int, list[Producer]]] = []  # (log end, producers then)
        self.gapped = False  # the cleaner was there
        self.weak = False  # snapshots were lost: after a kill what is deleted from the log may not be known any more
        self.forgotten = 0  # the log start went back from there, but not the epochs
        self.lost_epochs = False  # they have to be found in the batches
        self.vague: set[int] = set()  # producers whose state the files may lack
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
        """Save the state of the producers, in case the log's end is lost."""
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
        if not act.marker and act.sequence >= 0:  # the state that must be known from now on
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
        return self.now_ms + self.rng.choice([0, 0, 0, 700, -10, -5000])

    def _checkpoint(self, name: str) -> int | None:
        """The checkpoint's offset of the log; None also where it cannot be read."""
        try:
            return checkpoints.read_offsets(self.root, name).get(TP)
        except checkpoints.CheckpointError:
            return None
