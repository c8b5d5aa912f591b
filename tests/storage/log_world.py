"""A log with every operation that changes one, with deaths, and with damage to its files; and its model.

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
from collections.abc import Callable

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.files import checkpoints, names
from odradek.storage.log import control_batch, roll, trim, truncate
from odradek.storage.log.append import append
from odradek.storage.log.partition import Partition

from .compaction.compaction_world import TP, Producer, Row, Sent
from .log_batches import heads
from .log_model import LogModel
from .log_starts import LogStarts
from .test_death import _dies_at


class LogWorld(LogStarts):
    """See the module's head."""

    def dies(self, work: Callable[[Partition], None], step: int) -> bool:
        """`work` in a process that ends at its n-th call; whether it did."""
        return _dies_at(self.live, step, work)

    def mend(self) -> None:
        """Take the lock, which repairs."""
        with self.live.partition(3).locked():
            pass

    def append_and_die(self, rows: list[Row], producer: Producer | None, inside: bool, step: int, whole: bool) -> None:
        """An append that may not come to its end; `whole`: the broker dies with it. What was written stands.

        The producer sends it again if it got no response.
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
            error = control_batch.write_marker(partition, producer.id, producer.epoch, 1, commit, self.now_ms)
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
        assert died and leo == before.leo, "an acknowledged record is missing"
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

    def truncate(self, offset: int) -> None:
        """Follow another leader for a moment, which lacks the log's end from `offset` on."""
        self.truncate_and_die(offset, None, False)

    def truncate_and_die(self, offset: int, step: int | None, whole: bool) -> None:
        """The truncating process may die, and then truncates again; if the broker dies, it is elected instead."""
        first = names.segment_bases(str(self.directory))[0]
        ends = [head.base_offset + head.last_offset_delta + 1 for head in heads(self.live.partition(5))]
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

    def crash(self, log_start: bool = False) -> None:
        """The broker dies at any step of any process. `log_start`: it may have moved past the checkpoint."""
        self.give_up()
        self._stack.close()
        self._open(False)
        if log_start:
            self._new_start()


def _truncate(partition: Partition, offset: int) -> None:
    with partition.locked() as values:
        truncate.truncate(partition, values, offset)
