"""A driver is killed when half of a batch is written, or all of it without an entry in the checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...harness.process import family, kill_all, wait_dead, wait_until
from . import orders
from .shop import Shop
from .stages import job_settings
from .test_stages import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]  # the test starts Spark twice

HALTING = Path(__file__).with_name("halting_stages.py")
SECONDS = 200


@pytest.mark.long  # test_every_job has one death of a stage
def test_stages_survive_two_kills_of_the_driver(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """First after one of two tasks has written, then after windows were written that the checkpoint has as open."""
    shop = Shop(broker, tmp_path)
    values = orders.made(seed=5, count=300)
    shop.send("raw", values)
    for stage, batch, where in (("cleaned", 0, "task"), ("hourly", 1, "commit")):
        with halted(shop.file, stage, str(batch), where, tmp_path / stage) as processes:
            wait_until(lambda stage=stage: shop.records(stage), SECONDS, f"{stage} has written")  # type: ignore[misc]
            kill_all(processes)
            wait_dead(processes)
        assert not (tmp_path / "checkpoint" / stage / "commits" / str(batch)).exists()
    with job_settings(spark):
        assert run(shop.file, "--once").exit_code == 0
    shop.check(values)


@contextmanager
def halted(file: Path, stage: str, batch: str, where: str, marker: Path) -> Iterator[list[Any]]:
    """The processes of a driver that has reached this point."""
    words = [sys.executable, str(HALTING), str(file), stage, batch, where, str(marker)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=file.parent) as driver:
        try:
            wait_until(lambda: marker.exists() or driver.poll() is not None, SECONDS, f"{stage} reaches batch {batch}")
            assert driver.poll() is None, driver.stderr and driver.stderr.read().decode()
            yield family(driver.pid)
        finally:
            driver.kill()
