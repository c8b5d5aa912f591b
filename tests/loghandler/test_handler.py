"""A log handler without a broker: a program that logs is neither held up nor deadlocked, and memory is bounded."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from odradek.loghandler.backlog import CLOSED, EXPIRED, NOT_FORMATTED, OVERHEAD_BYTES, QUEUE_FULL, Entry

from ..harness.process import refusing_socket, wait_until
from .conftest import Attach, Stderr, exit_code


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server to which clients can connect, and that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[str]:
    with refusing_socket() as closed:
        yield f"127.0.0.1:{closed.getsockname()[1]}"


@pytest.mark.parametrize("broker", ["silent", "refusing"])
def test_emit_does_not_wait_for_a_broker(broker: str, request: pytest.FixtureRequest, attach: Attach) -> None:
    """No record is ever acknowledged, so a call that waited for that would not return."""
    limits = {"queue.buffering.max.messages": 100, "linger.ms": 0}
    logger, handler = attach(request.getfixturevalue(broker), "logs", properties=limits)
    for number in range(5000):
        logger.info("record %d", number)
    assert handler.counters() == {"accepted": 100, "sent": 0, "waiting": 100, "dropped": 4900}
    assert not handler.flush(0.05)
    handler.close()
    assert handler.dropped() == {QUEUE_FULL: 4900, CLOSED: 100}


def test_threads_log_while_another_one_ends_logging(silent: str, attach: Attach) -> None:
    """`logging.shutdown` holds a handler's lock while it flushes it."""
    logger, handler = attach(silent, "logs", close_timeout=2)
    logger.info("first")
    ends = threading.Thread(target=logging.shutdown, args=([weakref.ref(handler)],))
    ends.start()
    wait_until(lambda: handler._sender._backlog._due_until, what="the flush begins")
    logger.info("second")
    assert ends.is_alive(), "it waits for a broker that does not answer"
    ends.join()
    assert handler.dropped() == {CLOSED: 2}


def test_flush_ends_when_records_are_too_old(refusing: str, attach: Attach) -> None:
    logger, handler = attach(refusing, "logs", properties={"delivery.timeout.ms": 300, "batch.size": 1})
    for number in range(3):
        logger.info("%d", number)
    assert handler.flush(60)
    assert handler.dropped() == {EXPIRED: 3}


def test_memory_of_waiting_records_is_bounded(silent: str, attach: Attach) -> None:
    logger, handler = attach(silent, "logs", properties={"buffer.memory": 100_000})
    handler.setFormatter(logging.Formatter())
    for _ in range(50):
        logger.info("x" * (10_000 - OVERHEAD_BYTES))
    assert handler.counters()["accepted"] == 10


def test_unreachable_broker_is_said_once_with_its_address(refusing: str, attach: Attach, stderr: Stderr) -> None:
    logger, handler = attach(refusing, "logs")
    logger.info("hello")
    line = stderr.wait_for("cannot send")
    assert line.startswith("odradek.logging: topic logs: cannot send: no broker responds; ")
    assert refusing in line and line.endswith("; 1 record waits")
    handler.close()
    assert stderr.text.count("cannot send") == 2
    assert stderr.text.splitlines()[-1].endswith("; 1 record dropped: 1 the handler was closed")


def test_drops_are_said_once_a_period(silent: str, attach: Attach, stderr: Stderr) -> None:
    logger, _ = attach(silent, "logs", properties={"queue.buffering.max.messages": 1, "request.timeout.ms": 50})
    for _ in range(1000):
        logger.info("hello")
    stderr.wait_for("dropped: ")
    stderr.wait_for("cannot send")
    for _ in range(1000):
        logger.info("hello")
    assert stderr.text.count("dropped: ") <= 2


@pytest.mark.parametrize("raises", [True, False])
def test_record_that_cannot_be_formatted_follows_raise_exceptions(
    raises: bool, refusing: str, attach: Attach, stderr: Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", raises)
    logger, handler = attach(refusing, "logs")
    logger.info("%d", "no number")
    stderr.wait_for("1 record dropped: 1 formatting raised an error")
    assert ("--- Logging error ---" in stderr.text) == raises
    assert handler.dropped() == {NOT_FORMATTED: 1}


def test_record_logged_while_another_is_formatted_is_kept(refusing: str, attach: Attach) -> None:
    logger, handler = attach(refusing, "logs")

    class Chatty:
        def __str__(self) -> str:
            logger.info("within")
            return "outside"

    logger.info("%s", Chatty())
    assert handler.counters()["accepted"] == 2


def test_signal_handler_that_logs_and_flushes_does_not_deadlock(refusing: str, attach: Attach) -> None:
    """The signal comes at any point of the thread's own call, also while it holds the queue's lock."""
    logger, handler = attach(refusing, "logs")
    handled, seen = 0, threading.Event()

    def on_signal(*_: object) -> None:
        nonlocal handled
        logger.info("signal")
        handler.flush(0.001)
        handled += 1
        seen.set()

    def send_signals() -> None:
        for _ in range(200):
            seen.clear()
            os.kill(os.getpid(), signal.SIGUSR1)
            seen.wait(60)

    former = signal.signal(signal.SIGUSR1, on_signal)
    thread, calls = threading.Thread(target=send_signals), 0
    thread.start()
    try:
        while thread.is_alive():
            logger.info("call")
            calls += 1
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, former)
    counters = handler.counters()
    assert handled == 200 and counters["accepted"] + counters["dropped"] == calls + handled


def test_record_logged_while_the_queues_counters_change_is_counted(refusing: str, attach: Attach) -> None:
    """By a signal handler or a finalizer, in the thread that holds the lock."""
    _, handler = attach(refusing, "logs", properties={"linger.ms": 60_000})
    sender, plain = handler._sender, Entry(b"within", None, (), 0, time.monotonic())

    class Interrupted(Entry):
        """Its size is read while the counters change."""

        @property
        def size(self) -> int:
            sender.offer(plain)
            return len(self.value)

    sender.offer(Interrupted(b"outside", None, (), 0, time.monotonic()))
    within = handler.counters()["accepted"] - 1
    assert within > 1
    expected = len(b"outside") + within * len(b"within") + (within + 1) * OVERHEAD_BYTES
    assert sender._backlog.memory == expected


def test_fork_while_a_thread_holds_the_lock_does_not_deadlock_the_child(refusing: str, attach: Attach) -> None:
    logger, handler = attach(refusing, "logs", properties={"linger.ms": 60_000})
    logger.info("of the parent")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with handler._sender._changed:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if not pid:
        logger.info("of the child")
        handler.flush(0)
        os._exit(handler.counters()["accepted"])
    release.set()
    thread.join()
    assert exit_code(pid) == 1
    assert handler.counters()["waiting"] == 1


def test_closed_handler_counts_what_is_logged_to_it(refusing: str, attach: Attach) -> None:
    logger, handler = attach(refusing, "logs")
    handler.close()
    handler.close()
    logger.info("late")
    assert handler.dropped() == {CLOSED: 1}


def test_handler_of_logging_config_is_replaced_by_the_next_one(refusing: str) -> None:
    import logging.config

    def config(topic: str) -> dict[str, object]:
        handler = {
            "class": "odradek.logging.KafkaHandler",
            "bootstrap_servers": refusing,
            "topic": topic,
            "formatter": "text",
            "level": "WARNING",
            "close_timeout": 0.1,
        }
        return {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"text": {"format": "%(levelname)s %(message)s"}},
            "handlers": {"kafka": handler},
            "loggers": {"configured": {"handlers": ["kafka"], "propagate": False}},
        }

    logger = logging.getLogger("configured")
    found = []
    for topic in ("one", "two"):
        logging.config.dictConfig(config(topic))
        (handler,) = logger.handlers
        logger.warning("hello")
        logger.info("too low")
        found.append(handler)
    assert [handler.counters()["accepted"] for handler in found] == [1, 1]  # type: ignore[attr-defined]
    assert found[0].dropped() == {CLOSED: 1}  # type: ignore[attr-defined]
    found[1].close()
    logger.removeHandler(found[1])
