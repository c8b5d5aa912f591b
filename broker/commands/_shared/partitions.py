"""Lists of partitions and brokers: as text, in the form of requests, and from the JSON files of Kafka's tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.commands._shared.client import Partition
from odradek.broker.errors import OdradekError
from odradek.protocol.wire import INT32_MAX

_LONGEST = 200  # characters of JSON in an error

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
    """The objects under `key` in a file of version 1, which is the default version. OdradekError."""
    try:
        document = json.loads(Path(path).read_text())
        version, rows = document.get("version", 1), document[key]
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise OdradekError(f'{path} is not JSON with "{key}": {error}') from None
    if not is_int32(version) or version != 1:
        raise OdradekError(f"{path}: Not supported version field value {_shown(version)}")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise OdradekError(f'{path}: "{key}" must be a list of objects, not {_shown(rows)}')
    return rows


def from_file(path: str) -> list[tuple[str, int, dict[str, Any]]]:
    """`{"partitions": [{"topic": "clicks", "partition": 0, …}]}`: topic, index and the whole object of each.

    As Kafka's decoder it takes no true, "1" or 1.0 for a number, and no number for a topic. OdradekError."""
    rows = read_json(path, "partitions")
    for row in rows:
        if not isinstance(row.get("topic"), str) or not is_int32(row.get("partition")):
            needs = 'each partition needs "topic", a string, and "partition", a whole number of 32 bits'
            raise OdradekError(f"{path}: {needs}, not {_shown(row)}")
    return [(row["topic"], row["partition"], row) for row in rows]


def is_int32(value: Any) -> bool:
    """Whether a value of JSON is a whole number of 32 bits; Python counts true as one, Kafka's decoder does not."""
    return type(value) is int and ~INT32_MAX <= value <= INT32_MAX


def _shown(value: Any) -> str:
    """JSON on one line, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
