"""A full `/dev/shm` causes a clear error, never SIGBUS."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import list_offsets, produce, producer_id
from ..harness.process import family, kill_all, wait_until
from .mounts import Mounts

pytestmark = pytest.mark.live

SHM = Path("/dev/shm")


@pytest.fixture
def in_shm(fresh_broker: Any) -> Iterator[Callable[..., tuple[Any, Path]]]:
    """`in_shm(mib)`: a broker, not yet started, with its own /dev/shm of `mib` MiB, and the path of that from here."""
    made: list[Mounts] = []

    def make(mib: int, **config: Any) -> tuple[Any, Path]:
        mounts = Mounts({SHM: mib})
        made.append(mounts)
        broker = fresh_broker(start=False, **config)
        broker.prefix = mounts.prefix
        return broker, mounts.path(SHM)

    yield make
    for mounts in made:
        mounts.close()


def fill(path: Path) -> None:
    """Leave no free space next to `path`."""
    with open(path, "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


@pytest.mark.timeout(60)
def test_start_without_room_in_shm_fails_with_a_clear_error(in_shm: Callable[..., tuple[Any, Path]]) -> None:
    broker, shm = in_shm(1)
    with pytest.raises(AssertionError, match="ended with 3"):  # FATAL_BOOT; SIGBUS would be -7
        broker.start()
    assert "/dev/shm has no room for this broker" in broker.log and "1.0 of 1.0 MiB are free" in broker.log
    assert "Traceback" not in broker.log
    assert not list(shm.iterdir())


@pytest.mark.timeout(180)
def test_refused_start_names_what_fills_shm_and_a_dead_broker_makes_room(
    in_shm: Callable[..., tuple[Any, Path]], fresh_broker: Any, short_folder: Path
) -> None:
    """There is room for one broker. A killed one leaves all that it took to the next start of another."""
    first, shm = in_shm(11, odradek_workers=1)
    second = fresh_broker(start=False, odradek_workers=1)
    second.prefix = first.prefix
    first.env["TMPDIR"] = second.env["TMPDIR"] = str(short_folder)
    first.start()
    (shm / "ballast").write_bytes(bytes(1 << 20))
    with pytest.raises(AssertionError, match="ended with 3"):
        second.start()
    (line,) = [line for line in second.log.splitlines() if "/dev/shm has no room for this broker" in line]
    assert f"belong to 1 running brokers ({first.data_dir})" in line
    assert "1.0 MiB are files of other programs (/dev/shm/ballast)" in line
    assert "mount -o remount" in line and "odradek status --all" in line
    kill_all(family(first.process.pid))
    first.process.wait()
    first.process = None
    second.start()
    assert "removed what a dead broker left: " + str(first.data_dir) in second.log
    second.stop()
    assert [path.name for path in shm.iterdir()] == ["ballast"]


@pytest.mark.timeout(120)
def test_full_shm_refuses_requests_and_ends_no_process(in_shm: Callable[..., tuple[Any, Path]]) -> None:
    """Only requests that need more memory are refused, until memory is free again."""
    often = {"producer_id_expiration_check_interval_ms": 100, "producer_id_expiration_ms": 1000}
    broker, shm = in_shm(32, **often)
    broker.start()
    plain, counted, idle = (create_topic(broker, name) for name in ("plain", "counted", "idle"))
    roles = ("worker", "controller", "coordinator", "janitor", "acceptor")
    before = {role: broker.pids(role) for role in roles}
    with broker.wire() as wire:
        identity, epoch = producer_id(wire)
        for seconds in (1, 5, 20, 40):  # however slow the machine is: the janitor finds one idle while there is no room
            producer, _ = producer_id(wire)
            soon = time.time_ns() // 1_000_000 + seconds * 1000
            made = batch([b"x"], timestamp=soon, producer=producer, epoch=0, sequence=0)
            assert produce(wire, idle, made).error_code == 0
        fill(shm / "ballast")
        first = batch([b"x"], producer=identity, epoch=epoch, sequence=0)
        refused = produce(wire, counted, first).error_code
        assert refused != 0, "/dev/shm was not full: this test shows nothing"
        assert list_offsets(wire, counted, -1).offset == 0, "the refused batch was stored"
        for _ in range(3):
            assert produce(wire, plain, batch([b"x"])).error_code == 0
        wait_until(lambda: f"{idle}-0: [Errno 28] /dev/shm" in broker.log, 60, "the janitor's turn")
        fill(shm / "more")  # the space that the janitor has freed
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = admin.create_topics([NewTopic("late", 1, 1)])["late"]
        wait_until(lambda: "cannot publish the metadata" in broker.log, 60, "a change that is not published")
        assert not asked.done()
        assert {role: broker.pids(role) for role in before} == before
        for ballast in ("ballast", "more"):
            (shm / ballast).unlink()
        wait_until(lambda: produce(wire, counted, first).error_code == 0, 60, "produce is accepted again")
        assert list_offsets(wire, counted, -1).offset == 1
    assert asked.result(60) is None
    create_topic(broker, "later")
    assert {role: broker.pids(role) for role in before} == before
