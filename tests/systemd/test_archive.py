"""The hourly archive run by its unit under a real systemd: confined, as the user of the broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from .machine import Machine, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(800), pytest.mark.needs("java")]
UNIT = "odradek-archive.service"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the Java of this one, whose configuration Debian keeps in /etc."""
    folder = tmp_path_factory.mktemp("machine")
    for lent in (Path("/etc/alternatives"), *Path("/etc").glob("java*")):
        if lent.is_dir():
            shutil.copytree(lent, folder / "staging" / lent.relative_to("/"), symlinks=True)
    with started(folder) as booted:
        yield booted


def archived(machine: Machine, topic: str) -> list[int]:
    """The offsets in the files of the archive."""
    files = (machine.root / "var/lib/odradek-archive" / f"topic={topic}").rglob("*.parquet")
    return sorted(offset for file in files for offset in pq.ParquetFile(file).read()["offset"].to_pylist())


def send(machine: Machine, topic: str, count: int) -> None:
    wire = machine.wire()
    for number in range(count):
        assert produce(wire, topic, batch([b"%d" % number])).error_code == 0


def test_second_run_archives_the_new_records(machine: Machine) -> None:
    topic = create_topic(machine)
    send(machine, topic, 3)
    machine.systemctl("start", UNIT, timeout=300)
    assert machine.show(UNIT, "Result") == "success"
    assert archived(machine, topic) == [0, 1, 2]
    send(machine, topic, 2)
    machine.systemctl("start", UNIT, timeout=300)
    assert archived(machine, topic) == [0, 1, 2, 3, 4]
    owner = (machine.root / "var/lib/odradek-archive").stat().st_uid
    assert owner == machine.data_dir.stat().st_uid != 0


def test_timer_is_disabled_by_default_and_hourly(machine: Machine) -> None:
    """An administrator may enable it."""
    assert machine.systemctl("is-enabled", "odradek-archive.timer", check=False).strip() == "disabled"
    machine.systemctl("enable", "--now", "odradek-archive.timer")
    try:
        assert machine.show("odradek-archive.timer", "NextElapseUSecRealtime").endswith(":00:00 UTC")
    finally:
        machine.systemctl("disable", "--now", "odradek-archive.timer")
