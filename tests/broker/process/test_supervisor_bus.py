"""The supervisor's end of the control bus, when it cannot be opened at once."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from odradek.broker.process import control_bus
from odradek.broker.process.supervisor_bus import SupervisorBus


def test_bus_opens_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poll = select.poll()
    bus = SupervisorBus(tmp_path, {"status": lambda: None}, poll)

    def refuse(_run_dir: Path) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken, pytest.raises(OSError):
        broken.setattr(control_bus, "EventPublisher", refuse)
        bus.open()
    bus.serve()
    bus.publish("ready")
    bus.open()
    assert (tmp_path / "events.ipc").exists() and (tmp_path / "control-supervisor.ipc").exists()
    bus.publish("ready")
    bus.close()
    assert poll.poll(0) == [], "nothing of it is left in the poll"
