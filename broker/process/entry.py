"""The one entry of all broker processes, whether forked, spawned or started by hand."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from types import ModuleType

from odradek.ipc import roles

MODULES = {
    "acceptor": "odradek.broker.acceptor.acceptor",
    "controller": "odradek.broker.controller.main",
    "coordinator": "odradek.broker.coordinator.coordinator",
    "exporter": "odradek.broker.exporter.server.exporter",
    "janitor": "odradek.broker.janitor.janitor",
    "replicator": "odradek.broker.replicator.replicator",
    "supervisor": "odradek.broker.supervisor.systemd_supervisor",
    "worker": "odradek.broker.process.worker",
}


def kind(role: int) -> str:
    """`worker` for every worker, else the role's name: a key of MODULES."""
    return "worker" if role >= roles.FIRST_WORKER else roles.role_name(role)


def load(role: int) -> ModuleType:
    """The module of a role, imported together with what its first request would load."""
    module = importlib.import_module(MODULES[kind(role)])
    if kind(role) == "worker":
        from odradek.workers.apis import table

        table.load_all()
    return module


def serve(role: int, run_dir: Path) -> None:
    """Run as `role` of the broker with this run directory until SIGTERM."""
    module = load(role)
    gc.freeze()  # what is loaded now lives for ever: no collection need scan it again
    if role >= roles.FIRST_WORKER:
        module.main(run_dir, role - roles.FIRST_WORKER)
    else:
        module.main(run_dir)
