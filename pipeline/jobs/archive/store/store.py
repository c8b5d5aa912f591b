"""An archive and its only writer: staged files are committed completely or not at all, whenever the driver dies.

    intent     _odradek/pending.json: the renames to do, and their commit
    renames    from _odradek/staging into the topics' folders
    commit     _odradek/commits/<n>.json: now it is in the archive
    views      topic=…/_spark_metadata: now Spark sees it; topic=…/_delta_log, where it exists: now Delta readers do
    removals   of files that were replaced, then of the intent

Each step is idempotent, so a writer completes an intent that it finds at its start; after that no writer owns staged
files. Before the intent there are only staged files.

A writer that was taken for dead may wake in any step, when another one is at work. Then it fails in the next step, and
removes nothing that belongs to the other. It stages below a folder with its own name, and every file that it creates or
replaces comes from its room, `_odradek/staging/<name>.room`, by a rename. A writer that takes the archive over removes
all rooms before it reads anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.store import manifest, views
from odradek.pipeline.jobs.archive.store.lease import Lease
from odradek.pipeline.jobs.archive.store.manifest import COMMITS, Commit, State

if TYPE_CHECKING:
    from odradek.pipeline.jobs.archive.store.delta import Delta
    from odradek.pipeline.jobs.files import Files

OURS = "_odradek"
PENDING = f"{OURS}/pending.json"
STAGING = f"{OURS}/staging"
CHECKPOINT = f"{OURS}/checkpoint"
_ROOM = ".room"

Move = tuple[str, str]
"""A rename of a file: from, to."""


@dataclass(frozen=True)
class Intent:
    """A commit in progress."""

    number: int
    moves: tuple[Move, ...]
    commit: Commit

    def to_json(self) -> str:
        """The content of its file."""
        commit = json.loads(manifest.commit_to_json(self.commit))
        return json.dumps({"number": self.number, "moves": self.moves, "commit": commit}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Intent:
        """The inverse; PipelineError for anything else."""
        try:
            got = json.loads(text)
            moves = tuple((old, new) for old, new in got["moves"])
            return cls(got["number"], moves, manifest.commit_from_json(json.dumps(got["commit"])))
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"the archive is damaged: {PENDING} cannot be read ({error!r})") from None


class Store:
    """Holds the lease of an archive while it is open; a context manager. `state` is what is committed.

    `staging` is the folder for files to commit. `delta` are the topics' Delta tables, if the archive has them.
    """

    def __init__(self, files: Files, delta: Delta | None = None) -> None:
        self.files = files
        self._delta = delta
        self.state = State()
        self._lease = Lease(files)
        self.staging = f"{STAGING}/{self._lease.id}"
        self._room = f"{self.staging}{_ROOM}"

    def __enter__(self) -> Store:
        """Take the archive, create it where it does not exist, and finish an interrupted commit.

        PipelineError where the folder has other content, it is not writable, another job is at work, or the archive has
        Delta tables that this run would not maintain.
        """
        self._check_folder()
        self._check_tables()
        self._lease.take()
        try:
            self._remove_others(STAGING, lambda name: name.endswith(_ROOM))
            self.files.make(self._room)
            self.files.room = self._room
            self._recover()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _leave(self) -> None:
        """Remove this writer's own remains, even if another writer has the archive by now."""
        self._lease.release()
        self.files.room = None
        with suppress(PipelineError):
            for mine in (self.staging, self._room):
                self.files.delete(mine)
            self.files.delete_empty(STAGING)

    def _remove_others(self, folder: str, which: Callable[[str], bool] = lambda _: True) -> None:
        """Remove the content of a folder; it is listed while this is the writer, so none of it is of a later one."""
        found = [name for name in self.files.names(folder) if which(name) and f"{folder}/{name}" != self._room]
        self._lease.check()
        for name in found:
            self.files.delete(f"{folder}/{name}")

    def commit(self, moves: Sequence[Move], commit: Commit) -> None:
        """Move staged files into place and commit them, or replace some files by others."""
        self._lease.check()
        try:
            self._commit(Intent(self.state.number + 1, tuple(moves), commit))
        except PipelineError:
            self._lease.check()  # says why, if the room is gone
            raise

    def _commit(self, intent: Intent) -> None:
        if not self.files.create(PENDING, intent.to_json()):
            raise PipelineError(f"{self.files.root}: another job has started a commit here")
        self._carry_out(intent)

    def _check_folder(self) -> None:
        if not self.files.exists(OURS) and not self.files.empty():
            raise PipelineError(
                f"{self.files.root} is not empty and not an archive: give a new folder, or one with an archive"
            )
        self.files.check_writable()

    def _check_tables(self) -> None:
        """A table without updates would soon name files that a compaction has removed."""
        here = self.files.here
        kept = sorted(here.glob("topic=*/_delta_log")) if self._delta is None and here is not None else []
        if kept:
            topic = kept[0].parent.name.removeprefix("topic=")
            raise OptionError(
                f"{topic} is a Delta table in {self.files.root}; give --table delta again, or delete {kept[0]}"
            )

    def _recover(self) -> None:
        if not self.files.list(COMMITS):
            self.files.create(f"{COMMITS}/{manifest.commit_name(0)}", manifest.commit_to_json(Commit("", 0)))
        self.state = manifest.live(self.files)
        if self.files.exists(PENDING):
            self._end(Intent.from_json(self.files.read(PENDING)))
        for left in (STAGING, CHECKPOINT):
            self._remove_others(left)
        self._show({file.topic for file in self.state.files.values()})

    def _show(self, topics: Iterable[str]) -> None:
        for topic in topics:
            views.show(self.files, topic, self.state.of(topic))
            if self._delta is not None:
                self._delta.show(self.state, topic, self._lease.check)

    def _end(self, intent: Intent) -> None:
        """Complete the intent; or undo it, if a job taken for dead wrote it too late.

        Nothing was removed for it yet, and the next batch reads its offsets again.
        """
        whole = all(self.files.exists(old) or self.files.exists(new) for old, new in intent.moves)
        if self._is_committed(intent) or (intent.number > self.state.number and whole):
            self._carry_out(intent)
            return
        for _, new in intent.moves:
            self.files.delete(new)
        self.files.take_away(PENDING)

    def _is_committed(self, intent: Intent) -> bool:
        path = f"{COMMITS}/{manifest.commit_name(intent.number)}"
        return self.files.exists(path) and manifest.commit_from_json(self.files.read(path)) == intent.commit

    def _carry_out(self, intent: Intent) -> None:
        topics = intent.commit.topics
        for topic in topics:
            views.begin(self.files, topic)
        for old, new in intent.moves:
            self._move(old, new)
        self.files.sync([new for _, new in intent.moves])  # a commit survives a power failure
        self._enter(intent)
        self._show(topics)
        for path in intent.commit.removed:
            self.files.delete(path)
        self.files.take_away(PENDING)
        self.files.delete(self.staging)  # empty folders

    def _move(self, old: str, new: str) -> None:
        """Rename before any check: another job may just have done the same rename.

        Where that fails and the old file still exists, a new one is the remains of a rename by copying.
        """
        try:
            self.files.rename(old, new)
        except PipelineError:
            if self.files.exists(old):
                self.files.delete(new)
                self.files.rename(old, new)
            elif not self.files.exists(new):
                self._lease.check()
                raise

    def _enter(self, intent: Intent) -> None:
        if intent.number > self.state.number:
            text = manifest.commit_to_json(intent.commit)
            if not self.files.create(f"{COMMITS}/{manifest.commit_name(intent.number)}", text):
                raise PipelineError(f"{self.files.root}: another job has made commit {intent.number} here")
            self.state = manifest.fold(self.state, intent.commit)
        if self.state.number % manifest.EVERY == 0:
            self._snapshot()

    def _snapshot(self) -> None:
        name = manifest.snapshot_name(self.state.number)
        self.files.write(f"{COMMITS}/{name}", manifest.state_to_json(self.state))
        names = [entry.path.rpartition("/")[2] for entry in self.files.list(COMMITS)]
        for name in manifest.outdated(names):
            self.files.delete(f"{COMMITS}/{name}")
