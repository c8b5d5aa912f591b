"""One start of a broker as a child process: its output in a log file, until it is ready, and its end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odradek.broker.errors import OdradekError

_READY = "\nREADY "  # supervisor.banner.ready_line
_STEP_S = 0.005
_DEATH_S = 60.0  # of killed processes: one may wait for a disk
_SHOWN = 4000  # characters of the log in an error


class BrokerError(OdradekError):
    """A broker does not start, does not stop, or has ended by itself; the text has the end of its log."""


class Launched:
    """The process is a session of its own, so a Ctrl-C at the terminal reaches only the program that started it."""

    def __init__(self, command: Sequence[str], log_file: Path, **options: Any) -> None:
        """Start `command`; its output is added to `log_file`. `options` are those of subprocess.Popen."""
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._begin = log.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
            )

    def listeners(self) -> list[str]:
        """`NAME://host:port` of each listener, with its real port; none before the broker is ready. Raises BrokerError
        when it has ended."""
        status = self.process.poll()
        if status is not None:
            raise BrokerError(f"the broker ended with {status} before it was ready:\n{self.log_end()}")
        with self._log_file.open("rb") as log:
            log.seek(self._begin)
            _, ready, rest = log.read().decode(errors="replace").partition(_READY)
        return rest.partition("\n")[0].split() if ready and "\n" in rest else []

    def await_listeners(self, seconds: float) -> list[str]:
        """Wait for `listeners`. Raises BrokerError when the broker has ended, or is not ready in time."""
        deadline = time.monotonic() + seconds
        while not (found := self.listeners()):
            if time.monotonic() > deadline:
                raise BrokerError(f"the broker was not ready in {seconds:g} s:\n{self.log_end()}")
            time.sleep(_STEP_S)
        return found

    def stop(self, seconds: float) -> None:
        """SIGTERM, and wait. Raises BrokerError when it had ended before, fails, or takes longer; then it is killed."""
        already = self.process.poll()
        if already is not None:
            raise BrokerError(f"the broker ended with {already} before its stop:\n{self.log_end()}")
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop in {seconds:g} s:\n{self.log_end()}") from None
        if status:
            raise BrokerError(f"the broker ended with {status} after SIGTERM:\n{self.log_end()}")

    def kill(self) -> None:
        """SIGKILL it, and wait for the end of its processes, which die with it. Harmless when it has ended."""
        if self.process.poll() is not None:
            return
        import psutil

        members = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(_DEATH_S)
        psutil.wait_procs(members, _DEATH_S)

    def log_end(self) -> str:
        """The last lines of the log."""
        return self._log_file.read_text(errors="replace")[-_SHOWN:]
