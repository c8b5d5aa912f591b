"""Starts the broker's processes by exec of `python -m odradek.broker run ROLE`; they die with the parent.

Used without a fork server (`forkserver_client`). exec, not fork: the supervisor has threads and locks, and a child
shares nothing with it but the descriptors named here. posix_spawn resets signal handling, puts the child into a
process group of its own (a Ctrl-C at the terminal must reach only the supervisor, which then stops the children in
order) and places listening sockets from fd 3 up.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.broker.errors import BootError
from odradek.broker.process import sd_notify
from odradek.ipc import roles

PARENT_VARIABLE = "ODRADEK_PARENT"
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded once, and not in each fork, whose pages that would copy
NOT_INHERITED = ("LISTEN_PID", *sd_notify.MANAGER)  # a service manager's variables for one process
SAFE_FD = 256  # above every descriptor that dup2 could overwrite in the child
RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)


def role_arguments(role: int) -> list[str]:
    """The arguments of `odradek run` for a role: `worker --id 3`, `janitor`."""
    if role >= roles.FIRST_WORKER:
        return ["worker", "--id", str(role - roles.FIRST_WORKER)]
    return [roles.role_name(role)]


def command_line(role: int, run_dir: Path) -> list[str]:
    """The whole command of a child."""
    return [sys.executable, "-m", "odradek.broker", "run", *role_arguments(role), "--run-dir", str(run_dir)]


def spawn(
    role: int,
    run_dir: Path,
    sockets: Sequence[tuple[str, int]] = (),
    command_of: Callable[[int, Path], list[str]] = command_line,
) -> int:
    """Start the process of `role`, with `sockets` (name, fd) handed over; returns its pid."""
    environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
    for name in NOT_INHERITED:
        environment.pop(name, None)
    environment |= sd_notify.listen_environment([name for name, _ in sockets])
    command = command_of(role, run_dir)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SAFE_FD) for _, fd in sockets]
    try:
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, sd_notify.FIRST_FD + i) for i, fd in enumerate(high)],
            setpgroup=0,
            setsigdef=RESET,
            setsigmask=(signal.SIGUSR2,),  # until `logs.setup` has a handler: by default it kills
        )
    finally:
        for fd in high:
            os.close(fd)


def die_with_parent() -> None:
    """In a child: have the kernel kill it when the supervisor dies. Exits at once if that has happened already.

    Without ODRADEK_PARENT (run by hand, by systemd) it does nothing."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent:
        return
    die_with(int(parent))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` dies. Exits at once if that has happened already."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise BootError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the prctl
        os._exit(1)


def signal_exactly(pid: int, number: int, still_right: Callable[[], bool]) -> bool:
    """Send a signal through a pidfd, unless `still_right()`, called once the pidfd pins the process, says that `pid`
    is another process by now. Returns whether it was sent; it is not when no descriptor is left."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not still_right():
            return False
        signal.pidfd_send_signal(pidfd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
