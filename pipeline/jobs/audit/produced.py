"""What producers say that they had acknowledged: the sum of their messages (`odradek.pipeline.auditing`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.pipeline.auditing import Counts, Message
from odradek.pipeline.jobs.audit.period import Period, utc


@dataclass(frozen=True)
class Produced:
    """The records of each topic and window; `notes` are lines on what may not have been counted."""

    counts: Counts
    notes: list[str]


def messages(values: Iterable[bytes | None]) -> tuple[list[Message], list[str]]:
    """Each message once, and a note on what else is in the topic."""
    found: dict[tuple[str, int], Message] = {}
    others = 0
    for value in values:
        try:
            message = Message.decoded(value or b"")
        except ValueError:
            others += 1
        else:
            found[message.instance, message.sequence] = message
    return list(found.values()), [f"records of the audit topic that are no audit messages: {others}"] if others else []


def add_up(told: Iterable[Message], period: Period) -> Produced:
    """The counts in windows of the period; those of the messages must fit into them (`period_of`)."""
    counts: Counts = Counter()
    instances: dict[str, list[Message]] = defaultdict(list)
    for message in told:
        instances[message.instance].append(message)
        for (topic, start), records in message.records().items():
            if start in period:
                counts[topic, period.window_of(start)] += records
    notes = [note for one in instances.values() for note in _doubts(one, period)]
    return Produced(counts, sorted(notes))


def _doubts(told: list[Message], period: Period) -> Iterator[str]:
    """Of one instance of a producer."""
    numbers = {message.sequence for message in told}
    last = max(told, key=lambda message: message.sequence)
    lost = max(numbers) - min(numbers) + 1 - len(numbers)
    if lost:
        yield f"producer {last.producer}: {lost} of its audit messages are lost, and what they counted"
    if not last.closed and last.until < period.end:
        yield f"producer {last.producer} is silent since {utc(last.until)}: what it sent then is not counted"
