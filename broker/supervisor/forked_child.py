"""The first steps of a process that the fork server or the supervisor has forked: what exec would do for it."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from odradek.broker import logs
from odradek.broker.errors import FAILED
from odradek.broker.process import entry, sd_notify
from odradek.broker.supervisor import proctitle, spawn

_STANDARD = 3  # descriptors 0, 1 and 2


def become(role: int, run_dir: Path, names: Sequence[str], fds: Sequence[int], supervisor: int) -> NoReturn:
    """Keep only the standard descriptors and the sockets `fds`, and run the role. The stack above is the parent's."""
    code = FAILED
    try:
        _enter(role, run_dir, supervisor)
        _receive_sockets(fds, names)
        code = _run_role(role, run_dir)
    except BaseException:
        traceback.print_exc()
    finally:
        logs.end()
        os._exit(code)


def _enter(role: int, run_dir: Path, supervisor: int) -> None:
    """Reset what exec would reset."""
    spawn.die_with(supervisor)
    os.setpgid(0, 0)
    words = " ".join(spawn.role_arguments(role))
    proctitle.set_title(f"odradek run {words}", f"--run-dir {run_dir}")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


def _receive_sockets(fds: Sequence[int], names: Sequence[str]) -> None:
    """Close every descriptor but the standard ones and `fds`, which become 3 and up, as systemd passes them."""
    high = [os.dup2(fd, spawn.SAFE_FD + i, inheritable=False) for i, fd in enumerate(fds)]
    os.closerange(_STANDARD, spawn.SAFE_FD)
    for i, fd in enumerate(high):
        os.dup2(fd, sd_notify.FIRST_FD + i, inheritable=False)
    os.closerange(max(_STANDARD + len(high), spawn.SAFE_FD), os.sysconf("SC_OPEN_MAX"))
    for name in spawn.NOT_INHERITED:
        os.environ.pop(name, None)
    os.environ.update(sd_notify.listen_environment(names))


def _run_role(role: int, run_dir: Path) -> int:
    from odradek.broker.outcome import outcome

    try:
        return outcome(lambda: entry.serve(role, run_dir))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
