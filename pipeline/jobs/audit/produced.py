"""Records acknowledged to producers: the sum of their messages (`odradek.pipeline.auditing`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.pipeline.auditing import Counts, Message
from odradek.pipeline.jobs.audit.period import Period, utc


@dataclass(frozen=True)
class Produced:
    """The records of each partition and window; `doubts` are lines on records that may be lost but are not counted."""

    counts: Counts
    doubts: list[str]


def messages(values: Iterable[bytes | None]) -> tuple[list[Message], list[str]]:
    """Each message once, and a note on other records in the topic."""
    found: dict[tuple[str, int], Message] = {}
    others = 0
    for value in values:
        try:
            message = Message.decoded(value or b"")
        except ValueError:
            others += 1
        else:
            found[message.instance, message.sequence] = message
    return list(found.values()), [f"invalid records in the audit topic: {others}"] if others else []


def add_up(reported: Iterable[Message], period: Period, since: int) -> Produced:
    """The counts in the period's windows, into which the messages' must fit; messages were read from `since` on."""
    counts: Counts = Counter()
    instances: dict[str, list[Message]] = defaultdict(list)
    for message in reported:
        instances[message.instance].append(message)
        for (topic, partition, start), records in message.records().items():
            if start in period:
                counts[topic, partition, period.window_of(start)] += records
    doubts = [doubt for one in instances.values() for doubt in _doubts(one, period, since)]
    return Produced(counts, sorted(doubts))


def _doubts(reported: list[Message], period: Period, since: int) -> Iterator[str]:
    """The doubts about one instance of a producer. The message before its first was sent at the first's `since`."""
    numbers = {message.sequence for message in reported}
    ordered = sorted(reported, key=lambda message: message.sequence)
    first, last = ordered[0], ordered[-1]
    before = first.sequence > 0 and first.since >= since
    lost = last.sequence - first.sequence + 1 - len(numbers) + before
    if lost:
        least = "at least " if before else ""
        yield f"producer {last.producer}: {least}{lost} of its audit messages are lost, and their counts are unknown"
    if not last.closed and last.until < period.end:
        yield f"producer {last.producer} is silent since {utc(last.until)}: its later records are not counted"
