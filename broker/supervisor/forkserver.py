"""The fork server itself: one thread, no lock, no shared memory, one socket; it imports, and forks on request.

It forks twice for each child. The intermediate process ends at once, so that the kernel gives the child to the
supervisor; only then does the fork server send the pid, and only then does the child begin. If any of the three is
killed half way, the child ends by itself or is a child of the supervisor with a known pid.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from odradek.broker.errors import FAILED, OK
from odradek.broker.process import entry, sd_notify
from odradek.broker.supervisor import forked_child, machine_limits, proctitle, spawn
from odradek.ipc import roles

TITLE = "odradek fork-server"
# The worker first: the table of APIs is the largest part, and the controller process, which loads it once it serves,
# then finds it loaded. That is a fifth of the CPU time of a start, and 10 MB. The last fork comes no later.
AHEAD = (roles.FIRST_WORKER, roles.CONTROLLER, roles.ACCEPTOR, roles.JANITOR, roles.COORDINATOR)
_GO = b"g"
READY = b"ready"


def command_line(_role: int, run_dir: Path) -> list[str]:
    """The command of a replacement. The run directory makes room for its children's titles."""
    return [sys.executable, "-m", "odradek.broker.supervisor.forkserver", "run", "--run-dir", str(run_dir)]


def run(sock: socket.socket, supervisor: int, ahead: Callable[[], None] = lambda: None) -> NoReturn:
    """Serve requests (see `forkserver_client`) until the supervisor is gone. Called right after the fork."""
    code = FAILED
    try:
        _settle(supervisor)
        ahead()
        _serve(sock, supervisor)
        code = OK
    except ConnectionError:  # the supervisor was killed with an answer unread
        code = OK
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # the stack above is the supervisor's


def replace() -> NoReturn:
    """After an exec: import everything, send READY and the versions of this code (process.versions), and serve.

    Code that cannot be imported ends it: `odradek upgrade` then replaces nothing.
    """
    supervisor = int(os.environ.pop(spawn.PARENT_VARIABLE))
    for name in sd_notify.listen_environment(["supervisor"]):
        os.environ.pop(name, None)
    sock = socket.socket(fileno=sd_notify.FIRST_FD)

    def ahead() -> None:
        for role in (*AHEAD, *_optional(Path(sys.argv[-1]))):
            entry.load(role)
        from odradek.broker.process import versions  # a start need not wait for it

        sock.send(READY + json.dumps(versions.here()).encode())

    run(sock, supervisor, ahead)


def _optional(run_dir: Path) -> list[int]:
    """The roles that only some brokers have. They are imported ahead, too: `odradek upgrade` forks them while clients
    and the supervisor wait."""
    from odradek.broker import config as configuration  # not before the fork of a start, which need not wait for it

    config = configuration.saved(run_dir)
    exporter = [roles.EXPORTER] if any(config.get(setting) for setting in configuration.EXPORTED) else []
    return [*exporter, *([roles.REPLICATOR] if config["zookeeper.connect"] else [])]


def _settle(supervisor: int) -> None:
    """Become a separate process. Without a command line of its own it would look like the supervisor."""
    spawn.die_with(supervisor)
    os.setpgid(0, 0)
    for number in spawn.RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])  # children unblock it once they have a handler
    for name in sd_notify.MANAGER:
        os.environ.pop(name, None)
    if not proctitle.set_title(TITLE):
        raise OSError("the command line cannot be changed")
    machine_limits.raise_open_files()
    gc.disable()  # nothing here is garbage, and a collection would touch pages that children share


def _serve(sock: socket.socket, supervisor: int) -> None:
    """Serve requests; import modules ahead while none waits, but what is loaded on demand."""
    ahead = [] if entry.on_demand() else list(AHEAD)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while True:
        if ahead and not poller.poll(0):
            _import(ahead.pop(0))
            continue
        request, fds, _, _ = socket.recv_fds(sock, 65536, 64)
        if not request:
            return
        _answer(sock, supervisor, json.loads(request), fds)
        for fd in fds:
            os.close(fd)


def _import(role: int) -> None:
    """Prints a failure; the process that needs the module reports it."""
    try:
        entry.load(role)
    except Exception:
        traceback.print_exc()


def _answer(sock: socket.socket, supervisor: int, request: dict[str, object], fds: list[int]) -> None:
    """Fork a child and send its pid; it begins when it is a child of the supervisor."""
    role = int(str(request["role"]))
    _import(role)
    gc.freeze()
    read_end, write_end = os.pipe()
    begun, begin = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child == 0:
            os.close(begin)
            _become(role, request, fds, supervisor, begun)
        os.write(write_end, b"%d" % child)
        os._exit(OK)
    os.close(write_end)
    os.close(begun)
    pid = os.read(read_end, 32)
    os.waitpid(between, 0)
    sock.send(json.dumps({"pid": int(pid)} if pid else {"error": "it cannot fork"}).encode())
    if pid:
        os.write(begin, _GO)
    os.close(read_end)
    os.close(begin)


def _become(role: int, request: dict[str, object], fds: list[int], supervisor: int, begun: int) -> NoReturn:
    """The child: wait until it may begin."""
    try:
        if os.read(begun, 1) == _GO:
            names = request["names"]
            assert isinstance(names, list)
            forked_child.become(role, Path(str(request["run_dir"])), names, fds, supervisor)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(FAILED)


if __name__ == "__main__":
    replace()
