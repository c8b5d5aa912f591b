"""A recovery longer than the start timeout of systemd: the units report progress and extend the timeout."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from ..clients.raw.batches import batch
from ..clients.raw.calls import list_offsets
from ..harness.process import wait_until
from .machine import Machine

PARTITIONS, BATCHES = 24, 500_000
PATIENCE_S = 4
DROP_IN = f"[Service]\nTimeoutStartSec={PATIENCE_S}\n"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_recovery_may_take_longer_than_the_start_timeout(machine: Machine) -> None:
    """The data directory is replaced by the logs of a killed broker."""
    machine.stop()
    _fill(machine.data_dir)
    machine.run("chown", "-R", "odradek:odradek", "/var/lib/odradek")
    for unit in ("odradek-worker@", "odradek-janitor"):
        drop_in = machine.root / f"run/systemd/system/{unit}.service.d/patience.conf"
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(DROP_IN)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "--no-block", "odradek.target")
    told = set()

    def ready() -> bool:
        status = machine.show("odradek-worker@0", "StatusText")
        told.update(re.findall(r"^recovering: (\d+) %", status))
        return status == "running"

    wait_until(ready, 200, "recovered")
    wait_until(lambda: machine.state("odradek.target") == "active", 60, "all is started")
    restarts = {unit: machine.show(unit, "NRestarts") for unit in ("odradek-worker@0", "odradek-janitor")}
    assert set(restarts.values()) == {"0"}, f"{restarts}\n{_journal(machine, restarts)}"
    took = _started_after_us(machine, "odradek-worker@0") / 1e6
    # A condition of this test, by systemd's own clock: the start took longer than its timeout.
    assert took > 1.5 * PATIENCE_S, "the recovery was too quick: this test needs more batches"
    assert len(told) >= 3, told
    with machine.wire() as wire:
        assert list_offsets(wire, "slow", -1, partition=PARTITIONS - 1).offset == BATCHES


def _journal(machine: Machine, units: Iterable[str]) -> str:
    """The journal of the units, to show why one was restarted."""
    return machine.run("journalctl", "--no-pager", "--output=short-precise", *(f"--unit={unit}" for unit in units))


def _started_after_us(machine: Machine, unit: str) -> int:
    begun, ended = (
        machine.show(unit, f"{name}Monotonic") for name in ("ExecMainStartTimestamp", "ActiveEnterTimestamp")
    )
    return int(ended) - int(begun)


def _fill(data_dir: Path) -> None:
    """A directory without checkpoints and clean-shutdown marker: recovery must check every batch."""
    for old in data_dir.iterdir():
        if old.is_file():
            old.unlink()
    one = bytearray(batch([b"x"]))
    log = bytearray(len(one) * BATCHES)
    for offset in range(BATCHES):
        struct.pack_into(">q", one, 0, offset)  # the base offset is outside of the checksum
        log[offset * len(one) : (offset + 1) * len(one)] = one
    for partition in range(PARTITIONS):
        folder = data_dir / f"slow-{partition}"
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(log)
