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
# What `load_shared` loads: these roles, what makes a broker fail for its program, and the first answers to a client.
_STANDALONE = (roles.FIRST_WORKER, roles.CONTROLLER, roles.ACCEPTOR, roles.JANITOR, roles.COORDINATOR)
_WITH_FAULTS = ("odradek.broker.process.injected_faults", "odradek.workers.faults.faulty_requests")
_FIRST = ("ApiVersionsRequest", "ApiVersionsResponse", "MetadataRequest", "MetadataResponse")
_CLUSTERED = "odradek.broker.controller.member.join"  # which a controller of a standalone broker does not need
_on_demand = False


def load_on_demand() -> None:
    """From now on, in this process and its forks, load what one API needs with its first request, and what only a
    member of a cluster needs in its controller. A broker of a program starts often, and serves few APIs."""
    global _on_demand
    _on_demand = True


def on_demand() -> bool:
    """Whether `load_on_demand` was called."""
    return _on_demand


def kind(role: int) -> str:
    """`worker` for every worker, else the role's name: a key of MODULES."""
    return "worker" if role >= roles.FIRST_WORKER else roles.role_name(role)


def load(role: int) -> ModuleType:
    """The module of a role, imported together with what its first request would load."""
    module = importlib.import_module(MODULES[kind(role)])
    if kind(role) == "worker":
        load_apis()
    elif kind(role) == "controller" and not _on_demand:
        importlib.import_module(_CLUSTERED)
    return module


def load_apis() -> None:
    """Load what the first request of each API would load, unless that is wanted."""
    from odradek.workers.apis import table

    if not _on_demand:
        table.load_all()
        importlib.import_module("cramjam")  # for compressed records


def load_shared() -> None:
    """Load what the processes of a standalone broker need, and its first answers, into the parent of all. What a fork
    loads itself it has for itself, and the import copies pages: it touches the name of each function that it knows."""
    from odradek.protocol import library
    from odradek.workers.apis import table

    for name in _WITH_FAULTS:
        importlib.import_module(name)
    for role in _STANDALONE:
        load(role)
    table.load_rows()
    for name in _FIRST:
        library.message_class(name)


def serve(role: int, run_dir: Path) -> None:
    """Run as `role` of the broker with this run directory until SIGTERM."""
    module = load(role)
    gc.freeze()  # what is loaded now lives for ever: no collection need scan it again
    if role >= roles.FIRST_WORKER:
        module.main(run_dir, role - roles.FIRST_WORKER)
    else:
        module.main(run_dir)
