"""The supervisor's client of the fork server, which imports everything once and forks the broker's processes.

Seven interpreters that import the same modules take most of a start's time and a good part of its memory. So `odradek
start` forks one process before it has threads, locks, sockets or shared memory (`forkserver`), and requests the others
from it. They still become children of the supervisor (PR_SET_CHILD_SUBREAPER), which waits for them and signals them by
pid; the kernel kills them when it dies.

Layout    : a SOCK_SEQPACKET pair. Request: JSON {"role", "run_dir", "names"}, with the sockets of `names` attached;
            answer: {"pid": …} or {"error": …}. A replacement first sends READY and the versions of its code
            (process.versions), once it has imported all. A supervisor without versions reads READY alone of it.
Owner     : the supervisor.
Crash rule: without a fork server (killed, or stopped) the supervisor spawns processes with exec, as by hand, until a
            replacement, which is spawned too, is ready.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from odradek.broker.supervisor import forkserver, spawn

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0  # it may be importing, on a busy machine
LOOK_S = 0.2
GONE_S = 2.0  # for the kernel to end it
_STEP_S = 0.005
_GREETING = 4096  # bytes, more than any
REPLACE_S = 5.0  # between two replacements: it may be killed again, and importing all is work
_PR_SET_CHILD_SUBREAPER = 36


class ForkserverGone(Exception):
    """The fork server cannot answer, now or later."""


class ForkserverClient:
    """Starts processes: a `spawner` for the supervisor."""

    def __init__(self, pid: int, sock: socket.socket | None) -> None:
        self._pid = pid
        self._socket: socket.socket | None = sock
        self._ready = True  # takes requests, also while it imports: then it imports what they need first
        self.versions: dict[str, object] = {}  # of the code of a replacement (process.versions)
        self._not_before = 0.0

    @classmethod
    def open(cls) -> ForkserverClient:
        """Fork the fork server. The caller has one thread, and nothing that a child must not inherit."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        become_subreaper()
        parent = os.getpid()
        gc.freeze()  # a collection in one of the two would copy the pages that they share
        pid = os.fork()
        if pid == 0:
            ours.close()
            forkserver.run(theirs, parent)
        theirs.close()
        return cls(pid, ours)

    def renewed(self, run_dir: Path) -> ForkserverClient:
        """Another one, of the code that is installed now; this one stays as it is."""
        other = ForkserverClient(0, None)
        other._replace(run_dir)
        return other

    def adopt(self, other: ForkserverClient) -> None:
        """End this fork server, and use that of `other` from now on."""
        self.close()
        self._pid, self._socket, self._ready, self.versions = other._pid, other._socket, other._ready, other.versions
        other._pid, other._socket = 0, None

    @property
    def exists(self) -> bool:
        """Whether there is a fork server; it may be importing."""
        return self._socket is not None

    def is_ready(self) -> bool:
        """Whether it takes requests now."""
        return self._socket is not None and self._is_ready(self._socket)

    @property
    def pid(self) -> int:
        """The fork server's pid, 0 when there is none."""
        return self._pid

    def __call__(self, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]] = ()) -> int:
        """Start the process of `role`, with `sockets` (name, fd) handed over; returns its pid."""
        if self._socket is not None and self._is_ready(self._socket):
            try:
                return self._request(self._socket, role, run_dir, sockets)
            except (ForkserverGone, OSError) as error:
                log.warning("fork server ended (%s): starting processes without it", error)
                self.close()
        pid = spawn.spawn(role, run_dir, sockets)
        self._replace(run_dir)
        return pid

    def _replace(self, run_dir: Path) -> None:
        """Spawn another fork server, if there is none."""
        now = time.monotonic()
        if self._socket is not None or now < self._not_before:
            return
        self._not_before = now + REPLACE_S
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, ExitStack() as unless_spawned:
                unless_spawned.callback(ours.close)
                self._pid = spawn.spawn(0, run_dir, [("supervisor", theirs.fileno())], forkserver.command_line)
                unless_spawned.pop_all()
        except OSError as error:
            log.warning("cannot start another fork server: %s", error)
            return
        self._socket, self._ready = ours, False

    def _is_ready(self, sock: socket.socket) -> bool:
        """Whether it takes requests without making the supervisor wait."""
        try:
            self._ready = self._ready or self._greeted(sock.recv(_GREETING, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        except OSError:
            self._ready = False
        if not self._ready:
            self.close()
        return self._ready

    def _greeted(self, greeting: bytes) -> bool:
        """Whether a replacement says that it is ready. Code of an earlier version sends no versions."""
        if not greeting.startswith(forkserver.READY):
            return False
        self.versions = json.loads(greeting[len(forkserver.READY) :] or b"{}")
        return True

    def _request(self, sock: socket.socket, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]]) -> int:
        request = {"role": role, "run_dir": str(run_dir), "names": [name for name, _ in sockets]}
        socket.send_fds(sock, [json.dumps(request).encode()], [fd for _, fd in sockets])
        answer = json.loads(self._answer(sock))
        if "pid" not in answer:
            raise ForkserverGone(answer["error"])
        return int(answer["pid"])

    def _answer(self, sock: socket.socket) -> bytes:
        sock.settimeout(LOOK_S)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and not _stopped(self._pid):
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                continue
            if not answer:
                raise ForkserverGone("it died")
            return answer
        raise ForkserverGone("it does not answer")

    def check(self) -> None:
        """After SIGCHLD: reap it when it is dead."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0

    def close(self) -> None:
        """Kill the fork server. It holds nothing: if it cannot be reaped, as under a debugger, it is abandoned."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # it may be stopped
            if not _reaped(self._pid, GONE_S):
                log.warning("fork server (pid %d) does not exit: abandoning it", self._pid)
            self._pid = 0


def become_subreaper() -> None:
    """From now on the processes that a fork server of this process forks become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reaped(pid: int, seconds: float) -> bool:
    """Whether a child has ended within a time."""
    deadline = time.monotonic() + seconds
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_STEP_S)
    return True


def _stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False
