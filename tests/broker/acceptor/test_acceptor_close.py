"""An acceptor that is closed leaves nothing open, though its process goes on. Without processes."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from odradek.broker import config as configuration
from odradek.broker.acceptor.acceptor import Acceptor
from odradek.ipc import channel, processes
from odradek.ipc.handoff import Client


def _acceptor(run_dir: Path, listening: socket.socket) -> Acceptor:
    table = SimpleNamespace(row=lambda _role: [0] * processes.ROW)
    shared = SimpleNamespace(processes=table, metadata=SimpleNamespace(version=0))
    process = SimpleNamespace(run_dir=run_dir, config=configuration.resolve({"log.dirs": str(run_dir)}), shared=shared)
    return Acceptor(cast(Any, process), {"PLAINTEXT": listening})


def test_closed_acceptor_has_no_descriptor(tmp_path: Path) -> None:
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    listening = socket.create_server(("127.0.0.1", 0))
    acceptor = _acceptor(tmp_path, listening)
    homeless, throttled = socket.socketpair(), socket.socketpair()
    client = Client("PLAINTEXT", "h", 1)
    acceptor._keep(client, homeless[0].detach())
    acceptor._throttled.add(throttled[0], client, 1e9)
    worker = channel.connect(tmp_path / "acceptor.sock")
    acceptor.turn(0)
    acceptor.close()
    for other in (homeless[1], throttled[1], worker):
        other.close()
    assert set(os.listdir("/proc/self/fd")) <= before
