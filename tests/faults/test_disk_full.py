"""A full disk: produces are refused, fetches work, and the broker recovers once there is room."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.storage.dirs.reserve import Reserve

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce, producer_id
from ..harness.process import wait_until
from .mounts import Mounts

pytestmark = pytest.mark.live

STORAGE_ERROR = 56
SIZE = 100_000
MIB = 1 << 20


@pytest.fixture
def on_disk(fresh_broker: Any, tmp_path: Path) -> Iterator[Callable[..., tuple[Any, Path]]]:
    """`on_disk(mib, **settings)`: a broker with its data on a disk of `mib` MiB, and the path of that disk."""
    made: list[Mounts] = []

    def make(mib: int, **settings: Any) -> tuple[Any, Path]:
        broker = fresh_broker(start=False, **settings)
        broker.data_dir.mkdir(parents=True)
        mounts = Mounts({broker.data_dir: mib})
        made.append(mounts)
        broker.prefix = mounts.prefix
        return broker.start(), mounts.path(broker.data_dir)

    yield make
    for mounts in made:
        mounts.close()


def put(wire: Any, topic: str, number: int) -> int:
    """Produce one numbered record; the error code."""
    return produce(wire, topic, batch([b"%d." % number + b"." * SIZE])).error_code


def fill(wire: Any, topic: str, first: int = 0) -> int:
    """Produce until the broker refuses a record; the number of stored records."""
    number = first
    while (code := put(wire, topic, number)) == 0:
        number += 1
    assert code == STORAGE_ERROR
    return number


def stored(wire: Any, topic: str) -> list[int]:
    """All numbers in the topic."""
    numbers: list[int] = []
    while True:
        part = fetch(wire, topic, len(numbers), wait_ms=0, min_bytes=0)
        assert part.error_code == 0
        found = [int((row.value or b"").split(b".")[0]) for row in parse(part.records)]
        if not found:
            return numbers
        numbers += found


def free(disk: Path) -> int:
    """The free bytes."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def await_reserve(disk: Path, size: int) -> None:
    """Wait until the janitor has allocated the reserve; the file exists before its blocks."""
    wait_until(lambda: Reserve(str(disk), 0).allocated >= size, 60, "the reserve is allocated")


@pytest.mark.smoke
@pytest.mark.timeout(120)
def test_deleted_topic_frees_a_full_disk(on_disk: Callable[..., tuple[Any, Path]]) -> None:
    """Produce is refused and fetch works, until the topic is deleted."""
    settings = {"log_segment_bytes": 3 * MIB, "log_index_interval_bytes": 4096, "odradek_disk_reserve_bytes": 4 * MIB}
    broker, disk = on_disk(40, **settings)
    await_reserve(disk, 4 * MIB)
    victim, topic = create_topic(broker, "victim"), create_topic(broker, "kept")
    with broker.wire() as wire:
        for number in range(80):
            assert put(wire, victim, number) == 0
        count = fill(wire, topic)
        assert free(disk) < SIZE + 10_000, "the disk is not full: this test shows nothing"
        assert stored(wire, topic) == list(range(count))
        at = ("--bootstrap-server", broker.bootstrap)  # the reserve gives these commands room
        broker.command("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=-1", *at, check=True)
        broker.command("topics", "--delete", "--topic", victim, *at, check=True)
        wait_until(lambda: put(wire, topic, count) == 0, 60, "produce is accepted again")
        assert stored(wire, topic) == list(range(count + 1))
        assert broker.pids("worker"), "a worker died"


@pytest.mark.timeout(120)
def test_broker_starts_on_a_full_disk(on_disk: Callable[..., tuple[Any, Path]]) -> None:
    """The broker starts from its reserve, serves fetches, and accepts produces once there is room."""
    settings = {"log_segment_bytes": 3 * MIB, "odradek_disk_reserve_bytes": 2 * MIB}
    broker, disk = on_disk(32, **settings)
    topic = create_topic(broker, "kept")
    await_reserve(disk, 2 * MIB)
    ballast = disk / "ballast"  # a file of another program
    ballast.write_bytes(bytes(8 * MIB))
    with broker.wire() as wire:
        count = fill(wire, topic)
        with ballast.open("ab") as rest:
            while free(disk):
                rest.write(bytes(min(65536, free(disk))))
                rest.flush()
    for _ in range(2):
        broker.kill()
        broker.start()
        with broker.wire() as wire:
            assert stored(wire, topic) == list(range(count))
            assert put(wire, topic, count) in (0, STORAGE_ERROR)
            count = len(stored(wire, topic))
    ballast.unlink()
    with broker.wire() as wire:
        wait_until(lambda: put(wire, topic, count) == 0, 60, "produce is accepted again")
        assert stored(wire, topic) == list(range(count + 1))
    checked = subprocess.run([*broker.prefix, *check_command(broker)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.timeout(120)
def test_start_on_a_full_disk_without_reserve_fails_with_one_line(tmp_path: Path, fresh_broker: Any) -> None:
    """The first start and later ones fail alike, and the broker starts once there is room."""
    broker = fresh_broker(start=False, odradek_disk_reserve_bytes=0)
    broker.data_dir.mkdir(parents=True)
    mounts = Mounts({broker.data_dir: 2})
    try:
        broker.prefix = mounts.prefix
        ballast = mounts.path(broker.data_dir) / "ballast"
        fill_up(ballast)
        assert refused(broker) == f"odradek: {broker.data_dir}: meta.properties cannot be written: {NO_SPACE}"
        ballast.unlink()
        broker.start().stop()
        fill_up(ballast)
        assert refused(broker) == f"odradek: {broker.data_dir}/odradek-metadata.db: database or disk is full"
        ballast.unlink()
        broker.start().stop()
    finally:
        mounts.close()


NO_SPACE = "No space left on device"


def fill_up(file: Path) -> None:
    """Fill every block of the file's disk."""
    with file.open("ab", buffering=0) as rest:
        while free(file.parent):
            rest.write(bytes(min(65536, free(file.parent))))


def refused(broker: Any) -> str:
    """The error line of a failed start, which prints no traceback."""
    before = len(broker.log)
    with pytest.raises(AssertionError, match=r"ended with [13] before it was ready"):
        broker.start()
    said = broker.log[before:]
    assert "Traceback" not in said, said
    return next(line for line in said.splitlines() if line.startswith("odradek: "))


def check_command(broker: Any) -> list[str]:
    """`odradek check` of the broker's data."""
    import sys

    return [sys.executable, "-m", "odradek.broker", "check", str(broker.data_dir)]


@pytest.mark.timeout(120)
def test_retention_runs_before_the_disk_is_full(on_disk: Callable[..., tuple[Any, Path]]) -> None:
    """Segments of the default size exceed the disk, so they are rolled early. No produce is refused."""
    settings = {"odradek_retention_free_bytes": 20 * MIB, "odradek_disk_reserve_bytes": 2 * MIB}
    broker, disk = on_disk(64, **settings)
    topic = create_topic(broker, "flood")
    with broker.wire() as wire:
        for number in range(1500):  # 150 MB
            if free(disk) < 5 * MIB:  # a busy machine may delay the janitor; the test is that it frees space
                wait_until(lambda: free(disk) >= 5 * MIB, 60, "the janitor frees space")
            assert put(wire, topic, number) == 0, f"refused at {number} with {free(disk)} bytes free"
            time.sleep(0.004)
        last = fetch(wire, topic, 1499)
        assert [row.offset for row in parse(last.records)] == [1499]
    assert "odradek.retention.free.bytes" in broker.log


@pytest.mark.timeout(60)
def test_batch_refused_on_a_full_disk_is_stored_once_on_retry(on_disk: Callable[..., tuple[Any, Path]]) -> None:
    """The refused batch does not change the state of its idempotent producer."""
    broker, disk = on_disk(24, odradek_disk_reserve_bytes=MIB)
    topic = create_topic(broker, "kept")
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(4 * MIB))
    with broker.wire() as wire:
        identity, epoch = producer_id(wire)
        number = 0
        while True:
            data = batch([b"%d." % number + b"." * SIZE], producer=identity, epoch=epoch, sequence=number)
            part = produce(wire, topic, data)
            if part.error_code:
                break
            number += 1
        assert part.error_code == STORAGE_ERROR
        ballast.unlink()
        for _ in range(2):
            again = produce(wire, topic, data)
            assert (again.error_code, again.base_offset) == (0, number)
        assert stored(wire, topic) == list(range(number + 1))
