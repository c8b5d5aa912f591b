"""Messages between a process and its service manager, over real sockets: timeouts, watchdog, journal fields."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker import journald
from odradek.broker.errors import BootError
from odradek.broker.journald import JournalHandler
from odradek.broker.listeners import Endpoint
from odradek.broker.process import sd_notify, sockets, start_timeout
from odradek.broker.process.sd_notify import Watchdog
from odradek.broker.process.start_timeout import TimeoutExtension


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket at NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


WORKING = """
import sys, threading
from odradek.broker.process import start_timeout

start_timeout.LOOK_S = 0.05
work, looks, goal, looked = start_timeout._work, [0.0], [0], threading.Event()

def look():
    looks.append(work())
    if len(looks) == goal[0]:
        looked.set()
    return looks[-1]

start_timeout._work = look
start_timeout.TimeoutExtension().begin(lambda: "recovering: 7 %")
hung = threading.Event()
busy = threading.Thread(target=lambda: [sum(range(20_000)) for _ in iter(hung.is_set, True)])
busy.start()
for line in sys.stdin:
    hung.set()
    busy.join()
    looked.clear()
    goal[0] = len(looks) + 10
    looked.wait()
    print("looked", flush=True)
"""  # a process of its own: it is the CPU time of all threads that counts, and those of other tests may live on. The
# main thread sleeps through the ten checks: on a slow machine as many wakes are work enough for a second request.


@pytest.mark.live
@pytest.mark.smoke
def test_more_time_is_requested_during_work(manager: socket.socket) -> None:
    """A process that uses CPU time gets more time; a process that hangs does not."""
    manager.settimeout(60)
    with subprocess.Popen([sys.executable, "-c", WORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def await_looks() -> list[bytes]:
            """Messages until ten more checks have run; the main thread uses no CPU time meanwhile."""
            assert process.stdin and process.stdout
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"looked\n"
            return drained(manager)

        asked = [manager.recv(4096) for _ in range(3)]
        await_looks()  # requests from before the hang
        hung = await_looks()
        process.communicate(timeout=60)
    assert asked[-1] == b"STATUS=recovering: 7 %\nEXTEND_TIMEOUT_USEC=30000000"
    assert len(hung) <= 1, "at most one request, for the main thread's own work"


def drained(manager: socket.socket) -> list[bytes]:
    """The messages that the manager has received so far."""
    found = []
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(manager.recv(4096))
    return found


def test_nothing_is_said_after_the_end(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the last status would be `starting`."""
    monkeypatch.setattr(start_timeout, "LOOK_S", 0.0)
    looking, ended = threading.Event(), threading.Event()

    def status() -> str:
        looking.set()
        assert ended.wait(60)
        return "starting"

    one = TimeoutExtension()
    one.begin(status)
    assert looking.wait(60)
    one.end()
    ended.set()
    for thread in threading.enumerate():
        if thread.name == "timeout-extension":
            thread.join(60)
    assert not drained(manager)


def test_service_manager_that_does_not_read_blocks_no_process(manager: socket.socket) -> None:
    """Its queue is full, as if it was stopped."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling:
        filling.setblocking(False)
        with pytest.raises(BlockingIOError):
            while filling.sendto(b"STATUS=", os.environ["NOTIFY_SOCKET"]):
                pass
    assert not sd_notify.notify("STOPPING=1")
    Watchdog({"WATCHDOG_USEC": "4000000"}).beat()


def test_process_without_descriptors_survives_its_watchdog_message(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", none_left)
        assert not sd_notify.notify("STATUS=running")
        Watchdog({"WATCHDOG_USEC": "4000000"}).beat()
    assert sd_notify.notify("STATUS=running")


def test_watchdog_of_another_process_is_ignored() -> None:
    assert not Watchdog({}).watched
    assert not Watchdog({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watched, "meant for another process"


def test_a_watchdog_is_fed_in_time(manager: socket.socket) -> None:
    watchdog = Watchdog({"WATCHDOG_USEC": "4000000000", "WATCHDOG_PID": str(os.getpid())})
    for _ in range(100):
        watchdog.beat()
    assert manager.recv(4096) == b"WATCHDOG=1"
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    """The daemon at the journal's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(10)
        yield listening


def record(message: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("odradek.storage.x", level, "/x/y.py", 7, message, (), None, "f")


def test_records_are_fields(daemon: socket.socket, tmp_path: Path) -> None:
    handler = JournalHandler("worker-3", str(tmp_path / "journal"))
    handler.emit(record("one line"))
    fields = dict(line.split("=", 1) for line in daemon.recv(65536).decode().splitlines())
    assert fields["MESSAGE"] == "one line" and fields["PRIORITY"] == "4"
    assert fields["ODRADEK_PROCESS"] == "worker-3" and fields["LOGGER"] == "odradek.storage.x"
    assert (fields["CODE_FILE"], fields["CODE_LINE"], fields["CODE_FUNC"]) == ("/x/y.py", "7", "f")
    handler.emit(record("two\nlines"))
    assert b"MESSAGE\n" + struct.pack("<Q", 9) + b"two\nlines\n" in daemon.recv(65536)
    handler.close()


def test_a_large_record_goes_as_a_file(daemon: socket.socket, tmp_path: Path) -> None:
    handler = JournalHandler("worker-3", str(tmp_path / "journal"))
    handler.emit(record("x" * 20_000_000))
    _, fds, _, _ = socket.recv_fds(daemon, 16, 1)
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        assert b"MESSAGE=" + b"x" * 20_000_000 + b"\n" in file.read()
    handler.close()


def test_without_a_journal_it_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = JournalHandler("worker-3", str(tmp_path / "nothing"))
    handler.emit(record("lost?", logging.ERROR))
    assert capsys.readouterr().err == "<3>worker-3 odradek.storage.x: lost?\n"
    handler.close()


def test_stderr_is_the_journal_only_when_it_says_so() -> None:
    assert not journald.is_stderr({})
    assert not journald.is_stderr({"JOURNAL_STREAM": "1:2"})


def test_sockets_find_their_listeners() -> None:
    """By name from the supervisor, by address from systemd."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        endpoints = [Endpoint("A", "127.0.0.1", one.getsockname()[1]), Endpoint("B", "", two.getsockname()[1])]
        assert sockets.by_listener([("A", one), ("B", two)], endpoints) == {"A": one, "B": two}
        assert sockets.by_listener([("odradek.socket", two), ("odradek.socket", one)], endpoints) == {
            "A": one,
            "B": two,
        }
        with pytest.raises(BootError, match="no socket was passed for B://"):
            sockets.by_listener([("odradek.socket", one)], endpoints)
        with pytest.raises(BootError, match="but no listener has this port"):
            sockets.by_listener([("odradek.socket", one)], endpoints[1:])


@pytest.mark.live
def test_the_first_unit_waits_for_zookeeper_and_says_so(manager: socket.socket, tmp_path: Path) -> None:
    """All other units require it, and systemd does not retry units whose requirement has failed."""
    manager.settimeout(60)
    properties = tmp_path / "server.properties"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "log.dirs": tmp_path / "data",
            "zookeeper.connect": f"127.0.0.1:{silent.getsockname()[1]}",
            "zookeeper.connection.timeout.ms": 200,
            "zookeeper.session.timeout.ms": 1000,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = ["systemd", "prepare", str(properties), "--run-dir", str(tmp_path / "run")]
        with subprocess.Popen([sys.executable, "-m", "odradek.broker", *words]) as waiting:
            try:
                said = [manager.recv(4096).decode().splitlines() for _ in range(4)]
                assert waiting.poll() is None
            finally:
                waiting.terminate()
    assert [line.partition(":")[0] for line, _ in said[1:]] == ["STATUS=waiting for ZooKeeper"] * 3
    assert all(int(more.removeprefix("EXTEND_TIMEOUT_USEC=")) >= 60_000_000 for _, more in said)
