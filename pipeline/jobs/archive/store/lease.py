"""One job at a time writes an archive: it holds `_odradek/lease.json`, and rewrites it every few seconds.

No clocks are compared. A job that finds a lease of another machine watches it: if it stays the same for long, its job
is dead. On the same machine the job checks the process itself, and watches the lease where the process is hidden. The
commits themselves ensure that two jobs never commit the same number: they are created and never replaced.

No file system deletes a file on the condition that it has a content. So a job never deletes the lease: it renames it to
a name of its own, reads what it has caught, and deletes that if it is what it meant. What happens in between:

  the lease was another job's by then       it is renamed back, if there is none: by a rename that replaces nothing
  that job checks its lease meanwhile       it creates it again, since its room is still there: no job has taken over
  that job ends meanwhile                   it also deletes its lease where it was caught; the rename back fails then
  this job dies when it has caught one      its owner creates it again, at its next commit or renewal
  a third job looks for a lease meanwhile   it takes the archive: the owner's next commit fails and says so. No record
                                            is lost; the next run continues behind the last commit

The last case needs three jobs: one that was presumed dead, one that took over, and one that starts in that instant, or
within `RENEWED` of it if the first one dies there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files

log = logging.getLogger(__name__)

LEASE = "_odradek/lease.json"
_CAUGHT = "_odradek/staging/lease"  # the next owner of the archive empties it
RENEWED = 10.0  # seconds between two writes
PATIENCE = 45.0  # seconds without a write after which a job on another machine is dead


class Lease:
    """The lease that a job holds between `take` and `release`."""

    def __init__(self, files: Files, renewed: float = RENEWED, patience: float = PATIENCE) -> None:
        self._files = files
        self._renewed, self._patience = renewed, patience
        self.id, self._beat = uuid4().hex, 0
        self._ended = threading.Event()
        self._changing = threading.Lock()  # so that none is written again after its release

    def take(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises PipelineError while another job works here."""
        while not self._files.create(LEASE, self._text()):
            held = self._read()
            if held is None:
                continue  # its job has just ended
            if self._lives(held, sleep):
                raise PipelineError(
                    f"{self._files.root}: {_name(held)} is writing to this archive; wait until it ends, or stop it"
                )
            self._remove(held)
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def check(self) -> None:
        """Raises PipelineError when another job has taken the lease."""
        held = self._read()
        if held is None and self._recreate():
            return
        if held is None or held.get("id") != self.id:
            other = _name(held) if held else "another job"
            raise PipelineError(
                f"{self._files.root}: {other} took over this archive because the lease of this job expired"
            )

    def release(self) -> None:
        """The job ends. If this fails, the next job detects it."""
        self._ended.set()
        with self._changing, suppress(Exception):
            self._remove_own()
            self._remove_caught()
            self._remove_own()  # another job may have caught it behind the first look and put it back behind the second

    def _text(self) -> str:
        self._beat += 1
        return json.dumps({"id": self.id, "beat": self._beat, **_me()})

    def _read(self, path: str = LEASE) -> dict[str, Any] | None:
        """None where there is none, {} where it is not one of ours; PipelineError where it is unreadable."""
        try:
            found = json.loads(self._files.read(path))
        except ValueError:
            return {}
        except PipelineError:
            if self._files.exists(path):
                raise
            return None
        return found if isinstance(found, dict) else {}

    def _lives(self, held: dict[str, Any], sleep: Callable[[float], None]) -> bool:
        """Whether the holder is alive: this machine's process runs, or the lease changes."""
        lives = _runs(held)
        return self._beats(held, sleep) if lives is None else lives

    def _beats(self, held: dict[str, Any], sleep: Callable[[float], None]) -> bool:
        waited = 0.0
        while waited < self._patience:
            sleep(1.0)
            waited += 1.0
            if (found := self._read()) != held:
                return found is not None
        return False

    def _recreate(self) -> bool:
        """Whether the missing lease is this job's again: one that has taken over has removed the room."""
        room = self._files.room
        with suppress(PipelineError):
            return room is not None and self._files.exists(room) and self._files.create(LEASE, self._text())
        return False

    def _own(self, path: str) -> dict[str, Any] | None:
        """The lease in this file, if it is this job's."""
        held = self._read(path)
        return held if held is not None and held.get("id") == self.id else None

    def _remove_own(self) -> None:
        if (held := self._own(LEASE)) is not None:
            self._remove(held)

    def _remove_caught(self) -> None:
        """Remove this job's lease where another job has caught it by mistake."""
        for name in self._files.names(_CAUGHT):
            if self._own(f"{_CAUGHT}/{name}") is not None:
                self._files.delete(f"{_CAUGHT}/{name}")
        self._files.delete_empty(_CAUGHT)

    def _remove(self, held: dict[str, Any]) -> None:
        """Of several jobs that find a dead lease one catches it; a job that catches a later lease puts it back."""
        caught = f"{_CAUGHT}/{uuid4().hex}"
        if not self._catch(caught):
            return  # another job was faster
        if self._read(caught) != held:
            try:
                self._files.rename_new(caught, LEASE)
            except PipelineError:
                return  # its job has just ended, or removes it when it ends
        self._files.delete(caught)

    def _catch(self, caught: str) -> bool:
        try:
            self._files.rename(LEASE, caught)
        except PipelineError:
            if not self._files.exists(LEASE):
                return False
            self._files.rename(LEASE, caught)  # another job has just removed the empty folder
        return True

    def _renew(self) -> None:
        """Until another job has it. A file system error may be transient, and must not make the job look dead."""
        while not self._ended.wait(self._renewed):
            try:
                with self._changing:
                    if not self._ended.is_set():
                        self._write_again()
            except PipelineError as error:
                log.debug("the lease is not renewed: %s", error)
            except Exception:
                return  # Java has exited, and this process will

    def _write_again(self) -> None:
        """Where another job has it, the next commit says so."""
        held = self._read()
        if held is None:
            self._recreate()
        elif held.get("id") != self.id:
            self._ended.set()
        else:
            self._files.write(LEASE, self._text())


def _me() -> dict[str, Any]:
    return {"machine": _machine(), "host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _machine() -> str:
    """This machine since its boot, and the container; outside of it a process id means nothing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid4()}"  # not Linux, or hidden: processes cannot be checked


def _runs(held: dict[str, Any]) -> bool | None:
    """Whether the holder's process runs; None where that is unknown: on another machine, or hidden from this user."""
    if held.get("machine") != _machine():
        return None
    if (started := _started(held["pid"])) is not None:
        return bool(started == held.get("started"))
    return None if _is_there(held["pid"]) else False


def _is_there(pid: int) -> bool:
    """Whether the process exists, also where /proc hides those of others (systemd's ProtectProc)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _started(pid: int) -> str | None:
    """A process's start time, in ticks since boot; None where the process is not visible."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _name(held: dict[str, Any]) -> str:
    return f"the job of process {held.get('pid')} on {held.get('host')}"
