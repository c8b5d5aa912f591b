"""A broker without `odradek.faults.file` has no code for faults in its processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.live

LOADED = """
import sys
from odradek.broker.process import entry
from odradek.ipc import roles
for role in (roles.FIRST_WORKER, roles.CONTROLLER, roles.COORDINATOR, roles.JANITOR, roles.ACCEPTOR):
    entry.load(role)
print(sorted({"odradek.ipc.faults", "odradek.workers.faults", INJECTED} & sys.modules.keys()))
"""
INJECTED = "odradek.broker.process.injected_faults"


def test_processes_import_no_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"INJECTED = {INJECTED!r}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
