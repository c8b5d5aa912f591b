"""Banner, limits, log levels, sd_notify, back-off, connection limits."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import config as configuration
from odradek.broker import logs
from odradek.broker.connection_limits import NAMES, UNLIMITED, ConnectionCounts, ConnectionLimits, ListenerLimits
from odradek.broker.journald import JournalHandler
from odradek.broker.process import sd_notify
from odradek.broker.supervisor import machine_limits, spawn
from odradek.broker.supervisor.banner import banner, ready_line
from odradek.broker.supervisor.children import (
    FIRST_DELAY_S,
    HEALTHY_S,
    LONGEST_DELAY_S,
    Backoff,
    Children,
    Death,
    is_fatal,
)
from odradek.cluster.configs.broker_configs import connection_overrides
from odradek.ipc import roles
from odradek.ipc.locks import RoleLocks
from odradek.ipc.processes import TABLE_WORDS, ProcessTable


def _config(listeners: str) -> configuration.BrokerConfig:
    return configuration.resolve(
        {"log.dirs": "/d", "listeners": listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}
    )


def test_banner_tells_where_and_how_safe() -> None:
    text = banner(_config("PLAINTEXT://127.0.0.1:9092"), 3, 0.5)
    assert "listening on  PLAINTEXT://127.0.0.1:9092" in text
    assert "3 workers" in text
    assert "without authentication, so only this machine can connect" in text
    assert text.count("--bootstrap-server localhost:9092") == 3
    assert len(text.splitlines()) < 20


def test_banner_warns_of_the_world() -> None:
    text = banner(_config("PLAINTEXT://127.0.0.1:9092,B://0.0.0.0:9093"), 1, 0.5)
    assert "WARNING: any client that reaches B://0.0.0.0:9093 can read and write everything" in text
    assert f"advertised as {socket.gethostname()}:9093" in text


def test_banner_writes_ipv6_in_brackets() -> None:
    assert "--bootstrap-server [::1]:9092" in banner(_config("PLAINTEXT://[::1]:9092"), 1, 0.5)


def test_ready_line() -> None:
    assert ready_line(_config("PLAINTEXT://127.0.0.1:1,B://[::1]:2")) == "READY PLAINTEXT://127.0.0.1:1 B://[::1]:2"


def test_open_files_are_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert machine_limits.raise_open_files() == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_shortages_name_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "WANTED_FILES", 1 << 40)
    monkeypatch.setattr(machine_limits, "WANTED_SHM", 1 << 60)
    files, shm = machine_limits.shortages()
    assert "ulimit -n 65536" in files and "\n" not in files
    assert "remount,size=" in shm and "\n" not in shm


def test_missing_shm_is_named(tmp_path: Path) -> None:
    assert machine_limits.shm_free(str(tmp_path / "none")) == -1


@pytest.mark.parametrize(
    ("name", "number"),
    [("debug", 10), ("INFO", 20), ("warn", 30), ("WARNING", 30), ("fatal", 50), ("OFF", 50)],
)
def test_level_names(name: str, number: int) -> None:
    assert logs.level_number(name) == number


def test_bad_level() -> None:
    with pytest.raises(logs.LevelError, match="the levels are DEBUG"):
        logs.level_number("loud")


@pytest.mark.parametrize(
    ("module", "name"),
    [("root", "odradek"), ("workers.net.loop", "odradek.workers.net.loop"), ("odradek.storage", "odradek.storage")],
)
def test_logger_names(module: str, name: str) -> None:
    assert logs.logger_name(module) == name


@pytest.mark.parametrize(
    ("logger", "exists"),
    [
        ("odradek", True),
        ("odradek.storage", True),
        ("odradek.workers.net.loop", True),
        ("odradek.broker.__main__", True),
        ("odradek.broker.__main__.x", False),
        ("odradek.loadtest.locustfile.x", False),
        ("odradek.__pycache__", False),
        ("odradek.", False),
        ("odradek.\0", False),
        ("odradek./etc", False),
        ("odradek." + "a" * 30_000, False),
        ("os", False),
        ("", False),
    ],
)
def test_a_logger_is_looked_for_without_running_anything(logger: str, exists: bool) -> None:
    before = set(sys.modules)
    assert logs.exists(logger) == exists
    assert set(sys.modules) == before


def test_levels_from_config_and_later_changes(tmp_path: Path) -> None:
    config = {"odradek.log.level": "WARNING", "odradek.log.levels": "test_a=DEBUG,test_b=ERROR"}
    logs.change_levels(tmp_path, {"test_b": "INFO", "test_c": None})
    before = logging.getLogger("odradek").level
    try:
        logs._apply_all(config, tmp_path)
        levels = [logging.getLogger(f"odradek{name}").level for name in ("", ".test_a", ".test_b")]
    finally:
        logging.getLogger("odradek").setLevel(before)
    assert levels == [logging.WARNING, logging.DEBUG, logging.INFO]


@pytest.mark.parametrize("text", ["x", "x=loud"])
def test_bad_levels(text: str) -> None:
    with pytest.raises(logs.LevelError):
        logs.parse_levels(text)


def test_each_role_has_its_log_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "odradek.log"
    assert logs.file_of("supervisor", path) == path
    assert logs.file_of("worker-3", path).name == "odradek-worker-3.log"


@pytest.mark.live
def test_a_process_that_cannot_be_started_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may be out of processes, memory or descriptors temporarily."""
    refused = [BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))]

    def start(role: int) -> int:
        if role == roles.CONTROLLER and refused:
            raise refused.pop()
        return spawn.spawn(role, tmp_path, command_of=lambda *_: ["/bin/true"])

    table = ProcessTable(memoryview(bytearray(8 * TABLE_WORDS)).cast("q"), 0)
    children = Children(RoleLocks(tmp_path / "roles.lock"), table, start)
    children.desired = {roles.CONTROLLER, roles.ACCEPTOR}
    assert children.start_missing() == [roles.ACCEPTOR]
    assert children.start_missing() == []
    later = time.monotonic() + LONGEST_DELAY_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert children.start_missing() == [roles.CONTROLLER]
    for role in children.desired:
        os.waitpid(children.pid(role), 0)


def test_no_client_begins_a_line_where_the_journal_is_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    handler = JournalHandler("worker-0", str(tmp_path / "none"))
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "from %s", ("me\n<0>all is lost",), None))
    handler.close()
    assert capsys.readouterr().err == "<6>worker-0 x: from me\n  <0>all is lost\n"


def test_no_client_begins_a_line_of_the_log(tmp_path: Path) -> None:
    """Client ids, group ids and transactional ids may contain line breaks and terminal control characters."""
    forged = "2026-01-01 00:00:00,000 CRITICAL janitor odradek.broker: all is lost"
    nasty = f"me\n{forged}\r{forged}\x1b[2J\x85{forged}\u2028{forged}"
    record = logging.LogRecord("odradek.x", logging.INFO, "", 0, "from %s: done", (nasty,), None)
    formatted = logs.LineFormatter("%(name)s: %(message)s").format(record)
    assert formatted.isprintable()
    assert "\\n" + forged in formatted
    try:
        raise ValueError(nasty)
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *trace = logs.LineFormatter("%(name)s: %(message)s").format(record).splitlines()
    assert first == formatted
    assert len(trace) > 2
    assert all(line.startswith("  ") for line in trace)


@pytest.mark.parametrize("formatter", [logs.LineFormatter, logs.TruncatingFormatter])
def test_a_name_of_many_characters_makes_no_long_line(formatter: type[logs.TruncatingFormatter]) -> None:
    """The text before and after the name stays."""
    name = "x" * 32_767
    record = logging.LogRecord("odradek.x", logging.INFO, "", 0, "group %s: %s left: done", (name, name), None)
    formatted = formatter("%(name)s: %(message)s").format(record)
    assert formatted.startswith("odradek.x: group xxx")
    assert formatted.endswith("xxx left: done")
    assert len(formatted) < logs.LONGEST + 100
    try:
        raise KeyError(name)
    except KeyError:
        record.exc_info = sys.exc_info()
    lines = formatter("%(name)s: %(message)s").format(record).splitlines()
    assert lines[-1].strip().startswith("KeyError: 'xxx")
    assert all(len(line) < logs.LONGEST + 100 for line in lines)
    assert logs.cut("y" * logs.LONGEST) == "y" * logs.LONGEST


def test_sockets_by_environment() -> None:
    environment = sd_notify.listen_environment(["A", "B"])
    first = os.open("/dev/null", os.O_RDONLY)
    os.close(first)
    assert environment == {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "A:B"}
    assert sd_notify.inherited({}) == []
    assert sd_notify.inherited({**environment, "LISTEN_PID": "1"}) == []


def test_notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sd_notify.notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert sd_notify.notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_backoff_grows_and_forgets() -> None:
    backoff = Backoff()
    waits = [backoff.died(0.1, served=False) for _ in range(10)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_DELAY_S <= 1
    assert backoff.died(HEALTHY_S, served=False) == 0


def test_backoff_of_a_process_that_is_killed_repeatedly() -> None:
    """Clients of such a process wait only briefly, but its restarts are bounded."""
    backoff = Backoff()
    assert [backoff.died(0.3, served=True) for _ in range(4)] == [0, FIRST_DELAY_S, FIRST_DELAY_S, FIRST_DELAY_S]
    for _ in range(10):
        backoff.died(0.1, served=False)
    assert backoff.died(0.3, served=True) == FIRST_DELAY_S, "a process that serves again resets the delay"


def test_deaths_in_words() -> None:
    assert Death(1, 2, -9).reason == "signal SIGKILL"
    assert Death(1, 2, 3).reason == "exit code 3"
    assert is_fatal(Death(1, 2, 3)) and not is_fatal(Death(1, 2, 1))


def test_overrides_by_host() -> None:
    assert connection_overrides("a:1, [::1]:2") == {"a": 1, "::1": 2}
    with pytest.raises(ValueError, match="host:number"):
        connection_overrides("a")


def test_override_for_an_address_in_any_notation() -> None:
    """Kafka compares InetAddresses."""
    limits = ConnectionLimits.of({"max.connections.per.ip.overrides": "[2001:DB8:0:0::1]:2,::ffff:10.0.0.1:3,h:4"}.get)
    assert limits.overrides == {"2001:db8::1": 2, "10.0.0.1": 3, "h": 4}


def test_connections_by_host() -> None:
    counts = ConnectionCounts(ConnectionLimits(per_host=1, overrides={"b": 2}), 0)
    for host in ("a", "b"):
        assert not counts.refuses(host)
        counts.opened(host)
    assert counts.refuses("a") and not counts.refuses("b")
    counts.closed("a")
    assert not counts.refuses("a")


def test_all_connections() -> None:
    counts = ConnectionCounts(ConnectionLimits(total=1), 0)
    assert counts.wait(0) == 0
    counts.opened("a")
    assert counts.wait(0) == -1
    counts.closed("a")
    assert counts.wait(0) == 0
    assert not counts.hosts


def test_a_listener_has_bounds_of_its_own() -> None:
    prefix = "listener.name.in."
    own = {prefix + "max.connections": 2, prefix + "max.connection.creation.rate": 3}
    limits = ConnectionLimits.of({**dict.fromkeys(NAMES, UNLIMITED), NAMES[2]: "", **own}.get, ["IN", "OUT"])
    assert limits.listeners == {"IN": ListenerLimits(2, 3), "OUT": ListenerLimits()}
    counts = ConnectionCounts(limits, 0)
    for _ in range(2):
        assert counts.wait(0, "IN") == 0
        counts.accepted("IN")
        counts.opened("a", "IN")
    assert counts.wait(0, "IN") == -1 and counts.wait(0, "OUT") == 0
    counts.closed("a", "IN")
    counts.accepted("IN")
    assert counts.wait(0, "IN") > 0, "the creation rate of three per second does not limit"
    assert counts.wait(0.5, "IN") == 0


def test_a_listener_that_is_added_later_has_its_creation_rate() -> None:
    counts = ConnectionCounts(ConnectionLimits(), 0)
    counts.limits = ConnectionLimits(listeners={"IN": ListenerLimits(rate=1)})
    assert counts.wait(0, "IN") == 0
    counts.accepted("IN")
    assert counts.wait(0, "IN") > 0


def test_the_brokers_own_listener_is_spared() -> None:
    """Only if there is another listener, as in Kafka."""
    values = {"max.connections": 1, "max.connections.per.ip": UNLIMITED, "max.connection.creation.rate": 1}
    for names, wait in ((["IN", "OUT"], 0), (["IN"], -1)):
        counts = ConnectionCounts(ConnectionLimits.of(values.get, names, "IN"), 0)
        counts.accepted("OUT")
        counts.opened("a", "OUT")
        assert counts.wait(0, "IN") == wait
        assert counts.wait(0, "OUT") == -1


@given(st.integers(1, 100), st.integers(1, 20))
def test_creation_rate(rate: int, seconds: int) -> None:
    """After the first second's burst, connections do not exceed the rate."""
    counts = ConnectionCounts(ConnectionLimits(rate=rate), 0)
    now, came = 0.0, 0
    while now < seconds:
        wait = counts.wait(now)
        if wait:
            now += wait + 1e-9
            continue
        counts.accepted()
        came += 1
    assert came <= rate * (seconds + 1) + 1
    assert came >= rate * seconds - 1
