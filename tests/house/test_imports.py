"""Imports go one way: broker → workers → {groups, cluster, storage} → ipc; security and protocol stand apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .tree import imports, layer, modules, pyproject

ALLOWED = {
    "broker": {"broker", "workers", "groups", "cluster", "security", "storage", "ipc", "protocol", "systemd"},
    "workers": {"workers", "groups", "cluster", "security", "storage", "ipc", "protocol"},
    "groups": {"groups", "ipc", "protocol"},
    "cluster": {"cluster", "security", "ipc", "protocol"},
    "security": {"security", "protocol"},
    "storage": {"storage", "ipc", "protocol"},
    "ipc": {"ipc", "protocol"},
    "protocol": {"protocol"},
    "systemd": {"systemd"},
    # a client on the wire; it measures readers, Spark jobs, and what programs use
    "loadtest": {"loadtest", "arrowtables", "inside", "loghandler", "pipeline"},
    "inside": {"inside", "broker", "ipc", "protocol"},  # it starts brokers in processes of their own
    "demo": {"demo", "loadtest", "pipeline"},  # it runs commands, and starts the swarm's broker
    "arrowtables": {"arrowtables", "pipeline", "protocol"},  # the pipeline's reader and writer without Spark
    "loghandler": {"loghandler", "pipeline", "protocol"},  # a client as well, on the pipeline's connections
    "pipeline": {
        "pipeline",
        "storage",
        "protocol",
    },  # a client, too, which also reads files of a broker on the same machine
}
# This module measures work under a lock, which the wire shows only as a pause.
WITHIN = {"odradek.loadtest.measurements.producers": {"storage", "ipc", "protocol"}}
SOCKETS = {"socket", "select", "selectors", "asyncio", "zmq", "kazoo", "socketserver"}
CLOCKS = {"time", "datetime", "threading", "sched"}
PICKLES = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "multiprocessing"}
# Importing it takes 0.15 CPU s and 12 MB or more, and its BLAS starts threads that spin: see storage/segment/index.py.
HEAVY = {"numpy"}
NUMERIC = ("arrowtables", "loadtest", "pipeline")
# Modules that read whole logs import it when there is work: see test_broker_processes_start_without_large_modules.
BULK = {"odradek.protocol.records.bulk"} | {
    f"odradek.storage.{name}"
    for name in (
        "segment.batch_chunks", "segment.bulk_records", "compaction.clean_batches", "compaction.clean_chunks",
        "compaction.key_hashes", "compaction.map_pass", "compaction.offset_map",
    )
}  # fmt: skip
# A state machine takes events, bytes and `now_ms`, and imports none of these. `cluster/tree/zookeeper*` is a store.
FORBIDDEN = {"groups": SOCKETS | CLOCKS, "protocol": SOCKETS | CLOCKS, "cluster": SOCKETS, "security": SOCKETS | CLOCKS}
FORBIDDEN_IN = {
    f"odradek.{name}": SOCKETS | CLOCKS
    for name in ("loghandler.backlog", "loghandler.reports", "workers.takeover.handover", "broker.rolling.roll")
}
DISTRIBUTIONS = {
    "confluent_kafka": "confluent-kafka",
    "zmq": "pyzmq",
    "kafka": "kafka-python",
    "posix_ipc": "posix-ipc",
    "prometheus_client": "prometheus-client",
    "prompt_toolkit": "prompt-toolkit",
}


def faults(module: str, source: str) -> Iterator[str]:
    """The forbidden imports of `source`, one line each."""
    mine = layer(module)
    assert mine is not None
    for name, line in imports(source, module):
        theirs, top = layer(name), name.split(".")[0]
        if theirs is not None and theirs not in ALLOWED[mine] | WITHIN.get(module, set()):
            yield f"{module}:{line}: {mine} may not import {theirs}"
        forbidden = FORBIDDEN.get(mine, set()) | FORBIDDEN_IN.get(module, set())
        if top in forbidden and not module.startswith("odradek.cluster.tree.zookeeper"):
            yield f"{module}:{line}: {mine} may not import {top}"
        if top in HEAVY and mine not in NUMERIC and module not in BULK and not _is_exporter(module):
            yield f"{module}:{line}: too heavy for a process of the broker ({top})"
        if top in PICKLES:
            yield f"{module}:{line}: no pickle ({top})"


def _is_exporter(module: str) -> bool:
    """The exporter is a separate process, and no client waits for it."""
    return module.startswith("odradek.broker.exporter.")


def test_every_module_keeps_to_the_rules() -> None:
    found = [fault for module, path in modules() for fault in faults(module, path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("odradek.ipc.x", "import odradek.storage.log.log"),
        ("odradek.ipc.x", "from odradek import workers"),
        ("odradek.storage.x", "def f():\n    from odradek.groups.group import Group"),
        ("odradek.storage.x", "from ..cluster import snapshot"),
        ("odradek.workers.x", "from odradek.broker.config import BrokerConfig"),
        ("odradek.workers.apis.x", "from ...broker import config"),
        ("odradek.protocol.x", "from odradek.ipc import shm"),
        ("odradek.loadtest.x", "from odradek.ipc import shm"),
        ("odradek.security.x", "from odradek.ipc import shm"),
        ("odradek.security.x", "import time"),
        ("odradek.groups.x", "import socket"),
        ("odradek.groups.x", "from time import monotonic"),
        ("odradek.cluster.x", "import zmq.asyncio"),
        ("odradek.broker.x", "import pickle"),
        ("odradek.ipc.x", "from multiprocessing import shared_memory"),
        ("odradek.storage.x", "def f():\n    import numpy as np"),
        ("odradek.loghandler.backlog", "import time"),
        ("odradek.loghandler.x", "from odradek.broker import config"),
        ("odradek.arrowtables.x", "from odradek.storage.log import log"),
    ],
)
def test_forbidden_import_is_found(module: str, source: str) -> None:
    assert list(faults(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("odradek.workers.x", "from ..ipc import shm\nfrom odradek.storage.log.partition import Partition"),
        ("odradek.storage.x", "from . import index\nimport time, os"),
        ("odradek.cluster.tree.zookeeper", "import kazoo.client"),
        ("odradek.loadtest.x", "import numpy"),
    ],
)
def test_allowed_import_is_accepted(module: str, source: str) -> None:
    assert not list(faults(module, source))


def test_every_foreign_import_is_a_declared_dependency() -> None:
    import sys

    project = pyproject()["project"]
    declared = {_name(text) for text in project["dependencies"]}
    more = project["optional-dependencies"]
    extras = {_name(text) for extra in ("arrow", "load", "bench", "spark", "delta", "demo") for text in more[extra]}
    plugin = {_name(text) for text in more["pytest"]}
    for module, path in modules():
        known = declared | extras if layer(module) in (*NUMERIC, "demo") else declared
        known = known | plugin if layer(module) == "inside" else known
        for name, line in imports(path.read_text(), module):
            top = name.split(".")[0]
            if top != "odradek" and top not in sys.stdlib_module_names:
                assert DISTRIBUTIONS.get(top, top) in known, f"{module}:{line}: {top} is not in pyproject.toml"


@pytest.mark.live
def test_broker_processes_start_without_large_modules() -> None:
    """A process imports numpy only when it has bulk work, click only for commands, and no metadata of packages."""
    import subprocess
    import sys

    names = (
        "broker.janitor.janitor",
        "broker.supervisor.supervisor",
        "workers.worker",
        "storage.compaction.compaction",
        "broker.controller.main",
    )
    large = {"numpy", "click", "importlib.metadata"}
    lines = ["import sys", *(f"import odradek.{name}" for name in names), f"print({large} & sys.modules.keys())"]
    code = "\n".join(lines)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


@pytest.mark.live
def test_broker_of_a_program_loads_only_what_a_standalone_one_needs() -> None:
    """Each module costs time and memory at each start of a test run: TLS, ZooKeeper, and most APIs wait for their first
    use. What the processes do need is loaded before the first fork."""
    import subprocess
    import sys

    unused = {
        "ssl", "kazoo", "numpy", "click", "cramjam", "difflib", "concurrent.futures", "logging.handlers",
        "odradek.broker.controller.member.member", "odradek.cluster.tree.zookeeper",
        "kafka.protocol.admin.topics", "kafka.protocol.consumer.group",
    }  # fmt: skip
    needed = {"odradek.broker.coordinator.coordinator", "odradek.workers.apis.k03_metadata", "kafka.protocol.metadata"}
    code = f"""import sys
from odradek.broker.process import entry
from odradek.broker.supervisor import supervisor
from odradek.inside import child
entry.load_on_demand()
entry.load_shared()
print({unused} & sys.modules.keys(), {needed} - sys.modules.keys())"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set() set()\n"


def _name(requirement: str) -> str:
    return requirement.split(">")[0].split("=")[0].split("[")[0].strip()
