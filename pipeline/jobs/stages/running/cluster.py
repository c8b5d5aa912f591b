"""The topics of a file: check that they exist, create missing ones, wait until their transactions are decided."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Mapping

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.stages.declaration.declaration import Pipeline, Stage
from odradek.pipeline.types import LATEST
from odradek.pipeline.wire.brokers import Brokers

_ROOM = 1 << 16  # bytes: what a dead letter has in addition to its record
_LIMIT = "max.message.bytes"
_SECONDS = 30
_STEP = 0.05


def missing(pipeline: Pipeline, there: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """Topics to create, with their partitions, and a line for each one missing in `there` that must not be created."""
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
    """Every topic and the key that names it, in stage order, so a written topic comes before its readers."""
    for stage in stages:
        yield from ((stage, "from", topic) for topic in stage.sources)
        yield from ((stage, f"enrich.{each.column}.with", each.topic) for each in stage.enrich)
        yield stage, "to", stage.to
        yield stage, "dead_letters", stage.dead_letters


def _unknown(topic: str, known: Iterable[str], key: str) -> str:
    near = difflib.get_close_matches(topic, known, 1)
    hint = (
        f"; did you mean {near[0]}?" if near else "; with partitions = N the job creates it" if key in _WRITTEN else ""
    )
    return f"topic {topic} does not exist (or this user may not see it){hint}"


def make(pipeline: Pipeline, new: Mapping[str, int]) -> None:
    """Create topics with these numbers of partitions; those for dead letters allow slightly larger records."""
    dead = new.keys() & {stage.dead_letters for stage in pipeline.stages}
    topics.create(pipeline.kafka, {topic: new[topic] for topic in new if topic not in dead}, {}, may_exist=True)
    for topic in sorted(dead):  # the sources exist by now: stages come in order
        sources = {source for stage in pipeline.stages if stage.dead_letters == topic for source in stage.sources}
        limits = [int(config[_LIMIT]) for config in topics.configs(pipeline.kafka, sources).values()]
        topics.create(pipeline.kafka, {topic: new[topic]}, {_LIMIT: str(max(limits) + _ROOM)}, may_exist=True)


def settle(kafka: dict[str, str], names: Iterable[str]) -> None:
    """Wait until no transaction of these topics is open, up to the time that one that is ending may take.

    A writer learns of its commit before each partition does. A reader that starts to read to the end at that moment
    would miss the last records until its next run.
    """
    with Brokers(kafka) as brokers:
        there = brokers.topics()
        keys = [(topic, index) for topic in names for index in range(there.get(topic, 0))]
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline and brokers.offsets(keys, LATEST) != brokers.offsets(keys, LATEST, True):
            time.sleep(_STEP)
