"""The disk below one of two log directories fails: that directory goes offline, the other one is served."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from odradek.storage.files.names import partition_dir

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..harness.process import wait_until
from .failing import fail
from .power import SEAM

pytestmark = pytest.mark.live

STORAGE_ERROR = 56
PARTITIONS = 6


class World:
    """A broker with the log directories `one` and `two`, the second of which can fail."""

    def __init__(self, broker: Any, folder: Path, first: str = "one", **config: Any) -> None:
        self.broker = broker
        self.one, self.two = broker.data_dir, folder / "two"
        self._faults = folder / "faults.json"
        broker.env |= {"PYTHONPATH": str(SEAM), "ODRADEK_TEST_FAULTS": str(self._faults)}
        in_order = (self.one, self.two) if first == "one" else (self.two, self.one)
        broker.set(log_dirs=",".join(map(str, in_order)))
        broker.start()
        self.topic = create_topic(broker, "t", PARTITIONS, **config)
        self.hurt = [index for index in range(PARTITIONS) if (self.two / partition_dir(self.topic, index)).exists()]
        self.well = sorted(set(range(PARTITIONS)) - set(self.hurt))
        assert self.hurt and self.well

    def break_(self, *calls: str) -> None:
        """Make these system calls fail below `two`."""
        fail(self._faults, self.two, calls)

    def mend(self) -> None:
        self._faults.unlink()

    def put(self, index: int) -> int:
        """Produce one record; the error code."""
        with self.broker.wire() as wire:
            return produce(wire, self.topic, batch([b"x"]), partition=index).error_code

    def count(self, index: int) -> int:
        """The number of readable records; -1 when they cannot be read."""
        with self.broker.wire() as wire:
            part = fetch(wire, self.topic, 0, partition=index, wait_ms=0, min_bytes=0)
        return len(parse(part.records)) if part.error_code == 0 else -1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("calls", [("pwritev",), ("fsync",), ("pread", "preadv")])
def test_failed_log_dir_goes_offline(fresh_broker: Any, tmp_path: Path, calls: tuple[str, ...]) -> None:
    config: dict[str, Any] = {"flush_messages": 1} if "fsync" in calls else {}
    world = World(fresh_broker(start=False), tmp_path, **config)
    broker = world.broker
    assert [world.put(index) for index in range(PARTITIONS)] == [0] * PARTITIONS
    workers = broker.pids("worker")
    world.break_(*calls)
    if "pread" in calls:
        for pid in workers:  # a new worker has no cached records and must read the disk
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(broker.pids("worker")) - set(workers)) == 2, 60, "two workers again")
        workers = broker.pids("worker")
        broker.await_ready()
        wait_until(lambda: world.count(world.hurt[0]) == -1, 60, "a read fails")
    else:
        assert world.put(world.hurt[0]) == STORAGE_ERROR
    # The other partitions of that directory go offline, too, without a write to them.
    # (A produce shows it: fetches get other errors, too, while workers start.)
    wait_until(lambda: {world.put(index) for index in world.hurt} == {STORAGE_ERROR}, 60, "all are offline")
    assert [world.count(index) for index in world.hurt] == [-1] * len(world.hurt)
    assert [world.put(index) for index in world.well] == [0] * len(world.well)
    assert [world.count(index) for index in world.well] == [2] * len(world.well)
    assert broker.log.count(f"{world.two} is offline") == 1
    new = create_topic(broker, "new", 4)
    assert not [index for index in range(4) if (world.two / partition_dir(new, index)).exists()]
    assert broker.pids("worker") == workers
    broker.stop()
    assert not (world.two / ".kafka_cleanshutdown").exists()
    assert (world.one / ".kafka_cleanshutdown").exists()
    world.mend()
    broker.start()
    assert [world.put(index) for index in range(PARTITIONS)] == [0] * PARTITIONS
    assert all(world.count(index) >= 2 for index in world.hurt)


@pytest.mark.timeout(120)
def test_partitions_of_a_log_dir_that_fails_at_start_are_offline(fresh_broker: Any, tmp_path: Path) -> None:
    """The partitions are not empty, and no new directory replaces them."""
    world = World(fresh_broker(start=False), tmp_path)
    broker = world.broker
    assert [world.put(index) for index in range(PARTITIONS)] == [0] * PARTITIONS
    broker.stop()
    world.break_("open")
    broker.start()
    assert [world.count(index) for index in world.well] == [1] * len(world.well)
    assert [world.count(index) for index in world.hurt] == [-1] * len(world.hurt)
    assert [world.put(index) for index in world.hurt] == [STORAGE_ERROR] * len(world.hurt)
    assert f"log directory {world.two} is offline" in broker.log
    world.mend()
    broker.restart()
    assert [world.count(index) for index in range(PARTITIONS)] == [1] * PARTITIONS


@pytest.mark.timeout(120)
def test_processes_restart_although_first_log_dir_failed(fresh_broker: Any, tmp_path: Path) -> None:
    """Of the files that a single broker needs, only the metadata database is in that directory."""
    world = World(fresh_broker(start=False), tmp_path, first="two")
    broker = world.broker
    assert [world.put(index) for index in world.well] == [0] * len(world.well)
    world.break_("open", "pwritev", "fsync")
    for role in ("worker", "worker", "acceptor", "coordinator", "janitor"):
        dead = broker.kill_role(role)
        broker.await_respawn(role, dead)
    wait_until(lambda: _served(world), 60, "the other directory is served")
    assert "ended: exit code" not in broker.log, "a process had to be started more than once"


def _served(world: World) -> bool:
    try:
        return [world.put(index) for index in world.well] == [0] * len(world.well)
    except (OSError, EOFError):
        return False
