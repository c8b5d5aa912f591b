"""Three replicas of one log, producers, elections, deaths; and the model of what the leader has in its log.

Only members of the ISR are elected; a member may be elected that has not yet truncated what the last leader lacks, so
the model of each former leader's log is kept: the log of an elected replica is the beginning of one of them.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.log import control_batch, trim
from odradek.storage.log.append import append

from ..compaction.compaction_world import Producer, Row, Sent, World
from ..live import NOW
from ..log_model import Act, LogModel
from .replica import Replica


def _batch(*args: Any) -> Any:
    return World._batch(None, *args)  # type: ignore[arg-type]  # it needs no world


class History:
    """The model of one leader's log, with the producers as they were at each of its ends."""

    def __init__(self, producers: int) -> None:
        self.truth = LogModel(0)
        self.producers = [Producer(100 + n) for n in range(producers)]
        self.ends: list[tuple[int, list[Producer]]] = []
        self.note()

    def note(self) -> None:
        self.ends.append((self.truth.leo, copy.deepcopy(self.producers)))

    def cut(self, leo: int) -> None:
        self.truth.truncate(leo, self.truth.log_start)
        self.ends = [one for one in self.ends if one[0] <= leo]
        self.producers = copy.deepcopy(self.ends[-1][1])


class Replicas:
    """See the module's docstring. `done` counts the operations that had an effect."""

    def __init__(self, root: Path, rng: random.Random, **config: Any) -> None:
        self.rng, self.config = rng, config
        self.now_ms = NOW
        self.done: Counter[str] = Counter()
        self.now = History(8 if config.get("producers_max") else 3)
        self.now.truth.delete_retention_ms = config["delete_retention_ms"]
        self.former: dict[int, History] = {0: copy.deepcopy(self.now)}
        self.replicas = []
        for number in range(3):
            (root / str(number)).mkdir()
            other = config | {"segment_bytes": rng.choice([config["segment_bytes"], 700])}
            self.replicas.append(Replica(root / str(number), number, rng, other))
        self.epoch = 0
        self.leader = self.replicas[0]
        self.isr = {0, 1, 2}
        self.committed = 0
        self._lead()

    def close(self) -> None:
        for one in self.replicas:
            one.stack.close()

    @property
    def truth(self) -> LogModel:
        return self.now.truth

    @property
    def followers(self) -> list[Replica]:
        return [one for one in self.replicas if one is not self.leader]

    # -- the controller

    def elect(self, number: int) -> None:
        """Elect a member of the ISR."""
        if number not in self.isr:
            return
        elected = self.replicas[number]
        self.former[self.epoch] = self.now
        self.now = copy.deepcopy(self.former[elected.source])
        self.now.cut(elected.leo)
        assert elected.leo >= self.committed
        self.leader = elected
        self._lead()
        self.done["elect"] += 1

    def _lead(self) -> None:
        self.epoch += 1
        leader = self.leader
        others = [one.number for one in self.followers]
        leader.lead(self.epoch, others, sorted(self.isr))
        self.truth.lead(self.epoch)
        leader.source = self.epoch
        for one in self.followers:
            one.follow(self.epoch)
        for one in self.replicas:
            one.reported = 0
        self._advance()

    def drop(self, number: int) -> None:
        """Remove a follower from the ISR."""
        if self.replicas[number] is not self.leader:
            self.isr.discard(number)
            self._advance()

    def _advance(self) -> None:
        leader = self.leader
        leader.keep_isr(sorted(self.isr))
        hw = min([leader.leo, *(one.reported for one in self.followers if one.number in self.isr)])
        leader.advance(hw)
        self.committed = max(self.committed, leader.hw)
        for one in self.followers:
            least = max(
                leader.hw, leader.values[slots.F_EPOCH_START]
            )  # its high watermark may be behind what is committed
            if one.source == self.epoch and one.reported >= least and one.number not in self.isr:
                self.isr.add(one.number)
                leader.keep_isr(sorted(self.isr))

    # -- producers

    def _append(self, batch: Any) -> None:
        with self.leader.partition.locked() as values:
            append(self.leader.partition, values, [batch], self.now_ms)

    def stamp(self) -> int:
        return self.now_ms + self.rng.choice([0, 0, 0, 700, -10, -5000])

    def send(self, rows: list[Row], codec: int, producer: Producer | None, inside: bool) -> None:
        if producer is not None and producer.sequence and self.leader.lacks_sequence(producer):
            self.fence(producer)
            return
        sequence, timestamp = producer.sequence if producer is not None else -1, self.stamp()
        batch, records = _batch(rows, codec, producer, sequence, timestamp, inside)
        base = self.truth.leo
        transaction = self.truth.begin(producer.id) if producer is not None and inside else None
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, base)
        self.truth.append([one._replace(offset=base + n) for n, one in enumerate(records)], transaction)
        if producer is not None:
            producer.fenced = True
            producer.last = Sent(rows, sequence, base, codec, timestamp, inside)
            producer.sequence += len(rows)
            last = timestamp + len(rows) - 1
            act = Act(base, self.truth.leo - 1, producer.id, producer.epoch, sequence, last, inside)
            self.truth.acts.append(act)
        self.now.note()
        self.done["send"] += 1
        self._advance()

    def send_as_coordinator(self, rows: list[Row], producer: Producer) -> None:
        if producer.sequence:
            self.fence(producer)
        timestamp, base = self.stamp(), self.truth.leo
        batch, records = _batch(rows, 0, producer, -1, timestamp, True)
        transaction = self.truth.begin(producer.id)
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, base)
        self.truth.append([one._replace(offset=base + n) for n, one in enumerate(records)], transaction)
        last = timestamp + len(rows) - 1
        self.truth.acts.append(Act(base, self.truth.leo - 1, producer.id, producer.epoch, -1, last, inside=True))
        self.now.note()
        self._advance()

    def end(self, producer: Producer, commit: bool) -> None:
        if producer.id in self.truth.open:
            self._mark(producer, commit)

    def fence(self, producer: Producer) -> None:
        producer.bump()
        self._mark(producer, False)

    def _mark(self, producer: Producer, commit: bool) -> None:
        partition = self.leader.partition
        error = control_batch.write_marker(partition, producer.id, producer.epoch, 1, commit, self.now_ms)
        assert error == errors.NONE
        self.truth.end(producer.id, commit)
        at = self.truth.leo - 1
        self.truth.acts.append(Act(at, at, producer.id, producer.epoch, -1, self.now_ms, marker=True))
        self.now.note()
        self.done["marker"] += 1
        self._advance()

    def retry(self, producer: Producer) -> None:
        sent, leader = producer.last, self.leader
        forgotten = leader.vague or leader.evicts or producer.id in leader.expired
        if sent is None or sent.base < leader.begins or (forgotten and not leader.knows(producer.id, sent.sequence)):
            return
        batch, _ = _batch(sent.rows, sent.codec, producer, sent.sequence, sent.timestamp, sent.inside)
        self._append(batch)
        assert (batch.error, batch.base_offset) == (errors.NONE, sent.base), "a retry was not recognised"
        self.done["retry"] += 1

    # -- followers

    def fetch(self, number: int, most: int, die: int | None = None, whole: bool = False) -> None:
        one = self.replicas[number]
        if one is self.leader:
            return
        before, empty = one.leo, one.leo == one.log_start
        what = one.fetch(self.leader, self.now_ms, most, die, whole)
        self.done[what] += 1
        if what == "append":
            # An empty log starts over where a batch begins below the leader's log start, as in Kafka.
            assert one.leo >= before or empty
            one.source = self.epoch
            one.takes_over(self.leader, before)
            self._advance()

    def catch_up(self) -> None:
        """Until all have all that the leader has, and know that it is committed."""
        for one in self.followers:
            for _ in range(2000):
                if one.leo == self.leader.leo == one.hw == self.leader.hw and one.source == self.epoch:
                    break
                for each in self.followers:
                    self.fetch(each.number, self.rng.choice([1, 400, 1 << 20]))
            else:
                raise AssertionError(f"{one.number} at {one.leo}, {one.hw} does not catch up with {self.leader.leo}")

    # -- administrators and time

    def delete_records(self) -> None:
        leader = self.leader
        offset = self.rng.randrange(leader.log_start, leader.hw + 1)
        with leader.partition.locked() as values:
            trim.advance(leader.partition, values, offset)
        self.done["delete_records"] += 1

    def restart(self, number: int, clean: bool) -> None:
        """Restart a replica; a leader hands over if it can, and else leads again."""
        one = self.replicas[number]
        if one is self.leader and len(self.isr) > 1:
            self.elect(self.rng.choice(sorted(self.isr - {number})))
            self.isr.discard(number)
        one.restart(clean)
        self.done["restart"] += 1
        if one is self.leader:
            self.former[self.epoch] = self.now
            self.now = copy.deepcopy(self.now)
            self._lead()
        else:
            self.isr.discard(number)
            one.follow(self.epoch)

    def history_of(self, one: Replica) -> History:
        """The log that begins with the records of the replica."""
        return self.now if one.source == self.epoch else self.former[one.source]

    def expire(self, number: int) -> None:
        one = self.replicas[number]
        self.done["expire"] += one.expire(self.history_of(one).truth, self.now_ms, self.rng.choice([0, 10_000]))

    def configure(self, number: int) -> None:
        rng = self.rng
        choices: list[dict[str, Any]] = [
            {"segment_bytes": rng.choice([100, 300, 600, 2000])},
            {"index_interval_bytes": rng.choice([0, 60, 400])},
            {"cleanup_policy": rng.choice(["delete", "compact", "compact,delete"])},
            {"cleanup_policy": rng.choice(["delete", "compact", "compact,delete"])},
            {"segment_index_bytes": rng.choice([16, 1000])},
            {"min_compaction_lag_ms": rng.choice([0, 1000])},
            {"retention_ms": rng.choice([0, 10_000, 86_400_000])},
            {"segment_ms": rng.choice([1000, 86_400_000])},
        ]  # fmt: skip
        self.replicas[number].configure(**rng.choice(choices))
        self.done["configure"] += 1

    def clean(self, number: int, memory: DedupeBuffer) -> None:
        one = self.replicas[number]
        self.done["clean"] += one.clean(self.history_of(one).truth, self.now_ms, memory)

    def compare(self) -> None:
        """Once all have caught up."""
        self.catch_up()
        for one in self.replicas:
            assert one.values[slots.F_LEADER_EPOCH] == self.epoch
            one.compare(self.truth, self.now_ms)
        self.done["compare"] += 1
