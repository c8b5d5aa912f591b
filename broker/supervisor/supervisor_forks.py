"""Forks the broker's processes from the supervisor itself: in the broker of a program, which starts often.

A fork server (`forkserver_client`) is a process more, and each start takes two forks and a request. So this supervisor
imports what its children need (process.entry), and forks them. A child closes the supervisor's log and then all its
descriptors, and never returns to its code, whose other objects thus live until the child ends (`forked_child`): none
closes a descriptor whose number is another file's by then.

Owner     : the supervisor.
Crash rule: the kernel kills the children when the supervisor dies.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from odradek.broker import logs
from odradek.broker.errors import FAILED
from odradek.broker.process import sd_notify
from odradek.broker.supervisor import forked_child, machine_limits, spawn
from odradek.broker.supervisor.forkserver_client import ForkserverClient, become_subreaper

_HANDLED = (*spawn.RESET, signal.SIGQUIT)


class SupervisorForks(ForkserverClient):
    """A `spawner` without a fork server, until an upgrade, whose processes must have other code, brings one."""

    def __init__(self) -> None:
        super().__init__(0, None)
        self._upgraded = False
        machine_limits.raise_open_files()
        gc.freeze()
        gc.enable()

    def renewed(self, run_dir: Path) -> ForkserverClient:
        """A fork server of the code that is installed now."""
        become_subreaper()
        return super().renewed(run_dir)

    def adopt(self, other: ForkserverClient) -> None:
        """Use the fork server of `other` from now on."""
        super().adopt(other)
        self._upgraded = True

    def __call__(self, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]] = ()) -> int:
        """Start the process of `role`, with `sockets` (name, fd) handed over; returns its pid."""
        if self._upgraded:
            return super().__call__(role, run_dir, sockets)
        # A collection in the parent or a child would copy the pages that they share. Cycles of garbage that exist now
        # are never collected: little, as few processes are started again.
        gc.freeze()
        supervisor = os.getpid()
        former = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # a child's come when it has its own handlers
        try:
            pid = os.fork()
            if pid == 0:
                _become(role, run_dir, sockets, supervisor)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        return pid


def _become(role: int, run_dir: Path, sockets: Sequence[tuple[str, int]], supervisor: int) -> NoReturn:
    try:
        _forget_supervisor()
        forked_child.become(role, run_dir, [name for name, _ in sockets], [fd for _, fd in sockets], supervisor)
    finally:
        os._exit(FAILED)


def _forget_supervisor() -> None:
    """In a child: no handler, wake-up, log or variable of the supervisor's. SIGUSR2 stays blocked until there is a
    handler for it: by default it kills."""
    logs.forget()
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, (signal.SIGUSR2,))
    for name in sd_notify.MANAGER:
        os.environ.pop(name, None)
