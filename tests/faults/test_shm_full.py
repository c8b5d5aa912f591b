"""`/dev/shm` without room: a clear error, never SIGBUS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce, producer_id
from ..harness.process import wait_until
from .mounts import Mounts

SHM = Path("/dev/shm")


@pytest.fixture
def in_shm(fresh_broker: Any) -> Iterator[Callable[..., tuple[Any, Path]]]:
    """`in_shm(mib)`: a broker that is not started yet and has a /dev/shm of that size, and that as seen from here."""
    made: list[Mounts] = []

    def make(mib: int) -> tuple[Any, Path]:
        mounts = Mounts({SHM: mib})
        made.append(mounts)
        broker = fresh_broker(start=False)
        broker.prefix = mounts.prefix
        return broker, mounts.path(SHM)

    yield make
    for mounts in made:
        mounts.close()


@pytest.mark.timeout(60)
def test_at_start(in_shm: Callable[..., tuple[Any, Path]]) -> None:
    broker, shm = in_shm(1)
    with pytest.raises(AssertionError, match="ended with 3"):  # FATAL_BOOT; SIGBUS would be -7
        broker.start()
    assert "/dev/shm has no room" in broker.log
    assert "Traceback" not in broker.log
    assert not list(shm.iterdir())


@pytest.mark.timeout(90)
def test_while_running(in_shm: Callable[..., tuple[Any, Path]]) -> None:
    """What needs more memory is refused, the rest goes on, nobody dies, and it heals when there is room."""
    broker, shm = in_shm(32)
    broker.start()
    plain, counted = create_topic(broker, "plain"), create_topic(broker, "counted")
    before = {role: broker.pids(role) for role in ("worker", "controller", "coordinator", "janitor", "acceptor")}
    with broker.wire() as wire:
        identity, epoch = producer_id(wire)
        room = os.statvfs(shm)
        (shm / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize))
        first = batch([b"x"], producer=identity, epoch=epoch, sequence=0)
        refused = produce(wire, counted, first).error_code
        assert refused != 0, "there was room: this test shows nothing"
        for _ in range(3):
            assert produce(wire, plain, batch([b"x"])).error_code == 0
        assert {role: broker.pids(role) for role in before} == before
        (shm / "ballast").unlink()
        wait_until(lambda: produce(wire, counted, first).error_code == 0, 60, "it heals")
        assert produce(wire, counted, first).base_offset == 0
    create_topic(broker, "later")
    assert {role: broker.pids(role) for role in before} == before
