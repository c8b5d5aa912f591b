"""The fork server as the supervisor sees it: it has imported everything once, and forks the broker's processes.

Seven interpreters that import the same modules take most of a start's time and a good part of its memory. So `odradek
start` forks one process before it has threads, locks, sockets or shared memory (`forkserver`), and asks it for the
others. What it forks become children of the supervisor all the same (PR_SET_CHILD_SUBREAPER), to be waited for,
signalled by pid, and killed by the kernel with it.

Layout    : a SOCK_SEQPACKET pair. Request: JSON {"role", "run_dir", "names"}, with the sockets of `names` beside it;
            answer: {"pid": …} or {"error": …}.
Owner     : the supervisor.
Crash rule: without a fork server (killed, stopped, or never there) processes are spawned with exec, as by hand.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from odradek.broker import forkserver, spawn

log = logging.getLogger(__name__)

PATIENCE_S = 30.0  # it may be importing, on a busy machine
LOOK_S = 0.2
_PR_SET_CHILD_SUBREAPER = 36


class Gone(Exception):
    """The fork server cannot answer, now or later."""


class Nursery:
    """Starts processes: a `spawner` for the supervisor."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self._pid = pid
        self._socket: socket.socket | None = sock

    @classmethod
    def open(cls) -> Nursery:
        """Fork the fork server. The caller has one thread, and nothing that a child must not inherit."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            forkserver.run(theirs, parent)
        theirs.close()
        return cls(pid, ours)

    @property
    def pid(self) -> int:
        """The fork server's pid, 0 when there is none."""
        return self._pid

    def __call__(self, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]] = ()) -> int:
        """Start the process of `role`, with `sockets` (name, fd) handed over; returns its pid."""
        if self._socket is not None:
            try:
                return self._ask(self._socket, role, run_dir, sockets)
            except (Gone, OSError) as error:
                log.warning("no fork server any more (%s): starting processes without it", error)
                self.close()
        return spawn.spawn(role, run_dir, sockets)

    def _ask(self, sock: socket.socket, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]]) -> int:
        request = {"role": role, "run_dir": str(run_dir), "names": [name for name, _ in sockets]}
        socket.send_fds(sock, [json.dumps(request).encode()], [fd for _, fd in sockets])
        answer = json.loads(self._answer(sock))
        if "pid" not in answer:
            raise Gone(answer["error"])
        return int(answer["pid"])

    def _answer(self, sock: socket.socket) -> bytes:
        sock.settimeout(LOOK_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not _stopped(self._pid):
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                continue
            if not answer:
                raise Gone("it died")
            return answer
        raise Gone("it does not answer")

    def look(self) -> None:
        """After SIGCHLD: bury it when it is dead."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0

    def close(self) -> None:
        """End the fork server, for good."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # it holds nothing; and it may be stopped
            os.waitpid(self._pid, 0)
            self._pid = 0


def _stopped(pid: int) -> bool:
    """Whether somebody has sent it SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False
