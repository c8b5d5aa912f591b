"""`from odradek import Broker`: a real broker of this program, in processes of its own, on a free port of loopback.

Layout    : a private folder (inside.folders): `server.properties`, `broker.log`, and `data` unless the program names a
            directory. Run directory and shared memory are those of any broker (ipc.rundir).
Owner     : the process that calls `start`; a fork of it cannot stop the broker.
Crash rule: the broker watches its parent. When the program ends without `stop`, even by SIGKILL, the broker stops, and
            `inside.child` removes the folder. When the broker is killed, `stop` removes what it leaves. When both are
            killed at once, the next start of a broker inside any program of this user removes the folder, and that of
            any broker the rest (broker.supervisor.leftovers).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from odradek.inside import folders
from odradek.inside import settings as server
from odradek.inside.async_context import AsyncContext
from odradek.inside.faults import Faults
from odradek.inside.folders import Folder
from odradek.inside.launched import BrokerError, Launched
from odradek.inside.running import RunningBroker
from odradek.ipc.faults.fault_table import FaultTable

_NOT_INHERITED = {
    "ODRADEK_RUN_DIR", "RUNTIME_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
    "COVERAGE_PROCESS_START", "COV_CORE_SOURCE", "COV_CORE_CONFIG", "COV_CORE_DATAFILE",
    "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONWARNINGS",
}  # fmt: skip
"""Variables for one broker's directory, for one process of a service, or for the tests of the program's own code."""
_FAULTS = "odradek.faults.file"
_SWEEP_S = 10.0
_STEP_S = 0.02


class Broker(Faults, RunningBroker, AsyncContext):
    """A context manager, with `async` too; or `start` and `stop`.

    `settings` are Kafka's, over `inside.settings.DEFAULTS`; None removes a default. With `data` the broker keeps its
    records there, and a later one continues with them; otherwise they end with `stop`. `timeout`: seconds that a start
    or a stop may take.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, data: str | os.PathLike[str] | None = None,
        timeout: float = 60,
    ) -> None:  # fmt: skip
        Faults.__init__(self)
        RunningBroker.__init__(self, "", Path(os.devnull))
        self.settings: dict[str, Any] = {**server.DEFAULTS, **(settings or {})}
        self._data = data
        self._timeout = timeout
        self._folder: Folder | None = None
        self._launched: Launched | None = None
        self._listeners: str | None = None  # of the first start, for the next one
        self._killed = False  # so something is left in shared memory
        self._owner = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._owner == os.getpid():
            self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`. Raises BrokerError when the broker was not started."""
        if not self._bootstrap:
            raise BrokerError("the broker has no address yet: call start() first, or use `with Broker() as broker:`")
        return self._bootstrap

    @property
    def pid(self) -> int:
        """The pid of the broker's supervisor. Raises BrokerError when the broker does not run."""
        return self._running().process.pid

    def start(self) -> Self:
        """Start the broker, and wait until it serves; after `kill`, on the same port and data. Raises BrokerError."""
        if self._launched is not None:
            raise BrokerError("the broker runs already")
        self._owner = os.getpid()
        try:
            listeners = self._launch().await_listeners(self._timeout)
        except BaseException:
            self._remove()
            raise
        self._bootstrap, self._listeners = _address(listeners[0]), ",".join(listeners)
        return self

    def stop(self) -> None:
        """Stop the broker and remove what it leaves. Harmless when it was not started. Raises BrokerError when it has
        ended by itself, or does not stop in time."""
        self._check_owner()
        try:
            if self._launched is not None:
                self._end()
        finally:
            self._remove()

    def kill(self, process: str | None = None) -> None:
        """SIGKILL all its processes. `start` starts it again, and it recovers; `stop` removes what it leaves.

        With `process`, such as "worker" or "coordinator", only those of that name: the broker starts them again.
        """
        launched = self._running()
        if process is not None:
            self._kill_members(process)
            return
        launched.kill()
        self._launched, self._killed = None, True

    def restart(self, *, kill: bool = False) -> Self:
        """Stop (or kill) the broker, and start it on the same port and data. Raises BrokerError."""
        if kill:
            self.kill()
        else:
            self._end()
        return self.start()

    # -- one start

    def _launch(self) -> Launched:
        folder = self._folder = self._folder or folders.make()
        self.log_file = folder.path / "broker.log"
        file, settings = folder.path / "server.properties", self._settings(folder)
        server.write(file, settings)
        if self._table is None and settings[_FAULTS] == folder.path / "faults":
            self._table = FaultTable.create(folder.path / "faults")
        command = [sys.executable, "-m", "odradek.inside.child", str(file), str(os.getpid()), str(folder.lock)]
        self._launched = Launched(command, self.log_file, env=_environment(), pass_fds=[folder.lock])
        return self._launched

    def _settings(self, folder: Folder) -> dict[str, Any]:
        kept = {} if self._listeners is None else {"listeners": self._listeners}
        # Without the second one a paused process is killed after half a second, and replaced.
        faults = {_FAULTS: folder.path / "faults", "odradek.stopped.kill.ms": -1}
        return {"log.dirs": self._data or folder.path / "data", **faults, **self.settings, **kept}

    def _end(self) -> None:
        """Stop what runs. Raises BrokerError; then `_remove` has to follow."""
        self._running().stop(self._timeout)
        self._launched, self._killed = None, False

    def _running(self) -> Launched:
        self._check_owner()
        if self._launched is None:
            raise BrokerError("the broker does not run")
        return self._launched

    def _check_owner(self) -> None:
        if self._owner not in (0, os.getpid()):
            raise BrokerError(f"process {self._owner} started the broker, and this one is a fork of it: stop it there")

    def _remove(self) -> None:
        """End what runs, and remove what is left."""
        if self._launched is not None:
            self.kill()
        if self._folder is not None:
            if self._killed:
                _sweep(str(self._settings(self._folder)["log.dirs"]).partition(",")[0])
            self._folder.remove()
        self._forget_faults()
        self._folder, self._listeners, self._bootstrap, self._killed = None, None, "", False


def _sweep(data_dir: str) -> None:
    """Remove run directory and shared memory of a killed broker, once the last of its processes has ended."""
    from odradek.broker.supervisor import leftovers
    from odradek.ipc import rundir

    run_dir, deadline = rundir.default_base() / rundir.broker_key(data_dir), time.monotonic() + _SWEEP_S
    leftovers.sweep()
    while run_dir.exists() and time.monotonic() < deadline:
        time.sleep(_STEP_S)
        leftovers.sweep()


def _environment() -> dict[str, str]:
    """The broker imports nothing from the program's directory."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return kept | {"PYTHONSAFEPATH": "1"}


def _address(listener: str) -> str:
    """`NAME://host:port` as a client on this machine connects to it."""
    host, _, port = listener.partition("://")[2].rpartition(":")
    return f"{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"
