"""Real consumers: members of a group that commit, one that follows the log from its start, one that reads it all."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import Any

from ...faults.checker import Found, Log
from ..moved_coordinator import assign_again
from .security import Clients
from .stuck import Recorder

_COMMIT_S = 0.4
_PROMPT_S = 1.0
_PATIENCE_S = 5.0
_STOP_S = 150
# Errors of a client whose broker is away, or no longer the right one.
_PASSING = {
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_PARTITION_EOF", "_WAIT_COORD",
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "REPLICA_NOT_AVAILABLE", "NOT_COORDINATOR", "NETWORK_EXCEPTION",
    "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT", "GROUP_COORDINATOR_NOT_AVAILABLE",
    "_MAX_POLL_EXCEEDED", "KAFKA_STORAGE_ERROR",
}  # fmt: skip


def found(message: Any) -> Found:
    """A record from a consumer's message."""
    producer, number = message.value().rstrip(b".").split()
    return Found(message.offset(), int(producer), int(number), bytes(message.key()))


class Commits:
    """The highest acknowledged commit of each partition, and commits that went back.

    A commit whose answer is late may have been sent to several brokers, or may still arrive: when a cut ends, the
    kernel delivers data that a client wrote to the connection before, even if the client has closed it and continued.
    A coordinator that leads again then accepts it, as Kafka's does (the request has a member and a generation, but no
    order): such an older offset is no fault. The next commit corrects it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest: dict[int, int] = {}
        self._delayed: set[tuple[int, int]] = set()
        self.count = self.came_late = 0
        self.faults: list[str] = []

    def noted(self) -> dict[int, int]:
        """The lowest offsets that a later fetch must return."""
        with self._lock:
            return dict(self._highest)

    def note(self, offsets: list[Any]) -> None:
        """Record acknowledged commits."""
        with self._lock:
            self.count += 1
            for one in offsets:
                if one.error is None and one.offset >= 0:
                    self._highest[one.partition] = max(self._highest.get(one.partition, 0), one.offset)

    def delay(self, offsets: list[Any]) -> None:
        """Record commits that a broker may accept at any later time."""
        with self._lock:
            self._delayed.update((one.partition, one.offset) for one in offsets)

    def fetched(self, least: dict[int, int], offsets: list[Any]) -> None:
        """Check fetched offsets against `least`, which was noted before the fetch."""
        for one in offsets:
            if one.error is not None or max(one.offset, 0) >= least.get(one.partition, 0):
                continue
            if (one.partition, one.offset) in self._delayed:
                self.came_late += 1
            else:
                before = least[one.partition]
                said = f"partition {one.partition}: offset {before} was committed, a later fetch returned {one.offset}"
                self.faults.append(f"commit went back: {time.strftime('%X')} {said}")


class _Reader:
    """A thread with a consumer. `rows` has the records of each partition that it has seen."""

    def __init__(self, clients: Clients, topic: str, partitions: int, config: dict[str, Any]) -> None:
        self.rows: Log = {partition: [] for partition in range(partitions)}
        self.errors: Counter[str] = Counter()
        self.problems: list[str] = []
        self.topic, self.partitions = topic, partitions
        self.recorder = Recorder()
        self.consumer = _consumer(clients, config | self.recorder.config, logger=self.recorder.logger)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, and close the consumer."""
        self._stop.set()
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            self.problems.append(f"{type(self).__name__} did not stop within {_STOP_S} s")

    def _guarded(self) -> None:
        try:
            self._begin()
            while not self._stop.is_set():
                self._take(self.consumer.poll(0.1))
                self._after()
            self.consumer.close()
        except Exception as error:
            self.problems.append(f"{type(self).__name__}: {error!r}")

    def _begin(self) -> None:
        raise NotImplementedError

    def _after(self) -> None:
        """Called between two records."""

    def _take(self, message: Any) -> None:
        if message is None:
            return
        error = message.error()
        if error is None:
            self.rows[message.partition()].append(found(message))
            return
        self.errors[error.name()] += 1
        if error.name() not in _PASSING:
            self.problems.append(f"{type(self).__name__}: {time.strftime('%X')} {error}")


class Tail(_Reader):
    """Reads all partitions from the start, without a group. A log whose offsets go back is an error."""

    def __init__(self, clients: Clients, topic: str, partitions: int) -> None:
        super().__init__(clients, topic, partitions, {"group.id": f"tail-{topic}", "auto.offset.reset": "error"})

    def _begin(self) -> None:
        self.consumer.assign(_from_start(self.topic, self.partitions))


class Member(_Reader):
    """A member of a group, which commits what it has read and reads the commits of others."""

    def __init__(self, clients: Clients, topic: str, partitions: int, commits: Commits) -> None:
        self.group = f"group-{topic}"
        config = {"group.id": self.group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        super().__init__(clients, topic, partitions, config | {"heartbeat.interval.ms": 1000})
        self.commits = commits
        self._next_commit = 0.0

    def _take(self, message: Any) -> None:
        super()._take(message)
        assign_again(self.consumer, message)

    def _begin(self) -> None:
        self.consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=lambda *_: self._commit())

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Check the committed offsets of assigned partitions. (librdkafka fetches them again shortly after.)"""
        from confluent_kafka import KafkaException

        least = self.commits.noted()
        with contextlib.suppress(KafkaException):
            self.commits.fetched(least, consumer.committed(partitions, timeout=_PATIENCE_S))

    def _after(self) -> None:
        now = time.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + _COMMIT_S
            self._commit()

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        began, offsets, error = time.monotonic(), self._read(), None
        if not offsets:
            return
        try:
            self.commits.note(self.consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException as failure:
            error = failure.args[0]
            self.errors[error.name()] += 1
        if error is not None or time.monotonic() - began > _PROMPT_S:
            self.commits.delay(offsets)

    def _read(self) -> list[Any]:
        """The positions in its partitions."""
        return [one for one in self.consumer.position(self.consumer.assignment()) if one.offset >= 0]


def read_all(clients: Clients, topic: str, partitions: int, seconds: float = 120) -> Log:
    """Every record of a topic up to its current high watermarks."""
    log: Log = {partition: [] for partition in range(partitions)}
    consumer = _consumer(clients, {"group.id": f"all-{topic}", "auto.offset.reset": "error"})
    try:
        places = _from_start(topic, partitions)
        deadline = time.monotonic() + seconds
        ends = {one.partition: _end(consumer, one, deadline) for one in places}
        consumer.assign([one for one in places if ends[one.partition]])
        while any((rows[-1].offset + 1 if rows else 0) < ends[partition] for partition, rows in log.items()):
            assert time.monotonic() < deadline, (
                f"{topic}: read offsets {_last(log)} within {seconds:g} s, the high watermarks are {ends}"
            )
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                log[message.partition()].append(found(message))
    finally:
        consumer.close()
    return {partition: [row for row in rows if row.offset < ends[partition]] for partition, rows in log.items()}


def _end(consumer: Any, place: Any, deadline: float) -> int:
    """A partition's high watermark; retried, as leadership may be moving to the preferred leader."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=30)[1]
        except KafkaException as error:
            if error.args[0].name() not in _PASSING or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _last(log: Log) -> dict[int, int]:
    return {partition: rows[-1].offset if rows else -1 for partition, rows in log.items()}


def _from_start(topic: str, partitions: int) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition, 0) for partition in range(partitions)]


def _consumer(clients: Clients, config: dict[str, Any], **options: Any) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            **clients.librdkafka,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 200,
            "fetch.error.backoff.ms": 100,
            "socket.timeout.ms": 12_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
            **config,
        },
        **options,
    )
