"""The broker for `make locust`: this tree's, all defaults but one, on a free port, with its data in a folder."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 60
# By default a new group waits three seconds for members, and again for each new one: in a run of a minute that would
# be most of the end-to-end latency.
SETTINGS = ["group.initial.rebalance.delay.ms=0"]
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class BrokerError(Exception):
    """The broker did not start, or failed at its end; the message has the end of its log."""


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """A broker that runs during the block; yields its `host:port`."""
    folder.mkdir(parents=True)
    bootstrap = f"127.0.0.1:{free_port()}"
    process = _start(folder, bootstrap)
    try:
        _await_answer(process, bootstrap, folder)
        yield bootstrap
    finally:
        _stop(process, folder)


def _start(folder: Path, bootstrap: str) -> subprocess.Popen[bytes]:
    settings = [f"listeners=PLAINTEXT://{bootstrap}", f"log.dirs={folder / 'data'}", *SETTINGS]
    overrides = [word for setting in settings for word in ("--override", setting)]
    command = [sys.executable, "-m", "odradek.broker", "start", *overrides]
    # A separate session: Ctrl-C ends locust, but the comparison still needs the broker.
    with (folder / "broker.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip


def die_with_parent() -> None:
    """A `preexec_fn`: the kernel kills the child when the thread that started it ends, for any reason."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await_answer(process: subprocess.Popen[bytes], bootstrap: str, folder: Path) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    for _ in range(START_SECONDS):
        with contextlib.suppress(KafkaException):
            client.list_topics(timeout=1)
            return
        if process.poll() is not None:
            break
    raise BrokerError(f"the broker does not respond; {_log(folder)}")


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    try:
        status = process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # its children die with it
        process.wait()
        raise BrokerError(f"the broker did not stop within {STOP_SECONDS} s; {_log(folder)}") from None
    if status:
        raise BrokerError(f"the broker ended with exit code {status}; {_log(folder)}")


def _log(folder: Path) -> str:
    return f"its data and log are in {folder}\n" + (folder / "broker.log").read_text(errors="replace")[-2000:]
