"""The cost of a broker's processes, as the kernel counts it: CPU of all, dead ones included, and memory."""

from __future__ import annotations

import contextlib
import ctypes
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Memory(NamedTuple):
    """MiB: `pss` counts a page that several processes share once, `rss` as often as it is mapped."""

    pss: float
    rss: float


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time of all threads so far, and of the children that were reaped."""
    return sum(map(_cpu, processes))


def _cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0  # it has just ended: its parent's children_* includes it once it is reaped


def memory(processes: Iterable[psutil.Process]) -> Memory:
    """The sum over `processes`, from their smaps_rollup."""
    sums = [_rollup(process.pid) for process in processes]
    return Memory(sum(one.pss for one in sums), sum(one.rss for one in sums))


def _rollup(pid: int) -> Memory:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return Memory(0, 0)
    kib = {name: int(value) for name, value in re.findall(r"^(Pss|Rss): +(\d+) kB", text, re.MULTILINE)}
    return Memory(kib.get("Pss", 0) / 1024, kib.get("Rss", 0) / 1024)


def family(process: psutil.Process) -> list[psutil.Process]:
    """`process` and all its living descendants."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def spawn(command: list[str], log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> psutil.Popen:
    """Start `command` with its output in `log`; it is killed when the bench dies, for any reason."""
    with log.open("ab") as out:
        return psutil.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env=env,
            start_new_session=True,  # Ctrl-C reaches only the bench, which stops the process when done
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end(process: psutil.Popen, how: signal.Signals, seconds: float) -> None:
    """Send `how` to `process`, or SIGKILL to its whole family; kill those that still run after `seconds`."""
    everyone = family(process)
    for one in everyone if how == signal.SIGKILL else everyone[:1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(how)
    _, left = psutil.wait_procs(everyone, seconds)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, seconds)


def free_port() -> int:
    """A free TCP port of 127.0.0.1, below the range for outgoing connections.

    Between this call and the broker's start a second may pass, and another load's connections take ports by the
    thousand.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(min(20_000, first_given - 1000), first_given)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
