"""One job at a time writes an archive: it holds `_odradek/lease.json`, and writes it anew every few seconds.

No clocks are compared. Who finds a lease of another machine watches it: when it stays the same for long, its job is
dead. On the same machine the process itself is looked for. That two never commit the same number is seen to by the
commits themselves, which are created and never replaced.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files

LEASE = "_odradek/lease.json"
RENEWED = 10.0  # seconds between two writings
PATIENCE = 45.0  # seconds without one after which a job on another machine is dead


class Lease:
    """What a job holds between `take` and `release`."""

    def __init__(self, files: Files, renewed: float = RENEWED, patience: float = PATIENCE) -> None:
        self._files = files
        self._renewed, self._patience = renewed, patience
        self._id, self._beat = uuid4().hex, 0
        self._ended = threading.Event()

    def take(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises PipelineError while another job works here."""
        while not self._files.create(LEASE, self._text()):
            held = self._read()
            if held is not None and not _is_dead(held) and self._beats(held, sleep):
                raise PipelineError(f"{self._files.root}: {_name(held)} is at work here; wait for its end, or stop it")
            if held == self._read():
                self._files.delete(LEASE)
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def check(self) -> None:
        """Raises PipelineError when another job has taken it."""
        held = self._read()
        if held is None or held["id"] != self._id:
            other = _name(held) if held else "somebody"
            raise PipelineError(
                f"{self._files.root}: {other} took this archive over, for this job gave no sign of life"
            )

    def release(self) -> None:
        """The job ends. Whoever comes next finds out by himself when this fails."""
        self._ended.set()
        try:
            self.check()
            self._files.delete(LEASE)
        except Exception:
            pass

    def _text(self) -> str:
        self._beat += 1
        return json.dumps({"id": self._id, "beat": self._beat, **_me()})

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._files.read(LEASE))
        except (PipelineError, ValueError):
            return None
        return found if isinstance(found, dict) and "id" in found else None

    def _beats(self, held: dict[str, Any], sleep: Callable[[float], None]) -> bool:
        """Whether the holder lives: this machine's process does, or the lease changes."""
        if held.get("machine") == _me()["machine"]:
            return True
        waited = 0.0
        while waited < self._patience:
            sleep(1.0)
            waited += 1.0
            if (found := self._read()) != held:
                return found is not None
        return False

    def _renew(self) -> None:
        while not self._ended.wait(self._renewed):
            try:
                self.check()
                self._files.write(LEASE, self._text())
            except PipelineError:
                return  # the next commit says so
            except Exception:
                return  # Java has ended, and this process will


def _me() -> dict[str, Any]:
    return {"machine": _machine(), "host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _machine() -> str:
    """This machine since it was started, and the container; process numbers mean nothing outside of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid4()}"  # not Linux: no process can be looked for


def _is_dead(held: dict[str, Any]) -> bool:
    return held.get("machine") == _machine() and _started(held["pid"]) != held["started"]


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the machine was; None where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _name(held: dict[str, Any]) -> str:
    return f"the job of process {held.get('pid')} on {held.get('host')}"
