"""Writing the markers that end transactions, straight into the partitions: they are on this machine.

A marker is done when the partition's high watermark has passed it. One whose partition is locked is tried again in a
millisecond, one that failed in a tenth of a second, for as long as this coordinator lives; its successor finds the
decision in `__transaction_state` and starts over, and a marker too many does no harm. A partition that is no more
needs no marker. Those for `__consumer_offsets` wait until the offsets before them are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.broker.offsets_journal import TOPIC as OFFSETS
from odradek.groups.errors import Error
from odradek.groups.events import Now
from odradek.groups.groups import Groups
from odradek.groups.journal import Writer
from odradek.groups.offsets import TopicPartition
from odradek.storage import transactions
from odradek.storage.partition import Busy, Partition
from odradek.workers.catalog import Catalog
from odradek.workers.coordination import Wanted

log = logging.getLogger(__name__)

BUSY_S, MARK_S = 0.001, 0.01  # how soon to look again: at a locked partition, at a high watermark
RETRY_MS = 100

Done = Callable[[dict[TopicPartition, Error]], None]


class Job:
    """Markers of one transaction on their way. `insists`: until they are all there; else errors are answers."""

    __slots__ = ("awaited", "done", "insists", "not_before_ms", "results", "todo", "wanted")

    def __init__(self, wanted: Wanted, done: Done, insists: bool) -> None:
        self.wanted = wanted
        self.done = done
        self.insists = insists
        self.todo = set(wanted.partitions)
        self.awaited: dict[TopicPartition, int] = {}  # where the high watermark must get to
        self.results: dict[TopicPartition, Error] = {}
        self.not_before_ms = 0


class MarkerWriter:
    """The markers that are not in their partitions yet."""

    def __init__(self, catalog: Catalog, groups: Groups, offsets_writer: Writer) -> None:
        self._catalog = catalog
        self._groups = groups
        self._offsets_writer = offsets_writer
        self._jobs: list[Job] = []

    def add(self, wanted: Wanted, done: Done, insists: bool) -> None:
        """Write these at the next `write`; `done` gets the outcome of each partition."""
        self._jobs.append(Job(wanted, done, insists))

    def write(self, now: Now) -> None:
        """Try all that is not done and not put off."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if job.not_before_ms <= now.steady_ms:
                self._try(job, now)
            if job.todo or job.awaited:
                self._jobs.append(job)
            else:
                job.done(job.results)

    def patience(self, now: Now) -> float | None:
        """Seconds until `write` should be called again, None when there is nothing to write."""
        if not self._jobs:
            return None
        return min(_patience(job, now) for job in self._jobs)

    def _try(self, job: Job, now: Now) -> None:
        for tp in list(job.todo):
            self._write_one(job, tp, now)
        for tp, end in list(job.awaited.items()):
            if self._has_passed(tp, end):
                del job.awaited[tp]
                self._written(job, tp)

    def _write_one(self, job: Job, tp: TopicPartition, now: Now) -> None:
        topic, index = tp
        if topic == OFFSETS and self._offsets_writer.is_busy_with(index):
            return
        partition = self._catalog.log.get(topic, index)
        try:
            error = self._append(partition, job.wanted, now)
        except Busy:
            return
        if error and job.insists and not self._is_settled(job, tp, error):
            job.not_before_ms = now.steady_ms + RETRY_MS
            return
        job.todo.discard(tp)
        if error or partition is None:
            job.results[tp] = error
        else:
            job.awaited[tp] = partition.state().leo

    @staticmethod
    def _append(partition: Partition | None, wanted: Wanted, now: Now) -> Error:
        if partition is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        producer_id, epoch, coordinator_epoch, commit, _ = wanted
        return Error(transactions.write_marker(partition, producer_id, epoch, coordinator_epoch, commit, now.wall_ms))

    def _is_settled(self, job: Job, tp: TopicPartition, error: Error) -> bool:
        """Whether a marker that was refused is one that nobody needs."""
        if error is Error.INVALID_PRODUCER_EPOCH:
            # A later epoch has written here, so what was open before it has been ended.
            log.error("%s-%d: a marker of producer %d came too late", *tp, job.wanted.producer_id)
            return True
        gone = self._catalog.snapshot.partition(*tp) is None
        if not gone and not job.not_before_ms:
            log.warning("%s-%d: a marker waits: %s", *tp, error.name)
        return gone

    def _has_passed(self, tp: TopicPartition, end: int) -> bool:
        """Whether the marker is where all in-sync replicas have it; also when there is nobody to ask any more."""
        partition = self._catalog.log.get(*tp)
        if partition is None:
            return True
        state = partition.state()
        return state.incarnation != partition.incarnation or state.hw >= end

    def _written(self, job: Job, tp: TopicPartition) -> None:
        topic, index = tp
        job.results[tp] = Error.NONE
        if topic == OFFSETS:
            self._groups.end_transaction(index, job.wanted.producer_id, job.wanted.commit)


def _patience(job: Job, now: Now) -> float:
    if job.not_before_ms > now.steady_ms:
        return (job.not_before_ms - now.steady_ms) / 1000
    return BUSY_S if job.todo else MARK_S
