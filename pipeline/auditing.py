"""For producers: send counts of acknowledged records, by partition and time, to a topic for `odradek pipeline audit`.

    audit = Audit(lambda key, value: producer.produce("audit", value, key), "web-1")
    producer.produce("orders", value, on_delivery=audit.on_delivery)
    …
    producer.flush(); audit.close(); producer.flush()

A message is JSON: audit (version), producer, instance, sequence, since, until, closed, window, and counts {topic:
{partition: {start of a window: records}}}; times are in ms since 1970. `counts` are the records acknowledged between
`since`, which is the `until` of the previous message, and `until`, by the window of the record's timestamp. Messages
add up in any order. `sequence` rises by one from 0 within an `instance`, which is new at each start, so a reader
detects lost and duplicate messages. Count records of a transaction after its commit: the audit reads committed records
only.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

log = logging.getLogger(__name__)

VERSION = 2
WINDOW_MS = 600_000

_KINDS = {
    "producer": str, "instance": str, "sequence": int, "since": int, "until": int, "closed": bool, "window": int,
    "counts": dict,
}  # fmt: skip

Send = Callable[[bytes, bytes], object]
Counts = Counter[tuple[str, int, int]]
"""Records by topic, partition and start of the window."""


@dataclass(frozen=True)
class Message:
    """One audit message of a producer."""

    producer: str
    instance: str
    sequence: int
    since: int
    until: int
    closed: bool
    window: int
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    def encoded(self) -> bytes:
        """Serialise the message as JSON."""
        return json.dumps({"audit": VERSION, **asdict(self)}).encode()

    @classmethod
    def decoded(cls, value: bytes) -> Message:
        """Parse what `encoded` returns. Raises ValueError for anything else."""
        try:
            fields = json.loads(value)
            if fields.pop("audit") != VERSION:
                raise ValueError("unsupported version")
            message = cls(**fields)
            message._check()
        except (AttributeError, KeyError, RecursionError, TypeError) as error:
            raise ValueError(f"not an audit message: {error}") from None
        return message

    def _check(self) -> None:
        """Check types and ranges, so that a reader can always count. Raises ValueError, or AttributeError."""
        wrong = [name for name, kind in _KINDS.items() if type(getattr(self, name)) is not kind]
        counted = [self.sequence, self.since, self.until, *self._numbers()] if not wrong else []
        if wrong or self.window <= 0 or any(type(each) is not int or each < 0 for each in counted):
            raise ValueError(f"not an audit message: {wrong or 'a number below 0'}")

    def _numbers(self) -> Iterator[int]:
        """All numbers in `counts`."""
        for (_, partition, _), records in self.records().items():
            yield from (partition, records)

    def records(self) -> Counts:
        """The counts as a flat Counter."""
        return Counter(
            {
                (topic, int(partition), int(at)): records
                for topic, partitions in self.counts.items()
                for partition, windows in partitions.items()
                for at, records in windows.items()
            }
        )


class Audit:
    """Counts for one producer; thread-safe. Sends at the end of each window, and at `close`.

    `send` gets key and value of a message. If it raises, the next message includes the counts; `close` raises.
    """

    def __init__(self, send: Send, producer: str, window_ms: int = WINDOW_MS) -> None:
        self._send, self._producer, self._window = send, producer, window_ms
        self._instance, self._sequence, self._since = uuid4().hex, 0, int(time.time() * 1000)
        self._counts: Counts = Counter()
        self._counting, self._closing = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def acknowledged(self, topic: str, partition: int, timestamp_ms: int, records: int = 1) -> None:
        """Count `records` records with this timestamp in the partition."""
        start = timestamp_ms - timestamp_ms % self._window
        with self._counting:
            self._counts[topic, partition, start] += records

    def on_delivery(self, error: Any, message: Any) -> None:
        """The `on_delivery=` callback for confluent_kafka's `produce`."""
        if error is None:
            self.acknowledged(message.topic(), message.partition(), message.timestamp()[1])

    def close(self) -> None:
        """Send the remaining counts."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._send_message(closed=True)

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing.wait(self._window / 1000 - time.time() % (self._window / 1000)):
            try:
                self._send_message(closed=False)
            except Exception as error:
                log.warning("audit of %s: %s; sent with the next window", self._producer, error)

    def _send_message(self, closed: bool) -> None:
        with self._counting:
            counts, self._counts = self._counts, Counter()
            until = int(time.time() * 1000)
        try:
            self._send(self._producer.encode(), self._message(counts, until, closed).encoded())
        except BaseException:
            with self._counting:
                self._counts += counts
            raise
        self._sequence, self._since = self._sequence + 1, until

    def _message(self, counts: Counts, until: int, closed: bool) -> Message:
        nested: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition, start), records in counts.items():
            nested.setdefault(topic, {}).setdefault(str(partition), {})[str(start)] = records
        return Message(self._producer, self._instance, self._sequence, self._since, until, closed, self._window, nested)
