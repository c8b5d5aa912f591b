"""An archive's writer on HDFS changes nothing after its room is gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.jobs.files import Files

from ..harness.hdfs import Hdfs
from .room import fenced_writer_changes_nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("hdfs"), pytest.mark.timeout(300)]


def test_fenced_writer_changes_nothing_on_hdfs(spark: SparkSession, tmp_path: Path) -> None:
    with Hdfs(tmp_path) as hdfs:
        fenced_writer_changes_nothing(Files(spark, f"{hdfs.uri}/archive"))
