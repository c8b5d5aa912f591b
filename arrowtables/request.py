"""The arguments of reading, checked, as the options of the pipeline's reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from odradek.arrowtables import client
from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading.offsets import All, Exactly, Since, Spec
from odradek.pipeline.reading.read_options import COLUMNS, ReadOptions
from odradek.pipeline.reading.subscription import Subscription
from odradek.pipeline.types import EARLIEST, LATEST

Position = str | int | datetime
"""`earliest`, `latest`, an offset, or the first record that is not older than a time with a zone."""

Positions = Position | Mapping[int, Position]
"""One for all partitions, or one for each: all times, or no times."""

DEFAULT_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
ISOLATION = ("read_committed", "read_uncommitted")
LOCAL = ("auto", "off", "only")
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def options(
    topic: str,
    start: Positions,
    end: Positions,
    *,
    servers: str | Sequence[str],
    partitions: Collection[int] | None,
    isolation: str,
    local: str,
    compacted: bool | None,
    split_bytes: int,
    settings: Mapping[str, Any],
) -> ReadOptions:
    """OptionError, in one line, for an argument that is wrong without any broker."""
    _check_topic(topic)
    client.check_reading(settings)
    kafka = client.settings(servers, settings) | {"isolation.level": _one_of("isolation", isolation, ISOLATION)}
    spark = {f"kafka.{name}": value for name, value in kafka.items()} | {"subscribe": "-"}
    return replace(
        ReadOptions.parse(spark, streaming=False),
        subscription=_subscription(topic, partitions),
        start=_spec("start", topic, start),
        end=_spec("end", topic, end),
        local=_one_of("local", local, LOCAL),
        compacted=compacted,
        split_bytes=_positive("split_bytes", split_bytes),
    )


def _check_topic(topic: object) -> None:
    if not isinstance(topic, str) or not topic.strip():
        raise OptionError(f"topic is {topic!r}: it must be the name of a topic")


def _subscription(topic: str, partitions: Collection[int] | None) -> Subscription:
    if partitions is None:
        return Subscription(topics=(topic,))
    if not partitions or not all(_is_number(index) for index in partitions):
        raise OptionError(f"partitions is {partitions!r}: it must be a list of partitions' numbers")
    return Subscription(assigned=tuple((topic, index) for index in sorted(set(partitions))))


def _spec(name: str, topic: str, given: Positions) -> Spec:
    if not isinstance(given, Mapping):
        at = _position(name, given)
        return Since(_ms(at), or_latest=True) if isinstance(at, datetime) else All(at)
    found = {(topic, index): _position(name, at) for index, at in given.items()}
    times = {key: _ms(at) for key, at in found.items() if isinstance(at, datetime)}
    numbers = {key: at for key, at in found.items() if isinstance(at, int)}
    if not found or (times and numbers):
        raise OptionError(f"{name} must have a position for each partition, and only times or no times")
    return Since(times, or_latest=True) if times else Exactly(numbers)


def _position(name: str, given: object) -> int | datetime:
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given
    if isinstance(given, datetime):
        raise OptionError(f"{name} is {given.isoformat()}, without a zone: datetime(…, tzinfo=UTC) has one")
    if isinstance(given, str) and given in _WORDS:
        return _WORDS[given]
    if _is_number(given):
        return int(str(given))
    raise OptionError(f"{name} is {given!r}: it must be 'earliest', 'latest', an offset, or a datetime with a zone")


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _ms(at: datetime) -> int:
    """Rounded up: no record before that time."""
    return -((_EPOCH - at) // _MS)


def columns(given: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of the result. OptionError."""
    chosen = DEFAULT_COLUMNS if given is None else tuple(given)
    if isinstance(given, str) or len(set(chosen)) < len(chosen) or not set(chosen) <= set(COLUMNS) or not chosen:
        raise OptionError(f"columns must be a list out of {', '.join(COLUMNS)}, each once, not {given!r}")
    return chosen


def _one_of(name: str, given: str, words: Sequence[str]) -> str:
    if given not in words:
        raise OptionError(f"{name} must be {' or '.join(words)}, not {given!r}")
    return given


def _positive(name: str, given: object) -> int:
    if not _is_number(given) or not given:
        raise OptionError(f"{name} must be a number above 0, not {given!r}")
    return int(str(given))


def check_numbers(**given: object) -> None:
    """OptionError for an argument that is no number above 0."""
    for name, number in given.items():
        _positive(name, number)


def check_views(views: object, forms: Mapping[str, object]) -> None:
    """OptionError where keys and values are to be views and to be decoded."""
    if not isinstance(views, bool):
        raise OptionError(f"views is {views!r}: it must be True or False")
    if views and forms:
        raise OptionError("views goes without schema: decoded values are no views of what was read")
