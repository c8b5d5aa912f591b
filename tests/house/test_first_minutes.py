"""The first steps of a new user: `make run` and Ctrl-C, and the README's three commands, also from a wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.process import die_with_parent, free_port, living, wait_until

from .tree import ROOT

pytestmark = pytest.mark.live

SECONDS = 60


def commands() -> list[str]:
    """The README's commands to try, in order."""
    chapter = (ROOT / "README.md").read_text().partition("Three commands to try")[2]
    return re.search(r"```sh\n(.*?)```", chapter, re.DOTALL)[1].splitlines()  # type: ignore[index]  # each chapter has a block


def try_commands(odradek: Path, bootstrap: str, folder: Path) -> None:
    """Run the README's commands with this `odradek` against this broker, and read the record back."""
    create, produce, consume = (
        line.replace(".venv/bin/odradek", str(odradek)).replace("localhost:9092", bootstrap) for line in commands()
    )
    for line in (create, produce):
        subprocess.run(["sh", "-c", line], cwd=folder, check=True, timeout=SECONDS)
    done = subprocess.run(
        ["sh", "-c", f"{consume} --max-messages 1"], cwd=folder, capture_output=True, check=True, timeout=SECONDS
    )
    assert done.stdout == b"hello, world\n"


def test_commands_of_the_readme_work(fresh_broker: Callable[..., Broker], tmp_path: Path) -> None:
    try_commands(Path(sys.executable).parent / "odradek", fresh_broker().bootstrap, tmp_path)


def test_make_run_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole foreground group: make, and the broker under it, which ends cleanly."""
    port, data = free_port(), tmp_path / "data"
    settings = f"--override listeners=PLAINTEXT://127.0.0.1:{port} --override log.dirs={data}"
    log = tmp_path / "run.log"
    with log.open("wb") as out:
        make = subprocess.Popen(
            ["make", "run", f"ARGS={settings}"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        wait_until(lambda: "Odradek is ready" in log.read_text() or make.poll() is not None, SECONDS, log.read_text())
        assert f"127.0.0.1:{port}" in log.read_text()
        os.killpg(make.pid, signal.SIGINT)
        make.wait(SECONDS)
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGKILL)
    assert (data / ".kafka_cleanshutdown").exists(), log.read_text()
    assert not living_group(make.pid)


def living_group(group: int) -> list[int]:
    """Processes of that process group that still run."""
    import psutil

    members = [process for process in psutil.process_iter() if _group(process.pid) == group]
    return [process.pid for process in living(members)]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
