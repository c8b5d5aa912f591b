"""Why a group does not read a partition: what its members' librdkafka reported, and what each broker answers now.

A member that waits for ever says so nowhere but in its debug lines, and these are gone when it is closed. So each
member keeps the last ones of each kind, and its last statistics; all bounded.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from odradek.protocol.library import message_class

from ...clients.raw.calls import fetch
from ...harness.wire import Wire

_LINES = 6  # kept of each kind, so that frequent kinds do not displace rare ones
_STATISTICS_MS = 2000
_OF_PARTITION = (
    "fetch_state", "broker", "leader", "leader_epoch", "query_offset", "next_offset", "app_offset", "stored_offset",
    "committed_offset", "lo_offset", "hi_offset", "fetchq_cnt", "rxmsgs",
)  # fmt: skip
_OF_GROUP = ("state", "join_state", "stateage", "rebalance_cnt", "rebalance_age", "rebalance_reason", "assignment_size")


Wires = Mapping[int, Callable[[], Wire]]
"""Broker id → a new connection to it."""


class Place(NamedTuple):
    """Where a group reads no further."""

    topic: str
    group: str
    partition: int
    offset: int


class Recorder:
    """The last debug lines of each kind and the last statistics of one librdkafka client."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[float, str]]] = defaultdict(lambda: deque(maxlen=_LINES))
        self._statistics = "{}"
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(_Lines(self._record))
        self.config = {
            "debug": "cgrp,topic,consumer,fetch",
            "log_level": 7,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._keep,
        }

    def _record(self, record: logging.LogRecord) -> None:
        kind = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        self._lines[kind].append((record.created, record.getMessage()))

    def _keep(self, statistics: str) -> None:
        self._statistics = statistics

    def partition(self, topic: str, partition: int) -> dict[str, Any]:
        """The client's last statistics of a partition; empty if it does not know the partition."""
        topics = json.loads(self._statistics).get("topics", {})
        found: dict[str, Any] = topics.get(topic, {}).get("partitions", {}).get(str(partition), {})
        return found

    def lines(self, place: Place) -> Iterator[str]:
        """The last statistics, and the debug lines that name no other partition, in the order of their times."""
        yield f"group: {_some(json.loads(self._statistics).get('cgrp', {}), _OF_GROUP)}"
        yield f"partition: {_some(self.partition(place.topic, place.partition), _OF_PARTITION)}"
        for at, line in sorted(line for lines in list(self._lines.values()) for line in list(lines)):
            if f"{place.topic} [" not in line or f"{place.topic} [{place.partition}]" in line:
                yield f"{time.strftime('%X', time.localtime(at))} {line}"


class _Lines(logging.Handler):
    """Passes each record on."""

    def __init__(self, keep: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        self._keep(record)


def _some(statistics: dict[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {statistics[name]}" for name in names if name in statistics) or "unknown"


def explain(wires: Wires, place: Place, recorders: list[Recorder]) -> str:
    """What the members have recorded, and what the brokers answer now; to call before the members are stopped."""
    epochs = [one.partition(place.topic, place.partition).get("leader_epoch", -1) for one in recorders]
    said = [f"member {number}: {line}" for number, one in enumerate(recorders) for line in one.lines(place)]
    return "\n  ".join([*said, *_answers(wires, place, max(epochs, default=-1))])


def _answers(wires: Wires, place: Place, epoch: int) -> Iterator[str]:
    """Each broker's answers about the partition; `epoch` is the leader epoch that the members know."""
    for number, connected in wires.items():
        for name, request in _REQUESTS.items():
            try:
                with connected() as wire:
                    answer = request(wire, place, epoch)
            except Exception as error:  # it must not displace the fault that is explained
                answer = repr(error)
            yield f"broker {number}: {name}: {answer}"


def _metadata(wire: Wire, place: Place, epoch: int) -> str:
    rows = wire.metadata(place.topic).topics[0].partitions
    return str([row for row in rows if row.partition_index == place.partition])


def _offset_fetch(wire: Wire, place: Place, epoch: int) -> str:
    request = message_class("OffsetFetchRequest")
    topics = [request.OffsetFetchRequestTopic(name=place.topic, partition_indexes=[place.partition])]
    return str(wire.call(request[7](group_id=place.group, topics=topics, require_stable=False)))


def _offset_for_leader_epoch(wire: Wire, place: Place, epoch: int) -> str:
    request = message_class("OffsetForLeaderEpochRequest")
    row = request.OffsetForLeaderTopic
    asked = row.OffsetForLeaderPartition(partition=place.partition, current_leader_epoch=epoch, leader_epoch=epoch)
    return str(wire.call(request[3](replica_id=-1, topics=[row(topic=place.topic, partitions=[asked])])))


def _fetch(wire: Wire, place: Place, epoch: int) -> str:
    found = fetch(wire, place.topic, place.offset, partition=place.partition, wait_ms=0, epoch=epoch)
    numbers = f"high watermark {found.high_watermark}, log start {found.log_start_offset}"
    return f"error {found.error_code}, {numbers}, {len(found.records or b'')} bytes"


_REQUESTS: dict[str, Callable[[Wire, Place, int], str]] = {
    "Metadata": _metadata,
    "OffsetFetch": _offset_fetch,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "Fetch": _fetch,
}
