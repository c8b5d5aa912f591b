"""Two writers of one archive, one of them presumed dead: neither undoes the work of the other."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store.lease import Lease
from odradek.pipeline.jobs.archive.store.manifest import Commit, State
from odradek.pipeline.jobs.archive.store.store import PENDING, Store
from odradek.pipeline.jobs.files import Files

from .archives import assert_whole, listed, stored, visible
from .stores import FIRST, OTHER, SECOND, Died, Dying, Overtaken, after_death, batch, staged, viewed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def no_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine one would come between `after_death` and the takeover."""
    monkeypatch.setattr(Lease, "_renew", lambda self: None)


@pytest.mark.parametrize("kind", ["file", "viewfs"])
def test_concurrent_moves_of_a_file_keep_it(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Otherwise a commit would name a missing file."""
    for at in count():
        folder = tmp_path / str(at)
        root = folder_uri(spark, folder, kind)
        with Store(Files(spark, root)) as store:
            move, _ = staged(Files(spark, str(folder)), "f.parquet", "t", FIRST)
            slow = Overtaken(spark, root, at, lambda move=move, store=store: store._move(*move))  # type: ignore[misc]
            second = Store(slow)
            slow.arm()
            second._move(*move)
        assert stored(folder, "t") == FIRST
        assert slow.left is not None
        if slow.left >= 0:
            break
    assert at > 0


def folder_uri(spark: SparkSession, folder: Path, kind: str) -> str:
    """The folder by its path, or by a mount that only Hadoop can resolve."""
    if kind == "file":
        return str(folder)
    table = f"t{uuid4().hex}"
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./here", folder.parent.as_uri())
    return f"viewfs://{table}/here/{folder.name}"


def test_fenced_writer_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The writer was presumed dead and continues while another one writes; the next writer removes its files."""
    slow = Store(Files(spark, str(tmp_path)))
    with slow:
        (tmp_path / "_odradek/lease.json").unlink()
        with Store(Files(spark, str(tmp_path))) as store:
            batch(store, 1, ("t", FIRST))
            with pytest.raises(PipelineError, match="took over this archive"):
                batch(slow, 2, ("t", SECOND))
            slow._lease.id = store._lease.id  # as if its check had been just before the takeover
            with pytest.raises(PipelineError, match=r"cannot write .*/_odradek/pending\.json"):
                batch(slow, 3, ("t", SECOND))
            assert not store.files.exists(PENDING)
            assert visible(spark, tmp_path, "t") == FIRST
    after_death(tmp_path)
    with Store(Files(spark, str(tmp_path))) as store:
        assert store.state.number == 1
    assert_whole(spark, tmp_path, "t", FIRST, visible)


@pytest.mark.parametrize("left", [pytest.param(None, marks=pytest.mark.long), 2])
def test_fenced_writer_cannot_damage_the_archive_at_any_step(
    spark: SparkSession, tmp_path: Path, left: int | None
) -> None:
    """The next writer has staged files for its commit: all of them stay, and Spark sees no older view.

    The next writer may also die during a commit; then the third one completes it.
    """
    for at in count():
        folder = tmp_path / str(at)
        with Store(Files(spark, str(folder))) as store:
            batch(store, 1, ("t", FIRST))
        second = _Second(spark, folder, left)
        slow = Overtaken(spark, str(folder), at, second.take_over)
        first = Store(slow)
        first.__enter__()
        slow.arm()
        try:
            batch(first, 2, ("t", SECOND))
        except PipelineError as error:
            assert second.state is not None, error
        first.__exit__()
        if second.state is None:
            break
        second.complete()
    assert at > 8


class _Second:
    """The writer that takes over; `left` is the number of steps before its death in the second commit."""

    def __init__(self, spark: SparkSession, folder: Path, left: int | None) -> None:
        self._spark, self._root, self._folder = spark, str(folder), folder
        self._store = Store(Files(spark, self._root))
        self._left, self._staged = left, staged
        self.state: State | None = None

    def take_over(self) -> None:
        after_death(self._folder)
        self._store.__enter__()
        batch(self._store, 3, ("t", OTHER))
        self.state = self._store.state
        self._next = staged(self._store.files, "4-0.parquet", "t", [(1, 9)])
        if self._left is not None:
            dying = Dying(self._spark, self._root, self._left)
            dying.room, self._store.files = self._store.files.room, dying
            with pytest.raises(Died):
                self._commit()

    def _commit(self) -> None:
        move, file = self._next
        self._store.commit([move], Commit("s", 4, {("t", 1): (4, 10)}, (file,)))

    def complete(self) -> None:
        """The archive is unchanged since the takeover, and further commits succeed."""
        assert self.state is not None
        assert viewed(self._spark, self._folder, "t") == listed(self._folder, self.state, "t")
        if self._left is None:
            self._commit()
            self._store.__exit__()
        after_death(self._folder)
        with Store(Files(self._spark, self._root)) as third:
            assert third.state.number == self.state.number + 1
            expected = listed(self._folder, third.state, "t")
        assert expected == sorted([*listed(self._folder, self.state, "t"), (1, 9)])
        assert_whole(self._spark, self._folder, "t", expected, viewed)
