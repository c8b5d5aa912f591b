"""Each row once, whatever dies: the rows of a unit and the note that they are written are one transaction.

A unit is the rows of one Spark task; with `odradek.transactional.by` it is the rows with one value of that column. Its
name is `odradek-spark-<query>-<Spark's partition>`, or `…-<column>-<value>`. The query of a stream is the id in its
checkpoint, that of a batch is a name that its driver chose. The unit's name is the transactional id, and a group.
Before its first row the task (1) initialises that id and (2) fetches all offsets of the group. If none is beyond the
batch's number, the task (3) sends its rows, (4) gives the group the batch's number plus one, as the offset of partition
0 of each topic it wrote to, and (5) commits. If one is, all is written already: the task takes its rows from Spark
(whose stateful queries keep their state only when all were taken) and sends none. A reader with
isolation.level=read_committed sees each row once.

Why. Let attempt B of a unit follow attempt A: Spark retries, or speculates, or a new driver does the batch again.
 - (1) fences A: from then on brokers refuse what A sends, because its producer epoch is too old; and before (1) returns
   A's transaction is either committed wholly or aborted wholly. So (2) is final, A can no longer change it. While the
   group does not know the outcome yet it returns an error (the request wants stable offsets), and the task retries.
 - A died before (5), or lives on: its rows never become visible, and B writes everything.
 - A died after (5), or Spark did not learn of it, or A's commit completed after A had given up waiting for it: the
   offset came with the rows, in one transaction. B finds it and writes nothing. The task fetches all offsets of the
   group, because B's rows may go to other topics than A's did.
 - A belongs to an earlier batch and wakes up in the middle of B: A fences B, which fails and is retried. A finds the
   offset of a later batch and fails, or that of its own, because Spark begins no batch before all tasks of the last one
   are done; it writes nothing. When several attempts of one batch fence each other, the last one to begin is not
   fenced. A task of a current batch that finds a later batch has a checkpoint that was set back: it fails rather than
   assume that its rows are there.
 - The driver dies when some units have committed. The checkpoint knows which offsets the batch has, not that it is
   done, so the batch is done again under the same number: those units write nothing, the others write theirs.
 - A unit without rows makes no request; it wrote nothing and will write nothing again.
 - When a task takes longer than transaction.timeout.ms, the coordinator aborts it, like an A without a B, and the task
   fails with an error that says so. For that time readers wait behind the transaction of a killed task, unless it is
   retried; a task that fails aborts its own. The default is the brokers' maximum, 15 minutes.
 - Brokers without transactions refuse (1), and those with a lower limit refuse the timeout: the error says which. A
   missing topic fails in (3), before an offset is committed for it.

Requirements: a unit has the same rows, in any order, when it is done again; and that happens before the offset expires
(offsets.retention.minutes: seven days).

A stream's task has the same rows where they come from topics, and neither the query nor the cutting changed in between
(minPartitions, maxRecordsPerPartition, repartition). Behind a shuffle Spark's settings decide,
too: a task refuses to write with those that may cut otherwise (`cutting`). A row's content may differ the second time
(a joined table has changed): what was written first stands, and the row was written once. A topic that was compacted,
or lost its front (failOnDataLoss=false), has fewer rows the second time, and those written before were right. So a
different number of rows is no error there; the offset's metadata keeps the number, and the driver logs a warning.

A batch's task does not: adaptive execution coalesces a shuffle's partitions by the number of cores and by sizes that
are known at run time. No task can see how many others there are, or what they have. So a batch with a name must name
the column that cuts it. However Spark cuts it, a unit is complete as long as all its rows are in one task, as they are
after a repartition by that column. The offset's metadata keeps a digest of a unit's rows, in any order, and another
attempt with other rows is refused. So is a second task of one attempt that has rows of the same unit, which would look
like the same unit done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing import cutting, stamps
from odradek.pipeline.writing.outgoing import Record
from odradek.pipeline.writing.producer_settings import SILENT
from odradek.pipeline.writing.producing import Sender, reason

PREFIX = "odradek-spark-"
ABORT_SECONDS = 10  # a broker that does not answer in this time aborts on its own, later


@dataclass(frozen=True)
class UnitMark:
    """Identifies the rows of one unit in one batch: once `name` has committed `number`, they are written.

    `attempt` names the batch's task that writes a unit other than a whole task. Only then its rows are compared with
    those written before.
    """

    name: str
    number: int
    attempt: str = ""

    @classmethod
    def of_stream(cls) -> UnitMark:
        """The mark of the current task. PipelineError where a repeated batch may have other tasks."""
        cutting.check(stamps.setting)
        task = stamps.task()
        return cls(f"{PREFIX}{task.query}-{task.partition}", task.epoch + 1)

    @classmethod
    def of_batch(cls, name: str, unit: int, batch: int = 0, attempt: str = "") -> UnitMark:
        """The mark of a task, or another unit, of one of the batches with this name."""
        return cls(f"{PREFIX}{name}-{unit}", batch + 1, attempt)


class UnitMetadata(NamedTuple):
    """The metadata of a unit's offsets: what was written."""

    rows: int
    digest: str = ""
    attempt: str = ""

    @classmethod
    def parsed(cls, text: str) -> UnitMetadata:
        """The inverse of `str`."""
        rows, *more = text.rstrip("\0").split(" ", 2)  # confluent_kafka commits the end of its string, too
        return cls(int(rows or 0), *more)

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.rows), self.digest, self.attempt)))


@contextmanager
def transaction(
    settings: Mapping[str, str], kafka: Mapping[str, str], mark: UnitMark, written: Mapping[str, int]
) -> Iterator[Transaction]:
    """A normal exit means that all is committed, now or before; on an exception nothing is, unless it was before.

    `settings` are librdkafka's, made of `kafka`, which has Java's names. `written` is read at the exit: how many rows
    went to each topic, including those of an earlier attempt.
    """
    one = Transaction(settings, kafka, mark)
    try:
        yield one
        one.commit(written)
    except BaseException:
        one.abort()
        raise
    finally:
        one.close()


class Transaction(Sender):
    """A producer with one transaction, which begins with the first record. PipelineError for every error."""

    def __init__(self, settings: Mapping[str, str], kafka: Mapping[str, str], mark: UnitMark) -> None:
        super().__init__({**settings, "transactional.id": mark.name})
        self._kafka = {**kafka, "default.api.timeout.ms": settings["delivery.timeout.ms"]}
        self._mark = mark
        self._began: float | None = None  # monotonic seconds
        self._asked = False
        self._sum = 0  # of the records' checksums
        self.before: UnitMetadata | None = None  # what an earlier attempt has committed

    def send(self, records: Iterable[Record]) -> None:
        """Queue `records`, or drop them when an earlier attempt has committed them."""
        rest = self._summed(records) if self._mark.attempt else iter(records)
        for first in rest:
            if not self._asked:
                self._begin()
            if self.before is None:
                with self._explained():
                    super().send(chain([first], rest))
            elif self._mark.attempt:
                for _ in rest:
                    pass
            return

    def commit(self, written: Mapping[str, int]) -> None:
        """Make everything visible, if anything was sent. PipelineError where other rows were written before."""
        note = UnitMetadata(sum(written.values()), f"{self._sum:x}", self._mark.attempt) if self._mark.attempt else None
        if self.before is not None and note is not None:
            self._compare(self.before, note)
        if self._began is None:
            return
        with self._explained():
            self.finish()
            metadata = str(note or UnitMetadata(sum(written.values())))
            offsets = [
                TopicPartition(topic, 0, self._mark.number, metadata) for topic, count in written.items() if count
            ]
            group = self._group.consumer_group_metadata()
            self._insist(lambda left: self._producer.send_offsets_to_transaction(offsets, group, left))
            self._insist(self._producer.commit_transaction)

    def abort(self) -> None:
        """Unblock readers; best effort, because otherwise the next attempt or the broker aborts."""
        if self._began is not None and not self._fatal:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_SECONDS)

    def close(self) -> None:
        """Close the connections to the group."""
        if "_group" in self.__dict__:
            self._group.close()

    # -- what was written before

    def _begin(self) -> None:
        self._asked = True
        self._insist(self._producer.init_transactions)
        number, metadata = self._last_committed()
        if number > self._mark.number:
            raise PipelineError(
                f"{self._mark.name} has already written batch {number - 1}, and now gets batch "
                f"{self._mark.number - 1}: a checkpoint was reset, or two writes have the same name"
            )
        if number == self._mark.number:
            self.before = UnitMetadata.parsed(metadata)
            return
        self._began = time.monotonic()
        self._producer.begin_transaction()

    def _summed(self, records: Iterable[Record]) -> Iterator[Record]:
        """Pass the records on and add up their checksums, independent of the order."""
        for record in records:
            self._sum = (self._sum + crc32(repr(record).encode())) % (1 << 64)
            yield record

    def _compare(self, before: UnitMetadata, now: UnitMetadata) -> None:
        """PipelineError unless it is the same unit, done again."""
        run, _, _ = now.attempt.partition("/")
        if before.attempt != now.attempt and before.attempt.startswith(f"{run}/"):
            raise PipelineError(
                f"{self._mark.name}: its rows are in several tasks: repartition by the column of "
                "odradek.transactional.by"
            )
        if before[:2] != now[:2]:
            raise PipelineError(
                f"{self._mark.name} was written before with other rows ({before.rows} then, {now.rows} now): the "
                "query, its tables or its partitioning changed in between, or two writes have the same name"
            )

    def _last_committed(self) -> tuple[int, str]:
        """The last number that the group has committed, and its metadata, for any topic; 0 where there is none.

        librdkafka cannot tell: its requests for all offsets of a group end the process when the coordinator moves.
        """
        with Brokers(self._kafka) as brokers:
            return max(brokers.all_committed(self._mark.name), default=(0, ""))

    @cached_property
    def _group(self) -> Consumer:
        """Never subscribes: only provides the metadata with which a transaction includes the group's offsets."""
        ours = {name: value for name, value in self._settings.items() if name != "transactional.id"}
        return Consumer({**ours, "group.id": self._mark.name, "enable.auto.commit": False}, logger=SILENT)

    # -- errors

    @property
    def _patience(self) -> float:
        """Seconds to retry a request, as long as records may wait in the queue."""
        return int(self._settings["delivery.timeout.ms"]) / 1000

    def _insist(self, call: Callable[[float], None]) -> None:
        deadline = time.monotonic() + self._patience
        while error := _error(call, max(0.1, deadline - time.monotonic())):
            self._fatal = error.fatal()
            if not error.retriable() or time.monotonic() > deadline:
                raise PipelineError(f"transaction {self._mark.name}: {self._told(error)}")

    def _told(self, error: KafkaError) -> str:
        """Not within an `except`: there confluent_kafka keeps what `poll` raises for ever, and so the producer."""
        with suppress(KafkaException):  # the same error when it is fatal
            self._producer.poll(0)  # runs the callbacks of its connections' errors
        return reason(error) + (f" ({self._trouble})" if self._trouble else "")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain a timeout: for a transaction open too long librdkafka reports that a later producer took over."""
        try:
            yield
        except PipelineError as error:
            limit = int(self._settings["transaction.timeout.ms"])
            if self._began is None or time.monotonic() - self._began < limit / 1000:
                raise
            more = (
                f"the task took longer than kafka.transaction.timeout.ms={limit}: raise it, or write less per "
                "transaction"
            )
            raise PipelineError(f"{error}; {more}") from None


def _error(call: Callable[[float], None], seconds: float) -> KafkaError | None:
    try:
        call(seconds)
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        return error
    return None
