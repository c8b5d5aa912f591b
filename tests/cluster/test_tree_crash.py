"""SIGKILL of a writing process: acknowledged writes stay, and no write is partial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cluster.tree.embedded import EmbeddedTree

pytestmark = pytest.mark.live

WRITER = """
import sys
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Create, Set
tree = EmbeddedTree(sys.argv[1])
first = len(tree.children("/"))
for name in tree.children("/")[-1:]:  # the former writer may have been killed between its two transactions
    tree.multi([Set("/" + name, b"done")])
for number in range(first, 1_000_000):
    node = f"/n{number:08d}"
    tree.multi([Create(node), Create(node + "/left", b"x" * 5000), Create(node + "/right", b"y" * 5000)])
    tree.multi([Set(node, b"done")])
    print(number, flush=True)
"""


@pytest.mark.parametrize("kills", [5])
def test_acknowledged_writes_survive_a_kill(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "m.db"
    acknowledged = -1
    for turn in range(kills):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(3 + 7 * turn):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split("\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
        writer.wait()
        writer.stdout.close()
    tree = EmbeddedTree(path)
    names = tree.children("/")
    assert len(names) in (acknowledged + 1, acknowledged + 2)
    for name in names:
        assert tree.children(f"/{name}") == ["left", "right"]
    assert all(tree.get(f"/{name}")[0] == b"done" for name in names[: acknowledged + 1])
    tree.close()


TOGETHER = """
import sys
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Create
tree = EmbeddedTree(sys.argv[1])
with tree.together():
    for number in range(100):
        tree.multi([Create(f"/n{number:03d}"), Create(f"/n{number:03d}/below")])
        print(number, flush=True)
tree.multi([Create("/last")])
print("last", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("lines", [40, 101])
def test_transactions_are_atomic_and_ordered_after_a_kill(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "m.db"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    writer = subprocess.Popen([sys.executable, "-c", TOGETHER, str(path)], text=True, **pipes)  # type: ignore[call-overload]  # pipes only
    assert writer.stdout is not None
    for _ in range(lines):
        writer.stdout.readline()
    writer.kill()
    writer.communicate()
    tree = EmbeddedTree(path)
    names = [name for name in tree.children("/") if name != "last"]
    assert names == [f"n{number:03d}" for number in range(len(names))] and len(names) >= min(lines, 100)
    assert all(tree.children(f"/{name}") == ["below"] for name in names)
    assert tree.exists("/last") is not None or lines < 101
    tree.close()
