"""An archive's writer on Hadoop's own file system makes nothing any more once its room is gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.jobs.files import Files

from ..harness.hdfs import Hdfs
from .room import changes_nothing_without_its_room

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("hdfs"), pytest.mark.timeout(300)]


def test_without_its_room_nothing_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    with Hdfs(tmp_path) as hdfs:
        changes_nothing_without_its_room(Files(spark, f"{hdfs.uri}/archive"))
