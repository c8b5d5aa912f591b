"""An archive's files and end offsets: the fold of its commits, in order.

A commit is a JSON file `_odradek/commits/<20 digits>.json`, numbered from 0; commit 0 creates the archive and is empty.
A snapshot follows every tenth, `<20 digits>.snapshot.json`: the state after it, from which a reader starts. Files that
no commit names do not belong to the archive, wherever they lie. Paths are relative to the archive's folder.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Partition

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files

COMMITS = "_odradek/commits"
EVERY = 10  # commits between snapshots
VERSION = 1
CONTROL, ABORTED, COMPACTED, LOST, UNKNOWN = "control", "aborted", "compacted", "lost", "unknown"
Skipped = Mapping[Partition, Mapping[str, int]]
"""By partition and reason: markers of transactions, records of aborted ones, records removed by compaction, lost
records left out (failOnDataLoss=false), and those whose reason is unknown.
"""
Configs = Mapping[str, Mapping[str, str]]
"""By topic: its own settings, and those that decide which records it accepts and keeps, wherever these come from."""
_NAME = re.compile(r"(\d{20})(\.snapshot)?\.json")


class Span(NamedTuple):
    """The records of one partition in a file: their number, the first and the last offset."""

    rows: int
    first: int
    last: int


@dataclass(frozen=True)
class File:
    """A Parquet file of one topic and one hour; `size` in bytes, `modified_ms` since 1970.

    Files with the same `schema`, a digest of it, have the same columns.
    """

    path: str
    topic: str
    partitions: Mapping[int, Span]
    size: int
    modified_ms: int = 0
    schema: str = ""

    @property
    def rows(self) -> int:
        """The records of all its partitions."""
        return sum(span.rows for span in self.partitions.values())

    @property
    def folder(self) -> str:
        """Topic, date and hour: `topic=orders/date=2026-11-23/hour=01`."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class Commit:
    """What one batch of a stream, or a compaction, changes in the archive.

    `stream` identifies a run. `offsets` are [from, to) of each partition in the batch; compactions have none. Where
    `from` is beyond the last `to`, the offsets in between were lost before they could be read. `ids` are those of
    topics that no earlier commit had, in hex: a topic of the same name that is created later has another. `configs` are
    those of topics whose settings differ from the last commit that had any. `skipped` are the offsets of each
    partition's range without a record in the archive, by reason.
    """

    stream: str
    batch: int
    offsets: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    added: tuple[File, ...] = ()
    removed: tuple[str, ...] = ()
    at_ms: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)
    configs: Configs = field(default_factory=dict)
    skipped: Skipped = field(default_factory=dict)
    counts: bool = True  # earlier versions did not

    @property
    def topics(self) -> list[str]:
        """The topics whose files change, sorted."""
        return sorted({file.topic for file in self.added} | {topic_of(path) for path in self.removed})


@dataclass(frozen=True)
class State:
    """An archive after commit `number`: its live files by path, and each partition's next offset.

    `ids` and `configs` are the topics', as far as brokers returned them. `begun` is where the archive of a partition
    begins, and `skipped` the offsets from there on without a record, for partitions begun by a version that counts
    them.
    """

    number: int = -1
    files: Mapping[str, File] = field(default_factory=dict)
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    configs: Configs = field(default_factory=dict)
    begun: Mapping[Partition, int] = field(default_factory=dict)
    skipped: Skipped = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics read so far, with or without records."""
        return sorted({topic for topic, _ in self.offsets})

    def of(self, topic: str) -> list[File]:
        """The topic's live files, by path."""
        return sorted(self._by_topic.get(topic, ()), key=lambda file: file.path)

    @cached_property
    def _by_topic(self) -> Mapping[str, list[File]]:
        groups = defaultdict(list)
        for file in self.files.values():
            groups[file.topic].append(file)
        return groups


def live(files: Files) -> State:
    """The current state of the archive at `files.root`. PipelineError where there is none, or it is damaged."""
    names = [entry.path.rpartition("/")[2] for entry in files.list(COMMITS)] if files.exists(COMMITS) else []
    state, rest = latest(names)
    if state is None and not rest:
        raise PipelineError(f"{files.root} is not an archive: its {COMMITS} is empty")
    found = State() if state is None else state_from_json(files.read(f"{COMMITS}/{state}"))
    for name in rest:
        found = fold(found, commit_from_json(files.read(f"{COMMITS}/{name}")))
    return found


def latest(names: Iterable[str]) -> tuple[str | None, list[str]]:
    """The newest snapshot among the files' names, and the commits after it in order; PipelineError at a gap."""
    found = [match for match in map(_NAME.fullmatch, sorted(names)) if match]
    snapshots = [match for match in found if match[2]]
    begin = int(snapshots[-1][1]) if snapshots else -1
    rest = {int(match[1]): match[0] for match in found if not match[2] and int(match[1]) > begin}
    for number in range(begin + 1, max(rest, default=begin) + 1):
        if number not in rest:
            raise PipelineError(f"the archive is damaged: {COMMITS}/{commit_name(number)} is missing")
    return snapshots[-1][0] if snapshots else None, [rest[number] for number in sorted(rest)]


def outdated(names: Iterable[str]) -> list[str]:
    """Unneeded commits and snapshots: those before the second newest snapshot, which a slow reader may still need."""
    found = [match for match in map(_NAME.fullmatch, names) if match]
    snapshots = sorted(int(match[1]) for match in found if match[2])
    keep = snapshots[-2] if len(snapshots) > 1 else -1
    return sorted(match[0] for match in found if int(match[1]) < keep or (int(match[1]) == keep and not match[2]))


def commit_name(number: int) -> str:
    """The file of commit `number`."""
    return f"{number:020}.json"


def snapshot_name(number: int) -> str:
    """The file of the state after commit `number`."""
    return f"{number:020}.snapshot.json"


def topic_of(path: str) -> str:
    """The topic of a data file, by its folder."""
    return path.partition("/")[0].removeprefix("topic=")


def fold(state: State, commit: Commit) -> State:
    """The state after one more commit; no offset goes back. PipelineError where the commit cannot follow."""
    files = dict(state.files)
    for path in commit.removed:
        if files.pop(path, None) is None:
            raise PipelineError(
                f"the archive is damaged: commit {state.number + 1} removes {path}, which does not exist"
            )
    for file in commit.added:
        if file.path in files:
            raise PipelineError(f"the archive is damaged: commit {state.number + 1} adds {file.path} a second time")
        files[file.path] = file
    ends = {key: max(end, state.offsets.get(key, 0)) for key, (_, end) in commit.offsets.items()}
    ids, configs = {**state.ids, **commit.ids}, {**state.configs, **commit.configs}
    counted = _begun(state, commit), _skipped(state, commit)
    return State(state.number + 1, files, {**state.offsets, **ends}, ids, configs, *counted)


def _begun(state: State, commit: Commit) -> dict[Partition, int]:
    new = {key: begin for key, (begin, _) in commit.offsets.items() if key not in state.offsets}
    return {**state.begun, **(new if commit.counts else {})}


def _skipped(state: State, commit: Commit) -> dict[Partition, dict[str, int]]:
    """Offsets between two ranges were lost before they could be read."""
    found = {key: dict(reasons) for key, reasons in state.skipped.items()}
    for key, (begin, _) in commit.offsets.items():
        gap = {LOST: begin - state.offsets.get(key, begin)}
        for reason, count in [*gap.items(), *commit.skipped.get(key, {}).items()]:
            if count > 0:
                found.setdefault(key, {})[reason] = found.get(key, {}).get(reason, 0) + count
    return found


# -- JSON


def commit_to_json(commit: Commit) -> str:
    """The content of its file."""
    return _text(
        stream=commit.stream,
        batch=commit.batch,
        at_ms=commit.at_ms,
        offsets=_nested({key: list(both) for key, both in commit.offsets.items()}),
        added=[_file_out(file) for file in commit.added],
        removed=list(commit.removed),
        ids=dict(commit.ids),
        configs=_configs(commit.configs),
        skipped=_nested(commit.skipped),
    )


def commit_from_json(text: str) -> Commit:
    """The inverse; PipelineError for anything else."""
    with _Reading("a commit") as reading:
        got = reading.parse(text)
        offsets = {key: (int(both[0]), int(both[1])) for key, both in _flat(got["offsets"]).items()}
        added = tuple(_file_in(each) for each in got["added"])
        removed, ids = tuple(got["removed"]), dict(got.get("ids", {}))  # earlier versions wrote no ids
        configs = _configs(got.get("configs", {}))  # nor configs
        skipped, counts = _flat(got.get("skipped", {})), "skipped" in got
        return Commit(got["stream"], got["batch"], offsets, added, removed, got["at_ms"], ids, configs, skipped, counts)


def state_to_json(state: State) -> str:
    """A snapshot."""
    files = [_file_out(file) for _, file in sorted(state.files.items())]
    known = {"ids": dict(state.ids), "configs": _configs(state.configs)}
    known |= {"begun": _nested(state.begun), "skipped": _nested(state.skipped)}
    return _text(number=state.number, offsets=_nested(state.offsets), **known, files=files)


def state_from_json(text: str) -> State:
    """Parse a snapshot; PipelineError for anything else."""
    with _Reading("a snapshot") as reading:
        got = reading.parse(text)
        files = [_file_in(each) for each in got["files"]]
        ids, configs = dict(got.get("ids", {})), _configs(got.get("configs", {}))
        counted = _flat(got.get("begun", {})), _flat(got.get("skipped", {}))
        return State(got["number"], {file.path: file for file in files}, _flat(got["offsets"]), ids, configs, *counted)


class _Reading:
    """Turns an error in a JSON into one line."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> _Reading:
        return self

    def parse(self, text: str) -> Any:
        got = json.loads(text)
        if got["version"] != VERSION:
            raise PipelineError(f"the archive has version {got['version']}; this release supports version {VERSION}")
        return got

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ValueError | KeyError | TypeError | AttributeError | IndexError):
            raise PipelineError(f"the archive is damaged: {self._what} cannot be read ({error!r})") from None


def _text(**fields: Any) -> str:
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")) + "\n"


def _configs(configs: Configs) -> dict[str, dict[str, str]]:
    return {topic: dict(config) for topic, config in configs.items()}


def _nested(flat: Mapping[Partition, Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for (topic, index), value in sorted(flat.items()):
        nested.setdefault(topic, {})[str(index)] = value
    return nested


def _flat(nested: Mapping[str, Mapping[str, Any]]) -> dict[Partition, Any]:
    return {(topic, int(index)): value for topic, inner in nested.items() for index, value in inner.items()}


def _file_out(file: File) -> dict[str, Any]:
    spans = {str(index): list(span) for index, span in sorted(file.partitions.items())}
    return {
        "path": file.path,
        "topic": file.topic,
        "partitions": spans,
        "rows": file.rows,
        "size": file.size,
        "modified_ms": file.modified_ms,
        "schema": file.schema,
    }


def _file_in(got: Mapping[str, Any]) -> File:
    spans = {int(index): Span(*span) for index, span in got["partitions"].items()}
    return File(got["path"], got["topic"], spans, got["size"], got["modified_ms"], got["schema"])


def now_ms() -> int:
    """The time for commits and files, in ms since 1970."""
    return int(time.time() * 1000)
