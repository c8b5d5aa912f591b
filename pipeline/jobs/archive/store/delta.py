"""Each topic's folder as a Delta table: a log of the same files that the manifest names, in `topic=…/_delta_log`.

The manifest stays the truth. Where the log names other files, one entry corrects it: it adds missing files, removes
files that the archive does not have, and has the manifest's number (`txn` in Delta's protocol). It is made after the
manifest's own commit and before replaced files are removed (`store`), so the newest entry names existing files.

deltalake makes the entries. It replaces none and, without retries, makes none behind one that it has not read. So a
writer that was taken for dead adds nothing to a log that its successor has changed: it finds a later number, or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.store import delta_actions
from odradek.pipeline.jobs.archive.store.delta_actions import FOLDERS
from odradek.pipeline.jobs.archive.store.manifest import File, State
from odradek.pipeline.jobs.causes import cause

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

    from odradek.pipeline.jobs.files import Files

LOG = "_delta_log"
APP = "odradek-archive"
"""The application id of the number in `txn`."""
_TRIES = 3  # if another writer adds an entry in between


def check(uri: str) -> None:
    """OptionError where deltalake is not installed, or the archive's URI is not on this machine."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise OptionError("--table delta: deltalake is not installed: pip install 'odradek[delta]'") from None
    if urlsplit(uri).scheme not in ("", "file"):
        raise OptionError(f"--table delta: tables need a file: URI, not {uri}; leave out --table")


class Delta:
    """The tables of an archive. OptionError where it can have none."""

    def __init__(self, files: Files) -> None:
        check(files.root)
        assert files.here is not None
        self._files, self._here = files, files.here

    def show(self, state: State, topic: str, still_ours: Callable[[], None]) -> None:
        """Make the topic's table consist of the manifest's files; a topic without files gets no table.

        `still_ours` raises where another job has taken the archive over. PipelineError where the log cannot be read or
        written, or is of a later state.
        """
        from deltalake.exceptions import DeltaError

        for left in reversed(range(_TRIES)):
            still_ours()
            try:
                return self._sync(topic, self._bring(state, topic))
            except (DeltaError, OSError, RuntimeError, ValueError) as error:
                if not left or not isinstance(error, DeltaError):
                    raise self._failed(topic, error) from None

    def _bring(self, state: State, topic: str) -> int:
        """Returns the table's new version; -1 where there is no table."""
        from deltalake import DeltaTable

        folder, live = str(self._here / f"topic={topic}"), {delta_actions.inner(file): file for file in state.of(topic)}
        if not DeltaTable.is_deltatable(folder):
            return self._make(folder, topic, list(live.values()), state.number) if live else -1
        table = DeltaTable(folder)
        self._check_number(topic, table.transaction_version(APP), state.number)
        actions = delta_actions.between(table, live)
        return self._enter(table, actions, state.number) if actions else table.version()

    def _check_number(self, topic: str, found: int | None, number: int) -> None:
        if found is not None and found > number:
            raise PipelineError(
                f"{self._log(topic)} is at commit {found}, the archive at {number}: the archive may be an older copy. "
                "Delete that folder; the next run recreates it"
            )

    def _make(self, folder: str, topic: str, live: Sequence[File], number: int) -> int:
        from deltalake.transaction import create_table_with_add_actions

        create_table_with_add_actions(
            folder,
            delta_actions.schema(self._here / live[0].path),
            [delta_actions.add(file, True) for file in live],
            partition_by=FOLDERS,
            name=topic,
            commit_properties=_properties(number),
        )
        return 0

    def _enter(self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], number: int) -> int:
        table.create_write_transaction(
            list(actions), "append", table.schema(), FOLDERS, commit_properties=_properties(number)
        )
        return table.version() + 1

    def _sync(self, topic: str, version: int) -> None:
        """Flush an entry, and a checkpoint that may come with it, before the files that it removes are deleted."""
        if version < 0:
            return
        log = self._here / f"topic={topic}" / LOG
        new = [*log.glob(f"{version:020}.*"), *log.glob("_last_checkpoint")]
        self._files.sync([str(path.relative_to(self._here)) for path in (log, *new)])

    def _failed(self, topic: str, error: Exception) -> PipelineError:
        return PipelineError(
            f"{self._log(topic)}: the Delta table cannot be brought up to date: {cause(error)}; if the log is damaged, "
            "delete that folder; the next run recreates it"
        )

    def _log(self, topic: str) -> str:
        return self._files.uri(f"topic={topic}/{LOG}")


def _properties(number: int) -> CommitProperties:
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(APP, number)], max_commit_retries=0)
