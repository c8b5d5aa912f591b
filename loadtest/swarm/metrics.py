"""The three figures of a Kafka client in locust's own statistics.

The acknowledgement latency is the request: locust's totals, rates and failures come from it. End-to-end latency and lag
have separate rows outside the total, which otherwise would mix reads with writes and counts with milliseconds.
"""

from __future__ import annotations

import time
from typing import Any

import locust.stats

PRODUCE, CONSUME, LAG = "PRODUCE", "CONSUME", "LAG"
END_TO_END = "end to end, from send to read"
BEHIND = "records a group is behind (a count, not ms)"


def fine_buckets() -> None:
    """Keep two digits below 10 ms too: locust rounds to whole milliseconds, and a broker responds within one."""
    coarse = locust.stats.bucket_response_time

    def bucket(value: float) -> float:
        return coarse(value) if value >= 10 else round(value, 1 if value >= 1 else 2)

    locust.stats.bucket_response_time = bucket  # type: ignore[assignment]  # any number is a key


def acked(environment: Any, name: str, seconds: float, size: int) -> None:
    """A record was acknowledged `seconds` after it was sent."""
    _fire(environment, PRODUCE, name, seconds * 1000, size, None)


def failed(environment: Any, method: str, name: str, error: Exception) -> None:
    """An error that must not happen: it counts in the error rate, and fails the run."""
    _fire(environment, method, name, 0, 0, error)


def _fire(environment: Any, method: str, name: str, ms: float, size: int, error: Exception | None) -> None:
    environment.events.request.fire(
        request_type=method, name=name, response_time=ms, response_length=size, exception=error, context={}
    )


def delivered(environment: Any, sent_ns: int, size: int) -> None:
    """A record was read that was sent at `sent_ns`."""
    environment.stats.get(END_TO_END, CONSUME).log((time.time_ns() - sent_ns) / 1e6, size)


def behind(environment: Any, records: int) -> None:
    """A group has a lag of `records`."""
    environment.stats.get(BEHIND, LAG).log(records, 0)
