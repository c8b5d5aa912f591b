"""Plan the restore of one topic: its offsets, target and steps.

A restore goes in steps of a number of offsets of each partition; by key, times cut the steps (`merging`). A step is one
write of Spark's in which each partition of the archive, or each group of keys, is one transaction
(`odradek.transactional`), named after the restore, the step and the partition, or group. So a restore that died can
just be started again, on any number of cores: it does not write twice. For that it must do the same again: its name
derives from all its options and from the topic's id, and its end offsets are committed, before the first step, to a
group of that name; records that the archive gets later need another restore.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import contents
from odradek.pipeline.jobs.archive.store.manifest import File, State
from odradek.pipeline.jobs.restore import targets
from odradek.pipeline.types import EARLIEST, LATEST, Partition, Range
from odradek.pipeline.wire.brokers import Brokers

PREFIX = "odradek-restore-"
_UNITS = ("by partition", "by key")  # a restore that began with other units is refused: its topic has records


@dataclass(frozen=True)
class RestorePlan:
    """The options of a restore; times in ms since 1970, None for no bound."""

    topics: tuple[str, ...] = ()  # all
    prefix: str = ""
    since: int | None = None
    until: int | None = None
    by_key: bool = False
    append: bool = False
    step: int = 1_000_000  # offsets of each partition at once
    id: str = ""  # a new one repeats the same restore

    def target(self, topic: str) -> str:
        """The target of a topic."""
        return f"{self.prefix}{topic}"

    def chosen(self, state: State) -> list[str]:
        """The selected topics of the archive. PipelineError for a missing one, and where the archive has none."""
        if not state.topics:
            raise PipelineError("the archive has no topics")
        unknown = sorted(set(self.topics) - set(state.topics))
        if unknown:
            known = ", ".join(state.topics)
            raise PipelineError(f"the archive has no topic {', '.join(unknown)}; it has {known}")
        return sorted(set(self.topics)) or state.topics


@dataclass(frozen=True)
class Plan:
    """The plan for one topic: `ends` are its end offsets, by partition."""

    name: str
    topic: str
    target: str
    ends: Mapping[int, int]
    done: bool

    def whole(self, files: Iterable[File]) -> dict[int, Range]:
        """By partition the full range to write."""
        chosen = list(files)
        first = {index: contents.first(chosen, index, end) for index, end in self.ends.items()}
        return {index: Range(self.topic, index, first[index], end) for index, end in self.ends.items()}

    def steps(self, files: Iterable[File], size: int) -> Iterator[dict[int, Range]]:
        """By partition the ranges to write at once, in order, in blocks of offsets that do not depend on the files."""
        chosen = list(files)
        first = {index: contents.first(chosen, index, end) // size for index, end in self.ends.items()}
        for step in range(max((-(-end // size) - first[index] for index, end in self.ends.items()), default=0)):
            starts = {index: (first[index] + step) * size for index in self.ends}
            ranges = {
                index: Range(self.topic, index, at, min(at + size, self.ends[index])) for index, at in starts.items()
            }
            yield {index: one for index, one in ranges.items() if one.size > 0}


def prepare(
    brokers: Brokers, kafka: Mapping[str, str], root: str, state: State, request: RestorePlan, topic: str
) -> Plan:
    """Create the target topic where it is missing, and record the restore's end offsets, unless it began before.

    PipelineError where the target has records, or too few partitions.
    """
    target, ends = request.target(topic), {index: end for (name, index), end in state.offsets.items() if name == topic}
    count = _partitions(brokers, target, max(ends) + 1, request.by_key)
    if count is None:
        count = max(ends) + 1
        targets.make(kafka, target, count, state.configs.get(topic, {}))
    name = _name(brokers, root, request, topic)
    groups = _groups(name, target, ends, request.by_key)
    found = _read_end_offsets(brokers, groups)
    if not found:
        _check_empty(brokers, target, count, request)
        _commit_end_offsets(brokers, groups, ends)
    done = bool(brokers.committed(f"{PREFIX}{name}-done", [(target, 0)]))
    return Plan(name, topic, target, found or ends, done)


def finish(brokers: Brokers, plan: Plan) -> None:
    """Record that all is written."""
    brokers.commit(f"{PREFIX}{plan.name}-done", {(plan.target, 0): 1})


def _partitions(brokers: Brokers, target: str, wanted: int, by_key: bool) -> int | None:
    """The target's number of partitions, None where it does not exist. PipelineError where it is too small."""
    count = brokers.topics().get(target)
    if count is not None and count < wanted and not by_key:
        raise PipelineError(
            f"{target} has {count} partitions, the archive {wanted}: add partitions, or restore with --by-key"
        )
    return count


def _name(brokers: Brokers, root: str, request: RestorePlan, topic: str) -> str:
    """The same for the same restore; another one for a topic that was deleted and recreated."""
    target = request.target(topic)
    leader = next(iter(brokers.leaders([target]).values()))
    identity = (
        root,
        topic,
        target,
        leader.topic_id.hex(),
        request.since,
        request.until,
        request.by_key,
        request.step,
        request.id,
    )
    return hashlib.sha256(json.dumps((*identity, _UNITS[request.by_key])).encode()).hexdigest()[:20]


def _check_empty(brokers: Brokers, target: str, count: int, request: RestorePlan) -> None:
    keys = [(target, index) for index in range(count)]
    if not request.append and brokers.offsets(keys, EARLIEST) != brokers.offsets(keys, LATEST):
        raise PipelineError(f"{target} has records: --append appends to them, --prefix writes to another topic")


# -- the end offsets, as committed offsets

Groups = dict[str, dict[int, Partition]]
"""By group: which of its partitions has the end offset of which partition of the archive."""


def _read_end_offsets(brokers: Brokers, groups: Groups) -> dict[int, int]:
    """Empty when nothing is recorded yet, or not all: the first group is written last."""
    found: dict[int, int] = {}
    for group, keys in groups.items():
        noted = brokers.committed(group, list(keys.values()))
        found |= {index: noted[key] for index, key in keys.items() if key in noted}
        if not found:
            break
    return found


def _commit_end_offsets(brokers: Brokers, groups: Groups, ends: Mapping[int, int]) -> None:
    for group, keys in reversed(groups.items()):
        brokers.commit(group, {key: ends[index] for index, key in keys.items()})


def _groups(name: str, target: str, indexes: Iterable[int], by_key: bool) -> Groups:
    """One group, if the target has all of these partitions. By key it may have fewer, and get more before the restore
    continues: then each has its own group, with a partition that always exists.
    """
    if by_key:
        return {f"{PREFIX}{name}-{index}": {index: (target, 0)} for index in sorted(indexes)}
    return {f"{PREFIX}{name}-0": {index: (target, index) for index in indexes}}
