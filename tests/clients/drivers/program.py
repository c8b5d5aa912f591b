"""A group member in a process of its own, which writes each value as a line to a file."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from ...harness.process import die_with_parent


class ProgramMember:
    """See `base.Member`."""

    def __init__(self, command: list[str], folder: Path, leave_with: int = signal.SIGTERM) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("member-*.out")))
        self._output = folder / f"member-{number}.out"
        self._leave_with = leave_with
        with self._output.open("wb") as out, (folder / f"member-{number}.err").open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=die_with_parent
            )

    def leave(self) -> None:
        """Send the signal that makes it leave, and wait."""
        self._process.send_signal(self._leave_with)
        self._process.wait(60)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(10)

    def seen(self) -> list[bytes]:
        """Lines so far; a killed kcat may have written its last value but not yet the end of the line."""
        return [line for line in self._output.read_bytes().split(b"\n") if line]
