"""Brokers that are killed with all their processes: the next start of any broker of the user removes what they left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.ipc.rundir import broker_key

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.broker import Broker
from ..harness.process import family, kill_all, wait_dead

pytestmark = pytest.mark.live


def kill_whole(broker: Broker) -> None:
    """SIGKILL every process at once, the supervisor too."""
    assert broker.process is not None
    members = family(broker.process.pid)
    kill_all(members)
    broker.process.wait()
    broker.process = None
    assert not wait_dead(members)


@pytest.fixture
def brokers(tmp_path: Path, short_folder: Path) -> Iterator[list[Broker]]:
    """Four, with a directory for run directories that they have alone."""
    made = [Broker(tmp_path / str(number), odradek_workers=1) for number in range(4)]
    for broker in made:
        broker.env["TMPDIR"] = str(short_folder)
    yield made
    for broker in made:
        broker.close()


def all_brokers(broker: Broker) -> dict[str, dict[str, Any]]:
    """`odradek status --all --json`: the brokers of this test by data directory."""
    document = json.loads(broker.command("status", "--all", "--json").stdout)
    assert document["shm"]["free"] > 0
    return {one["data_dir"]: one for one in document["brokers"] if one["state"] != "unknown"}


def write_idempotently(broker: Broker) -> None:
    """A partition with an idempotent producer has a region of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(create_topic(broker, "written"), b"x")
    assert producer.flush(60) == 0 and any("producers" in name for name in broker.shared_memory())


def copy_of_run_dir(broker: Broker, folder: Path) -> Path:
    """As `cp -r` makes one: no process has a lock of its files."""
    [source] = folder.glob(f"odradek-*/{broker_key(broker.data_dir)}")
    copy = source.with_name("abcdefabcdef")
    copy.mkdir(mode=0o700)
    for name in ("config.json", "roles.lock"):
        shutil.copy(source / name, copy)
    return copy


@pytest.mark.timeout(300)
def test_killed_brokers_leave_nothing_and_living_and_starting_ones_are_not_touched(
    brokers: list[Broker], short_folder: Path
) -> None:
    alive, dead, third, fourth = brokers
    for broker in (alive, dead):
        broker.launch()
    for broker in (alive, dead):
        broker.await_ready()
    topic = create_topic(alive, "kept")
    write_idempotently(dead)
    kill_whole(dead)
    left = dead.shared_memory()
    shown = all_brokers(alive)
    assert left and any(short_folder.glob("odradek-*"))
    assert {place: one["state"] for place, one in shown.items()} == {
        str(alive.data_dir): "running",
        str(dead.data_dir): "dead",
    }
    gone, here = shown[str(dead.data_dir)], shown[str(alive.data_dir)]
    assert gone["removed_by_start"] and not here["removed_by_start"]
    assert (gone["regions"], gone["processes"], gone["key"]) == (len(left), 0, broker_key(dead.data_dir))
    assert here["pid"] == alive.pids("supervisor")[0] and here["listeners"] == [f"PLAINTEXT://{alive.bootstrap}"]
    text = alive.command("status", "--all").stdout
    assert "the next `odradek start` of this user removes what dead brokers left" in text

    memory, copy = alive.shared_memory(), copy_of_run_dir(alive, short_folder)
    for broker in (third, fourth, dead):  # at the same time, and one of them on the dead one's log directory
        broker.launch()
    for broker in (third, fourth, dead):
        broker.await_ready()
    assert (copy / "roles.lock").exists(), "a copy is no dead broker"
    shutil.rmtree(copy)
    assert {one["state"] for one in all_brokers(alive).values()} == {"running"}
    assert set(memory) <= set(alive.shared_memory()), "a living broker's memory is gone"
    with alive.wire() as wire:
        assert produce(wire, topic, batch([b"x"])).error_code == 0

    write_idempotently(third)
    for broker in (third, dead):
        kill_whole(broker)
    fourth.restart()
    assert not third.shared_memory() and not dead.shared_memory()
    assert {Path(one).parent.name for one in all_brokers(alive)} == {"0", "3"}
    assert len([*short_folder.glob("odradek-*/*")]) == 2


def test_status_all_takes_no_other_broker(brokers: list[Broker]) -> None:
    brokers[0].folder.mkdir(parents=True)
    assert brokers[0].command("status", "--all", "--cluster").returncode == 2
    empty = brokers[0].command("status", "--all", "--override", "log.dirs=/x")
    assert empty.returncode == 2 and "--all needs no SERVER.PROPERTIES" in empty.stderr
