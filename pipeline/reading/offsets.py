"""Start and end offsets: Spark's JSON of offsets, and the meaning of `earliest`, `latest` and timestamps.

The JSON is that of Spark's Kafka source, so that checkpoints look alike: {"topic": {"0": 23, "1": -1}}.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.pipeline.errors import OptionError
from odradek.pipeline.parsing import LONG
from odradek.pipeline.types import EARLIEST, LATEST, Partition

_NAMED = 5  # the most partitions that an error names


class Log(Protocol):
    """The requests to the brokers; `brokers.Brokers` implements them."""

    def offsets(self, partitions: Collection[Partition], at: int, committed: bool) -> dict[Partition, int]:
        """The first (`at` EARLIEST) or end (LATEST) offset of each; with `committed` the last stable one."""

    def offsets_by_time(self, times: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        """The first offset whose record is not older than that many ms since 1970; None: there is none."""


@dataclass(frozen=True)
class All:
    """EARLIEST, LATEST or one offset in every partition."""

    at: int


@dataclass(frozen=True)
class Exactly:
    """An offset for each partition; may be EARLIEST or LATEST."""

    offsets: dict[Partition, int]

    def of(self, partitions: Collection[Partition]) -> Exactly:
        """Only the offsets of `partitions`."""
        return Exactly({key: offset for key, offset in self.offsets.items() if key in partitions})


@dataclass(frozen=True)
class Since:
    """The first record not older than `times` (ms since 1970), one for all partitions or one for each.

    Where there is none, an end is the end of the log; so is a start when `or_latest`, else it is an error.
    """

    times: int | dict[Partition, int]
    or_latest: bool = False


Spec = All | Exactly | Since


def resolve(
    spec: Spec, partitions: Collection[Partition], log: Log, committed: bool, what: str
) -> dict[Partition, int]:
    """The offset that `spec` means in each of `partitions`.

    `what` is "starting" or "ending": errors name it, and it decides what happens where no record is late enough.
    """
    match spec:
        case All(at):
            return dict.fromkeys(partitions, at) if at >= 0 else log.offsets(partitions, at, committed)
        case Exactly(offsets):
            _same(offsets, partitions, f"{what}Offsets")
            return _filled(offsets, log, committed)
    return _by_time(spec, partitions, log, committed, what)


def named(spec: Spec) -> Collection[Partition]:
    """The partitions that `spec` names; none where it is for all of them."""
    match spec:
        case Exactly(offsets):
            return offsets
        case Since(dict(times)):
            return times
    return ()


def as_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Nest the offsets for `json.dumps` as Spark's JSON, in order of topics and partitions."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(index)] = offset
    return nested


def from_json(nested: Any) -> dict[Partition, int]:
    """The inverse of `as_json`; raises ValueError for anything else."""
    try:
        flat = [(topic, key, offset) for topic, inner in nested.items() for key, offset in inner.items()]
    except AttributeError:
        raise ValueError("not an object of objects") from None
    for topic, key, offset in flat:
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and type(offset) is int):
            raise ValueError(f"{topic}: {key}: {offset}")
    return {(topic, int(key)): offset for topic, key, offset in flat}


def parse(name: str, text: str, least: int) -> dict[Partition, int]:
    """Parse the JSON in the option `name`; no number may be below `least` or too large for Kafka."""
    try:
        offsets = from_json(json.loads(text))
    except ValueError:
        offsets = {}
    if not offsets or min(offsets.values()) < least or max(offsets.values()) > LONG:
        example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}' if least < 0 else '{"topicA":{"0":1700000000000}}'
        raise OptionError(f"{name} must have the form {example}, not '{text}'")
    return offsets


def names(partitions: Iterable[Partition]) -> str:
    """`topic-0, topic-1`, shortened where there are many."""
    words = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _by_time(
    spec: Since, partitions: Collection[Partition], log: Log, committed: bool, what: str
) -> dict[Partition, int]:
    times = dict.fromkeys(partitions, spec.times) if isinstance(spec.times, int) else spec.times
    _same(times, partitions, f"{what}OffsetsByTimestamp")
    found = log.offsets_by_time(times)
    late = [partition for partition in times if found[partition] is None]
    if late and what == "starting" and not spec.or_latest:
        raise OptionError(
            f"no record is as late as the starting timestamp {times[min(late)]} in {names(late)}; with "
            "startingOffsetsByTimestampStrategy=latest such partitions start at their end"
        )
    offsets = {partition: LATEST if offset is None else offset for partition, offset in found.items()}
    return _capped(_filled(offsets, log, committed), log) if committed else _filled(offsets, log, committed)


def _filled(offsets: Mapping[Partition, int], log: Log, committed: bool) -> dict[Partition, int]:
    """Replace EARLIEST and LATEST, with at most one request for each of the two."""
    filled = dict(offsets)
    for at in (EARLIEST, LATEST):
        wanted = [partition for partition, offset in offsets.items() if offset == at]
        if wanted:
            filled.update(log.offsets(wanted, at, committed))
    return filled


def _capped(offsets: Mapping[Partition, int], log: Log) -> dict[Partition, int]:
    """Stop at the last stable offset: a record found by its time may be of an open transaction."""
    stable = log.offsets(offsets.keys(), LATEST, True)
    return {partition: min(offset, stable[partition]) for partition, offset in offsets.items()}


def _same(given: Mapping[Partition, int], partitions: Collection[Partition], option: str) -> None:
    """As in Spark, name all partitions and no others, so that a forgotten one is not read from an arbitrary offset."""
    missing, unknown = set(partitions) - given.keys(), given.keys() - set(partitions)
    if missing:
        raise OptionError(
            f"{option} must name every partition (-1 is latest, -2 earliest): {names(missing)} is missing"
        )
    if unknown:
        raise OptionError(f"{option} names {names(unknown)}, which the query does not read")
