"""Lists of partitions and brokers: as text, in the form of requests, and from the JSON files of Kafka's tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.commands._shared.client import Partition
from odradek.broker.errors import OdradekError

T = TypeVar("T", bound=Hashable)


def names(partitions: Iterable[Partition], between: str = ",") -> str:
    """`clicks-0,clicks-1`, sorted."""
    return between.join(f"{topic}-{index}" for topic, index in sorted(partitions))


def ids(brokers: Iterable[int]) -> str:
    """`0,1,2`, in the given order."""
    return ",".join(map(str, brokers))


def plural(things: Collection[Any]) -> str:
    """The plural ending of a noun for the number of `things`."""
    return "" if len(things) == 1 else "s"


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The indexes of each topic."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def repeated(things: Sequence[T]) -> list[T]:
    """The elements that occur more than once."""
    return [thing for thing, count in Counter(things).items() if count > 1]


def read_json(path: str, key: str) -> list[dict[str, Any]]:
    """The objects under `key` in a file of version 1, which is the default version."""
    try:
        document = json.loads(Path(path).read_text())
        version, rows = document.get("version", 1), document[key]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise OdradekError(f'{path} is not JSON with "{key}": {error}') from None
    if version != 1:
        raise OdradekError(f"{path}: Not supported version field value {version}")
    return list(rows)


def from_file(path: str) -> list[tuple[str, int, dict[str, Any]]]:
    """`{"partitions": [{"topic": "clicks", "partition": 0, …}]}`: topic, index and the whole object of each."""
    rows = read_json(path, "partitions")
    try:
        return [(str(row["topic"]), int(row["partition"]), row) for row in rows]
    except (TypeError, KeyError, ValueError) as error:
        raise OdradekError(f'{path}: each partition needs "topic" and "partition": {error}') from None
