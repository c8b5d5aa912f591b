"""Two writers of one archive, one of which had been taken for dead: neither undoes what the other has done."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.manifest import Commit
from odradek.pipeline.jobs.archive.store import Store
from odradek.pipeline.jobs.files import Files

from .archives import assert_whole, lying, visible
from .stores import FIRST, SECOND, Overtaken, after_death, batch, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", ["file", "viewfs"])
def test_two_carry_out_the_same(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Neither takes away what the other has put into place: a commit would name a file that is gone."""
    for at in count():
        folder = tmp_path / str(at)
        root = folder_uri(spark, folder, kind)
        with Store(Files(spark, root)) as store:
            move, _ = staged(Files(spark, str(folder)), "f.parquet", "t", FIRST)
            slow = Overtaken(spark, root, at, lambda move=move, store=store: store._move(*move))  # type: ignore[misc]
            second = Store(slow)
            slow.arm()
            second._move(*move)
        assert lying(folder, "t") == FIRST
        assert slow.left is not None
        if slow.left >= 0:
            break
    assert at > 0


def folder_uri(spark: SparkSession, folder: Path, kind: str) -> str:
    """The folder by its path, or by a mount that only Hadoop knows."""
    if kind == "file":
        return str(folder)
    table = f"t{uuid4().hex}"
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./here", folder.parent.as_uri())
    return f"viewfs://{table}/here/{folder.name}"


def test_a_writer_that_was_taken_for_dead(spark: SparkSession, tmp_path: Path) -> None:
    """It wakes when another one is at work: it says so, and what it has done is undone by the next."""
    slow = Store(Files(spark, str(tmp_path)))
    with slow:
        (tmp_path / "_odradek/lease.json").unlink()
        with Store(Files(spark, str(tmp_path))) as store:
            batch(store, 1, ("t", FIRST))
            with pytest.raises(PipelineError, match="took this archive over"):
                batch(slow, 2, ("t", SECOND))
            slow._lease._id = store._lease._id  # it had looked just before
            with pytest.raises(PipelineError, match="another job has made commit 1 here"):
                batch(slow, 3, ("t", SECOND))
            assert visible(spark, tmp_path, "t") == FIRST
    after_death(tmp_path)
    with Store(Files(spark, str(tmp_path))) as store:
        assert store.state.number == 1
    assert_whole(spark, tmp_path, "t", FIRST, visible)


def test_a_writer_that_was_taken_for_dead_begins_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    """What it had staged is gone: its commit cannot be carried out, and is no hindrance to the next."""
    slow = Store(Files(spark, str(tmp_path)))
    with slow:
        found = [staged(slow.files, f"{number}.parquet", "t", FIRST) for number in range(2)]
        slow.files.rename(*found[0][0])  # it is in the midst of it
        (tmp_path / "_odradek/lease.json").unlink()
        with Store(Files(spark, str(tmp_path))) as store:
            slow._lease._id = store._lease._id  # it had looked just before
            with pytest.raises(PipelineError, match=found[1][0][0]):
                slow.commit([move for move, _ in found], Commit("s", 1, {}, tuple(file for _, file in found)))
            with pytest.raises(PipelineError, match="another job has begun a commit here"):
                batch(store, 1, ("t", FIRST))
    after_death(tmp_path)
    with Store(Files(spark, str(tmp_path))) as store:
        assert lying(tmp_path, "t") == []
        batch(store, 1, ("t", FIRST))
    assert_whole(spark, tmp_path, "t", FIRST, visible)
