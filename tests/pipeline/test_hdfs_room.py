"""An archive's writer on Hadoop's own file system makes nothing any more once its room is gone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.files import Files

from ..harness.hdfs import Hdfs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("hdfs"), pytest.mark.timeout(300)]


def test_without_its_room_nothing_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    with Hdfs(tmp_path) as hdfs:
        files = Files(spark, f"{hdfs.uri}/archive")
        files.make("room")
        files.room = "room"
        files.write("x", "1")
        files.write("x", "2")
        assert files.create("y", "1")
        assert not files.create("y", "2")
        files.take_away("y")
        files.take_away("y")
        assert (files.exists("y"), files.read("x"), list(files.names("room"))) == (False, "2", [])
        files.delete("room")
        for change in (partial(files.write, "x", "3"), partial(files.create, "y", "3"), partial(files.take_away, "x")):
            with pytest.raises(PipelineError):
                change()
        assert (files.exists("y"), files.read("x"), files.exists("room")) == (False, "2", False)
