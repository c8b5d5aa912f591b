"""Each row once, whatever dies: a task's rows and the note that they are written are one transaction.

A task has a name, `odradek-spark-<query>-<Spark's partition>`: of a stream by the id in its checkpoint, of a batch by
one that its driver chose. It is the task's transactional id, and a group. Before its first row the task (1) initialises
that id and (2) asks which offset the group has. Where that is not beyond its batch's number, it (3) sends its rows, (4)
gives the group the batch's number plus one, as the offset of partition 0 of each topic it wrote to, and (5) commits.
Where it is, all is written already: it takes its rows from Spark (whose stateful queries keep their state only when all
were taken) and sends none. Who reads with isolation.level=read_committed sees each row once.

Why. Let attempt A of a task be followed by B: Spark tries again, or speculates, or a new driver does the batch again.
 - (1) ends A: from then on brokers refuse what A sends, for its producer epoch is too old; and before (1) returns A's
   transaction is either committed wholly or aborted wholly. So (2) is final, nothing that A does can change it. A group
   that has not heard of the decision yet says so (a stable offset is asked for), and is asked again.
 - A died before (5), or lives on: nothing of it will ever be seen, and B writes everything.
 - A died after (5), or Spark did not hear of it, or A's commit was carried out when A had given up waiting for it: the
   offset came with the rows, in one transaction. B finds it and writes nothing.
 - A is a stray of an earlier batch and wakes up in the middle of B: A ends B, which fails and is tried again. A finds
   the offset of its own batch, or a later one, for Spark begins no batch before all tasks of the last one are done; it
   writes nothing. Of several attempts of one batch that end each other, the last to begin is ended by nobody.
 - The driver dies when some tasks have committed. The checkpoint knows which offsets the batch has, not that it is
   done, so it is done again under the same number: those tasks write nothing, the others write theirs.
 - A task without rows asks nobody; it wrote nothing and will write nothing again.
 - A task that takes longer than transaction.timeout.ms is aborted by the coordinator, as an A without a B, and fails
   with an error that says so. For so long readers wait behind the transaction of a task that was killed, unless it is
   tried again; one that fails aborts by itself. The default is what brokers allow at most, 15 minutes.
 - Brokers without transactions refuse (1), and those with a lower limit the timeout: the error says which. A missing
   topic fails in (3), before any offset is given for it.

What it asks for: that a task has the same rows, in whatever order, when it is done again. It has where they come from
topics, files or a shuffle by columns, and neither the query nor the cutting was changed in between (minPartitions,
maxRecordsPerPartition, odradek.split.bytes, repartition). The number of rows is kept beside the offset; the driver is
told when it differs. That is no error: of a topic that was compacted, or lost its front (failOnDataLoss=false), there
are fewer, of a join with another table others, and those that were written were right. And that it is done again
before the offset expires (offsets.retention.minutes: seven days).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.writing import stamps
from odradek.pipeline.writing.outgoing import Record
from odradek.pipeline.writing.producer_settings import SILENT
from odradek.pipeline.writing.producing import Sender, reason

PREFIX = "odradek-spark-"
ABORT_SECONDS = 10  # a broker that does not answer in this time aborts by itself, later
PAUSE_SECONDS = 0.05
UNDECIDED = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)


@dataclass(frozen=True)
class Mark:
    """Stands for the rows of one task in one batch: once `name` has committed `number` or more, they are written."""

    name: str
    number: int

    @classmethod
    def of_stream(cls) -> Mark:
        """That of the task that this runs in."""
        task = stamps.task()
        return cls(f"{PREFIX}{task.query}-{task.partition}", task.epoch + 1)

    @classmethod
    def of_batch(cls, name: str) -> Mark:
        """That of the task that this runs in, of the batch with this name."""
        return cls(f"{PREFIX}{name}-{stamps.partition()}", 1)


@contextmanager
def transaction(settings: Mapping[str, str], mark: Mark, written: Mapping[str, int]) -> Iterator[Transaction]:
    """Left in order all is committed, now or before; left by an exception nothing is, unless it was before.

    `written` is looked at when it is left: how many rows went to each topic, those of an earlier attempt too.
    """
    one = Transaction(settings, mark)
    try:
        yield one
        one.commit(written)
    except BaseException:
        one.abort()
        raise
    finally:
        one.close()


class Transaction(Sender):
    """A producer with one transaction, which begins with the first record. PipelineError for all that goes wrong."""

    def __init__(self, settings: Mapping[str, str], mark: Mark) -> None:
        super().__init__({**settings, "transactional.id": mark.name})
        self._mark = mark
        self._began: float | None = None  # monotonic seconds
        self._asked = False
        self.before: int | None = None  # how many rows an earlier attempt has committed

    def send(self, records: Iterable[Record]) -> None:
        """Queue `records`, or drop them when an earlier attempt has committed them."""
        rest = iter(records)
        for first in rest:
            if not self._asked:
                self._begin(first[0])
            if self.before is None:
                with self._explained():
                    super().send(chain([first], rest))
            return

    def commit(self, written: Mapping[str, int]) -> None:
        """Make everything visible, if anything was sent."""
        if self._began is None:
            return
        with self._explained():
            self.finish()
            rows = str(sum(written.values()))
            noted = [TopicPartition(topic, 0, self._mark.number, rows) for topic, count in written.items() if count]
            group = self._group.consumer_group_metadata()
            self._insist(lambda left: self._producer.send_offsets_to_transaction(noted, group, left))
            self._insist(self._producer.commit_transaction)

    def abort(self) -> None:
        """Let readers go on; best effort, for the next attempt or the broker does it else."""
        if self._began is not None and not self._fatal:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_SECONDS)

    def close(self) -> None:
        """End the connections to the group."""
        if "_group" in self.__dict__:
            self._group.close()

    # -- the beginning

    def _begin(self, topic: str) -> None:
        self._asked = True
        self._insist(self._producer.init_transactions)
        noted = self._noted(topic)
        if noted.offset >= self._mark.number:
            self.before = int(noted.metadata or 0)
            return
        self._began = time.monotonic()
        self._producer.begin_transaction()

    def _noted(self, topic: str) -> TopicPartition:
        """What the group has committed. Any topic that the task writes to will do, each has the same."""
        deadline = time.monotonic() + self._patience
        while True:
            found, error = self._fetched(TopicPartition(topic, 0))
            if error is None:
                return found
            if error.code() not in UNDECIDED or time.monotonic() > deadline:
                raise PipelineError(f"the offsets of group {self._mark.name}: {reason(error)}")
            time.sleep(PAUSE_SECONDS)

    def _fetched(self, asked: TopicPartition) -> tuple[TopicPartition, KafkaError | None]:
        try:
            [found] = self._group.committed([asked], timeout=self._patience)
        except KafkaException as error:
            return asked, error.args[0]
        return found, found.error

    @cached_property
    def _group(self) -> Consumer:
        """Never subscribes: for the group's offsets, and for the words by which a transaction includes them."""
        ours = {name: value for name, value in self._settings.items() if name != "transactional.id"}
        group: dict[str, Any] = {"group.id": self._mark.name, "isolation.level": "read_committed"}
        return Consumer({**ours, **group, "enable.auto.commit": False}, logger=SILENT)

    # -- errors

    @property
    def _patience(self) -> float:
        """Seconds that a request may be tried again, as long as records may stand in the queue."""
        return int(self._settings["delivery.timeout.ms"]) / 1000

    def _insist(self, call: Callable[[float], None]) -> None:
        deadline = time.monotonic() + self._patience
        while error := _error(call, max(0.1, deadline - time.monotonic())):
            self._fatal = error.fatal()
            if not error.retriable() or time.monotonic() > deadline:
                raise PipelineError(f"transaction {self._mark.name}: {self._told(error)}")

    def _told(self, error: KafkaError) -> str:
        """Not within an `except`: there confluent_kafka keeps for ever what `poll` raises, and so the producer."""
        with suppress(KafkaException):  # the same when it is fatal
            self._producer.poll(0)  # for what its connections have to say
        return reason(error) + (f" ({self._trouble})" if self._trouble else "")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What librdkafka says of a transaction that was open for too long is that a later producer has taken over."""
        try:
            yield
        except PipelineError as error:
            limit = int(self._settings["transaction.timeout.ms"])
            if self._began is None or time.monotonic() - self._began < limit / 1000:
                raise
            more = (
                f"the task has taken longer than kafka.transaction.timeout.ms={limit}: raise it or write less at once"
            )
            raise PipelineError(f"{error}; {more}") from None


def _error(call: Callable[[float], None], seconds: float) -> KafkaError | None:
    try:
        call(seconds)
    except KafkaException as raised:
        return raised.args[0]
    return None
