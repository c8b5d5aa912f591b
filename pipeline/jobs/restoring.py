"""One topic of an archive, put back: which offsets, into what, in which steps.

A restore goes in steps of so many offsets of each partition; by key these are cut by time (`merging`). A step is one
write of Spark's in which each partition of the archive, or each of so many groups of keys, is one transaction
(`odradek.transactional`), named after the restore, the step and the partition, or group. So a restore that died is just
started again, on any number of cores: what was written is not written again. For that it must do the same again: its
name is made of all that it was told and of the topic's id, and up to which offsets it goes is committed, before the
first step, to a group of that name; what the archive has got since then is left for another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import targets
from odradek.pipeline.jobs.archive import contents
from odradek.pipeline.jobs.archive.manifest import File, State
from odradek.pipeline.types import EARLIEST, LATEST, Partition, Range
from odradek.pipeline.wire.brokers import Brokers

PREFIX = "odradek-restore-"
_UNITS = ("by partition", "by key")  # a restore that was begun with other ones is refused: its topic has records


@dataclass(frozen=True)
class RestorePlan:
    """What a restore is told; times in ms since 1970, None for no bound."""

    topics: tuple[str, ...] = ()  # all
    prefix: str = ""
    since: int | None = None
    until: int | None = None
    by_key: bool = False
    append: bool = False
    step: int = 1_000_000  # offsets of each partition at once
    id: str = ""  # another one for the same restore a second time

    def target(self, topic: str) -> str:
        """Where a topic goes."""
        return f"{self.prefix}{topic}"

    def chosen(self, state: State) -> list[str]:
        """The topics of the archive that are meant. PipelineError for one that it has not, and where it has none."""
        if not state.topics:
            raise PipelineError("the archive has no topics: nothing was archived to it")
        unknown = sorted(set(self.topics) - set(state.topics))
        if unknown:
            known = ", ".join(state.topics)
            raise PipelineError(f"the archive has no topic {', '.join(unknown)}; it has {known}")
        return sorted(set(self.topics)) or state.topics


@dataclass(frozen=True)
class Plan:
    """Of one topic: `ends` are the offsets up to which it goes, by partition."""

    name: str
    topic: str
    target: str
    ends: Mapping[int, int]
    done: bool

    def whole(self, files: Iterable[File]) -> dict[int, Range]:
        """By partition all that is written."""
        chosen = list(files)
        first = {index: contents.first(chosen, index, end) for index, end in self.ends.items()}
        return {index: Range(self.topic, index, first[index], end) for index, end in self.ends.items()}

    def steps(self, files: Iterable[File], size: int) -> Iterator[dict[int, Range]]:
        """By partition what is written at once, in order, with blocks of offsets that do not depend on the files."""
        chosen = list(files)
        first = {index: contents.first(chosen, index, end) // size for index, end in self.ends.items()}
        for step in range(max((-(-end // size) - first[index] for index, end in self.ends.items()), default=0)):
            starts = {index: (first[index] + step) * size for index in self.ends}
            ranges = {
                index: Range(self.topic, index, at, min(at + size, self.ends[index])) for index, at in starts.items()
            }
            yield {index: one for index, one in ranges.items() if one.size > 0}


def prepare(brokers: Brokers, kafka: Mapping[str, str], root: str, state: State, wish: RestorePlan, topic: str) -> Plan:
    """Make the target topic where it is missing, and note how far the restore goes, unless it was begun before.

    PipelineError where the target has records, or too few partitions.
    """
    target, ends = wish.target(topic), {index: end for (name, index), end in state.offsets.items() if name == topic}
    count = _partitions(brokers, target, max(ends) + 1, wish.by_key)
    if count is None:
        count = max(ends) + 1
        targets.make(kafka, target, count, state.configs.get(topic, {}))
    name = _name(brokers, root, wish, topic)
    groups = _groups(name, target, ends, wish.by_key)
    found = _noted(brokers, groups)
    if not found:
        _check_empty(brokers, target, count, wish)
        _note(brokers, groups, ends)
    done = bool(brokers.committed(f"{PREFIX}{name}-done", [(target, 0)]))
    return Plan(name, topic, target, found or ends, done)


def finish(brokers: Brokers, plan: Plan) -> None:
    """All is written."""
    brokers.commit(f"{PREFIX}{plan.name}-done", {(plan.target, 0): 1})


def _partitions(brokers: Brokers, target: str, wanted: int, by_key: bool) -> int | None:
    """How many the target has, None where it is not there. PipelineError where these are too few."""
    count = brokers.topics().get(target)
    if count is not None and count < wanted and not by_key:
        raise PipelineError(f"{target} has {count} partitions, the archive {wanted}: add some, or restore it --by-key")
    return count


def _name(brokers: Brokers, root: str, wish: RestorePlan, topic: str) -> str:
    """The same for the same; another one for a topic that was deleted and made anew."""
    target = wish.target(topic)
    leader = next(iter(brokers.leaders([target]).values()))
    told = (root, topic, target, leader.topic_id.hex(), wish.since, wish.until, wish.by_key, wish.step, wish.id)
    return hashlib.sha256(json.dumps((*told, _UNITS[wish.by_key])).encode()).hexdigest()[:20]


def _check_empty(brokers: Brokers, target: str, count: int, wish: RestorePlan) -> None:
    keys = [(target, index) for index in range(count)]
    if not wish.append and brokers.offsets(keys, EARLIEST) != brokers.offsets(keys, LATEST):
        raise PipelineError(f"{target} has records: --append writes behind them, --prefix to another topic")


# -- up to which offsets, as committed offsets

Groups = dict[str, dict[int, Partition]]
"""By group, of which of its partitions the offset is that of which partition of the archive."""


def _noted(brokers: Brokers, groups: Groups) -> dict[int, int]:
    """Empty when nothing is noted yet, or not all: the first group is the last to be written."""
    found: dict[int, int] = {}
    for group, keys in groups.items():
        noted = brokers.committed(group, list(keys.values()))
        found |= {index: noted[key] for index, key in keys.items() if key in noted}
        if not found:
            break
    return found


def _note(brokers: Brokers, groups: Groups, ends: Mapping[int, int]) -> None:
    for group, keys in reversed(groups.items()):
        brokers.commit(group, {key: ends[index] for index, key in keys.items()})


def _groups(name: str, target: str, indexes: Iterable[int], by_key: bool) -> Groups:
    """One, where the target has all of these partitions. By key it may have fewer, and get more before the restore
    goes on: each has a group of its own then, of a partition that is always there.
    """
    if by_key:
        return {f"{PREFIX}{name}-{index}": {index: (target, 0)} for index in sorted(indexes)}
    return {f"{PREFIX}{name}-0": {index: (target, index) for index in indexes}}
