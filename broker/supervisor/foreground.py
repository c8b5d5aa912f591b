"""A whole broker in the foreground: the work of `odradek start`, and of the broker inside another program."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from odradek.broker.supervisor.forkserver_client import ForkserverClient

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig
    from odradek.broker.supervisor.boot import Boot


def run(load: Callable[[], BrokerConfig], parent: int = 0) -> int:
    """Run a broker until it is stopped; returns its exit code. Raises OdradekError when it cannot start.

    Call it while the process has one thread, and no lock, socket or shared memory. With `parent`, the pid of the
    program that started this one, the broker also stops when that program ends, for any reason.
    """
    _fill_standard()
    # The fork server needs nearly all that these import, and so finds it. Only code: its forks inherit no other state.
    from odradek.broker import logs
    from odradek.broker.process import entry, process, secrets_in_memory
    from odradek.broker.supervisor import boot
    from odradek.ipc import rundir

    # What each process would find out again, in pages of its own: where temporary files are, and the usual log levels.
    rundir.default_base()
    logs.set_default_levels()
    forkserver = _on_demand() if entry.on_demand() else _fork_server()  # before all else

    from odradek.broker.supervisor.supervisor import Supervisor

    try:
        config = load()
        logs.setup("supervisor", config)
        config.warn()
        secrets_in_memory.protect(config)
        booted = boot.prepare(config, hold=process.hold_stop_signals)
        logs.setup("supervisor", booted.config, booted.run_dir)
        return Supervisor(booted, _last_steps, forkserver, forkserver.check, parent, forkserver).run()
    finally:
        forkserver.close()


def _on_demand() -> ForkserverClient:
    """What starts the processes of a broker that starts often, and no process more."""
    from odradek.broker.process import entry
    from odradek.broker.supervisor import supervisor  # noqa: F401
    from odradek.broker.supervisor.supervisor_forks import SupervisorForks

    entry.load_shared()
    return SupervisorForks()


def _fork_server() -> ForkserverClient:
    return ForkserverClient.open()


def end(code: int) -> NoReturn:
    """Exit at once: without waiting for library threads or exit handlers, and before a signal changes the exit code."""
    from odradek.broker import logs

    logs.end()
    os._exit(code)


def _fill_standard() -> None:
    """Open /dev/null as descriptor 0, 1 or 2 if it is closed, so that no file or socket gets its number and output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _last_steps() -> Callable[[Boot], None]:
    """Import while the broker is already serving, and not at its stop, when the code may have been replaced."""
    from odradek.broker.supervisor import shutdown

    return shutdown.finish
