"""A broker with trivial processes: real supervisor, real spawning, children without work.

`python standin.py start DATA_DIR [KEY=VALUE…]` supervises; children run `standin.py ROLE --run-dir DIR`.
Files in the data directory control a child: `<role>.exit` has an exit code for it to end with at once.
Roles in $STANDIN_REAL are the real ones. $STANDIN_TIMEOUT_S limits the wait for processes that cannot end.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from pathlib import Path

from odradek.broker import config, logs
from odradek.broker.process import process
from odradek.broker.supervisor import boot, shutdown, spawn, stop_limits
from odradek.broker.supervisor.supervisor import Supervisor
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.ipc import roles


def start(data_dir: str, overrides: list[str]) -> int:
    if "STANDIN_TIMEOUT_S" in os.environ:
        stop_limits.DEATH_S = stop_limits.WRITER_S = float(os.environ["STANDIN_TIMEOUT_S"])
    settings = config.load(None, [f"log.dirs={data_dir}", *overrides])
    logs.setup("supervisor", settings)
    booted = boot.prepare(settings)
    logs.setup("supervisor", booted.config, booted.run_dir)
    spawner = functools.partial(spawn.spawn, command_of=command_line)
    return Supervisor(booted, lambda: finish, spawner).run()


def finish(booted: boot.Boot) -> None:
    """Run the real last steps, and record them in a file."""
    shutdown.finish(booted)
    (Path(booted.config.data_dir) / "finished").touch()


def command_line(role: int, run_dir: Path) -> list[str]:
    if roles.role_name(role) in os.environ.get("STANDIN_REAL", "").split(","):
        return spawn.command_line(role, run_dir)
    return [sys.executable, __file__, roles.role_name(role), str(run_dir)]


def child(name: str, run_dir: Path) -> int:
    spawn.die_with_parent()
    role = roles.BY_NAME.get(name)
    if role is None:
        role = roles.worker_role(int(name.partition("-")[2]))
    data_dir = Path(config.saved(run_dir).data_dir)
    wish = data_dir / f"{name}.exit"
    if wish.exists():
        return int(wish.read_text())
    own = process.enter(role, run_dir)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    if role == roles.CONTROLLER:
        _publish(own)
    own.running()
    while not ended:
        time.sleep(0.01)
    with (data_dir / "order").open("a") as order:
        order.write(f"{name}\n")
    return 0


def _publish(own: process.Process) -> None:
    version = own.shared.metadata.version + 1
    raw = raw_snapshot(version, "cluster", 0, [], {}, {})
    own.shared.metadata.publish(version, json.dumps(raw).encode())


if __name__ == "__main__":
    if sys.argv[1] == "start":
        sys.exit(start(sys.argv[2], sys.argv[3:]))
    sys.exit(child(sys.argv[1], Path(sys.argv[2])))
