"""The topics of a file: are they there, are they to be made; and is all of them decided."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Mapping

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.stages.declaration import Pipeline, Stage
from odradek.pipeline.types import LATEST
from odradek.pipeline.wire.brokers import Brokers

_ROOM = 1 << 16  # bytes: what a dead letter has more than the record had
_LIMIT = "max.message.bytes"
_SECONDS = 30
_STEP = 0.05


def missing(pipeline: Pipeline, there: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """Topics to be made, with their partitions, and a line for each that is not `there` and is not to be made."""
    known, new, mistakes = set(there), dict[str, int](), list[str]()
    for stage, key, topic in _named(pipeline.stages):
        if topic in known or topic in new:
            continue
        if key in _WRITTEN and stage.partitions:
            new[topic] = stage.partitions
        else:
            mistakes.append(f"stage {stage.name}: {key}: {_unknown(topic, known, key)}")
    return new, mistakes


_WRITTEN = ("to", "dead_letters")


def _named(stages: Iterable[Stage]) -> Iterator[tuple[Stage, str, str]]:
    """Every topic with who names it; stages come in their order, so one that is written comes before who reads it."""
    for stage in stages:
        yield from ((stage, "from", topic) for topic in stage.sources)
        yield from ((stage, f"enrich.{each.column}.with", each.topic) for each in stage.enrich)
        yield stage, "to", stage.to
        yield stage, "dead_letters", stage.dead_letters


def _unknown(topic: str, known: Iterable[str], key: str) -> str:
    near = difflib.get_close_matches(topic, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "; partitions = N would have it made" if key in _WRITTEN else ""
    return f"there is no topic {topic} (or this user may not see it){hint}"


def make(pipeline: Pipeline, new: Mapping[str, int]) -> None:
    """Topics with so many partitions each; those for dead letters take what is a little larger than sources may be."""
    dead = new.keys() & {stage.dead_letters for stage in pipeline.stages}
    topics.create(pipeline.kafka, {topic: new[topic] for topic in new if topic not in dead}, {}, may_exist=True)
    for topic in sorted(dead):  # the sources are there by now: stages come in their order
        sources = {source for stage in pipeline.stages if stage.dead_letters == topic for source in stage.sources}
        limits = [int(config[_LIMIT]) for config in topics.configs(pipeline.kafka, sources).values()]
        topics.create(pipeline.kafka, {topic: new[topic]}, {_LIMIT: str(max(limits) + _ROOM)}, may_exist=True)


def settle(kafka: dict[str, str], names: Iterable[str]) -> None:
    """Wait until no transaction of these topics is open, as long as one that ends by itself may take.

    A writer hears that its transaction is committed before each partition does. Who begins to read up to the end at
    that very moment would not get the last of it, until the next time.
    """
    with Brokers(kafka) as brokers:
        there = brokers.topics()
        keys = [(topic, index) for topic in names for index in range(there.get(topic, 0))]
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline and brokers.offsets(keys, LATEST) != brokers.offsets(keys, LATEST, True):
            time.sleep(_STEP)
