"""The real units under a real systemd: install, start, kill, scale, stop; no acknowledged record is lost."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..faults.acknowledged import Load
from ..faults.failing import fail
from ..faults.power import SEAM
from ..faults.steady_clients import commits, connections
from ..harness.process import wait_until
from ..harness.wire import Wire
from .machine import HOME, PROCESSES, Machine

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
STORAGE_ERROR = 56
UNITS = [*(f"odradek-{name}.service" for name in PROCESSES), "odradek-worker@0.service", "odradek-worker@1.service"]


@pytest.fixture(autouse=True)
def settled(machine: Machine) -> None:
    """Start each test with the same processes, whatever the previous test left."""
    running = machine.pids()
    if sorted(unit for unit, pid in running.items() if pid) != sorted(UNITS):
        machine.run("systemctl", "stop", *(set(running) - set(UNITS) or ["odradek-worker@2"]))
        machine.systemctl("reset-failed")
        machine.systemctl("start", *UNITS, "odradek.target")


@pytest.mark.smoke
def test_all_processes_run_confined_and_not_as_root(machine: Machine) -> None:
    """`systemctl start` has returned, so every process has sent READY."""
    assert sorted(machine.pids()) == sorted(UNITS)
    for unit, pid in machine.pids().items():
        status = dict(line.split(":", 1) for line in _inside(machine, pid, "status").splitlines() if ":" in line)
        assert set(status["Uid"].split()) != {"0"}
        assert int(status["Seccomp"]) == 2 and int(status["CapBnd"], 16) == 0, unit
        assert machine.show(unit, "StatusText") == "running"


def _inside(machine: Machine, pid: int, name: str) -> str:
    return (machine.root / "proc" / str(pid) / name).read_text()


def test_each_killed_process_is_restarted_alone(machine: Machine) -> None:
    """No other process restarts, and the producer loses no record."""
    load = Load(machine)
    for unit in UNITS:
        load.await_more(100)
        before = machine.pids()
        machine.signal(unit, "KILL")
        machine.await_another(unit, before.pop(unit))
        after = machine.pids()
        assert after.pop(unit) and after == before
    load.await_more(100)
    load.verify()


def test_all_processes_restart_after_a_kill_at_once(machine: Machine) -> None:
    """Their shared memory remains, and the new processes use it."""
    load = Load(machine)
    load.await_more(100)
    before = machine.pids()
    machine.run("kill", "-KILL", *map(str, before.values()))
    for unit, pid in before.items():
        machine.await_another(unit, pid)
    load.await_more(100)
    load.verify()


def test_workers_scale_to_four_and_back_without_loss(machine: Machine) -> None:
    """`systemctl start` adds workers to the running broker; `stop` hands their connections to the others."""
    load = Load(machine)
    load.await_more(100)
    machine.systemctl("start", "odradek-worker@2", "odradek-worker@3")
    for number in (2, 3):  # the worker sends READY a moment earlier
        wait_until(lambda: f"worker-{number} accepts" in _log_of_acceptor(machine), 30)  # noqa: B023
    wires = [machine.wire() for _ in range(16)]
    assert all(wire.api_versions() for wire in wires)
    assert all(_connections(machine, number) for number in range(4)), "each worker has connections"
    others = {unit: pid for unit, pid in machine.pids().items() if unit in UNITS}
    machine.systemctl("stop", "odradek-worker@3", "odradek-worker@2")
    assert all(wire.api_versions() for wire in wires), "the same connections are still served"
    for wire in wires:
        wire.close()
    assert machine.pids() == others
    load.await_more(100)
    load.verify()


def test_upgrade_replaces_each_unit_and_clients_without_retries_see_no_error(machine: Machine) -> None:
    """Also the supervisor. The spare worker is gone at the end."""
    load = Load(machine, **{"enable.idempotence": False, "retries": 0})
    clients = [commits(machine, create_topic(machine)), connections(machine)]
    before = machine.pids()
    for client in clients:
        client.await_more()
    load.await_more(100)
    assert "all processes run the installed code" in machine.odradek("upgrade", "/etc/odradek/server.properties")
    machine.await_another("odradek-supervisor.service", before["odradek-supervisor.service"])
    for client in clients:
        client.await_more()
        client.finish()
    load.await_more(100)
    load.verify()
    after = machine.pids()
    assert sorted(after) == sorted(before) and not set(after.values()) & set(before.values())
    assert machine.state("odradek-worker@2.service") == "inactive"


def test_upgrade_to_code_that_cannot_be_imported_replaces_nothing(machine: Machine) -> None:
    before = machine.pids()
    (broken,) = (machine.root / str(HOME)[1:]).glob("lib/*/site-packages/odradek/broker/janitor/janitor.py")
    code = broken.read_text()
    broken.write_text("raise ImportError('half installed')\n" + code)
    try:
        said = machine.run(*machine.command("upgrade"), check=False)
    finally:
        broken.write_text(code)
    assert "the installed code cannot be imported" in said
    assert machine.pids() == before


def _log_of_acceptor(machine: Machine) -> str:
    return machine.run("journalctl", "--no-pager", "ODRADEK_PROCESS=acceptor")


def _connections(machine: Machine, number: int) -> int:
    def found() -> int:
        rows = json.loads(machine.odradek("status", "--json"))["processes"]
        return int(next(row["connections"] for row in rows if row["name"] == f"worker-{number}"))

    return int(wait_until(found, 60, fail=False) or 0)


def test_no_connection_is_refused_while_the_acceptor_restarts(machine: Machine) -> None:
    """Clients connect all the time, also while no acceptor runs; those that retry are answered."""
    ended, refused, answered = threading.Event(), [], []

    def connect() -> None:
        while not ended.is_set():
            try:
                with Wire(machine.bootstrap, 30) as wire:
                    answered.append(wire.api_versions())
            except ConnectionRefusedError as error:
                refused.append(error)
            except (OSError, EOFError):
                pass  # the acceptor died before it handed the connection over: the client retries

    client = threading.Thread(target=connect)
    client.start()
    try:
        for _ in range(3):
            machine.systemctl("restart", "odradek-acceptor")
            pid = machine.main_pid("odradek-acceptor")
            machine.signal("odradek-acceptor", "KILL")
            machine.await_another("odradek-acceptor.service", pid)
            wanted = len(answered) + 5
            wait_until(lambda: len(answered) >= wanted, 30, "clients are answered")  # noqa: B023
    finally:
        ended.set()
        client.join(60)
    assert not refused


def test_connection_starts_the_acceptor(machine: Machine) -> None:
    """systemd listens on the socket."""
    machine.systemctl("stop", "odradek-acceptor.service")
    with machine.wire(30) as wire:
        assert wire.api_versions()
    wait_until(lambda: machine.state("odradek-acceptor.service") == "active", 60, "the acceptor has sent READY")


def test_stopped_worker_is_replaced(machine: Machine) -> None:
    """The supervisor kills it before the watchdog does; no other process restarts."""
    before = machine.pids()
    pid = before.pop("odradek-worker@0.service")
    machine.signal("odradek-worker@0", "STOP")
    machine.await_another("odradek-worker@0.service", pid)
    after = machine.pids()
    assert after.pop("odradek-worker@0.service") and after == before
    said = lambda *unit: machine.run("journalctl", "--no-pager", *unit)  # noqa: E731
    killed = f"killed worker-0 (pid {pid}): stopped by a signal (odradek.stopped.kill.ms)"
    wait_until(lambda: killed in said("ODRADEK_PROCESS=supervisor"), 60, "the journal has the entry")
    assert "Watchdog timeout" not in said("--unit=odradek-worker@0")


def test_watchdog_replaces_a_hung_process(machine: Machine) -> None:
    """Without the supervisor, only the watchdog can detect it."""
    machine.systemctl("stop", "odradek-supervisor")
    drop_in = machine.root / "run/systemd/system/odradek-janitor.service.d/watchdog.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nWatchdogSec=8\nTimeoutAbortSec=1\n")  # longer than a busy machine stalls
    try:
        machine.systemctl("daemon-reload")
        machine.systemctl("restart", "odradek-janitor")
        pid = machine.main_pid("odradek-janitor")
        machine.run("sleep", "10")
        assert machine.main_pid("odradek-janitor") == pid, "the watchdog killed a working process"
        machine.signal("odradek-janitor", "STOP")
        machine.await_another("odradek-janitor.service", pid)
        said = lambda: machine.run("journalctl", "--unit=odradek-janitor", "--no-pager")  # noqa: E731
        wait_until(lambda: "Watchdog timeout" in said(), 60, "the journal has the entry")
    finally:
        drop_in.unlink()
        machine.systemctl("daemon-reload")
        machine.systemctl("restart", "odradek-janitor")
        machine.systemctl("start", "odradek-supervisor")


def test_journal_entries_have_fields(machine: Machine) -> None:
    """Each entry has its logger, its priority and its place in the code."""
    text = machine.run(
        "journalctl", "--output=json", "ODRADEK_PROCESS=acceptor", "LOGGER=odradek.broker.acceptor.acceptor"
    )
    entry = json.loads(text.splitlines()[0])
    assert entry["MESSAGE"].endswith("accepts connections") and entry["PRIORITY"] == "6"
    assert Path(entry["CODE_FILE"]).name == "acceptor.py"
    assert entry["_SYSTEMD_UNIT"] == "odradek-acceptor.service"


def test_commands_refer_to_systemctl(machine: Machine) -> None:
    assert "serving" in machine.odradek("status", "/etc/odradek/server.properties")
    assert "systemctl stop odradek.target" in machine.run(*machine.command("stop"), check=False)
    assert "systemctl start odradek-worker@2" in machine.run(*machine.command("scale", "--workers", "3"), check=False)
    machine.odradek("log-level", "broker.acceptor.acceptor", "DEBUG")
    with machine.wire() as wire:
        assert wire.api_versions()
    wait_until(
        lambda: "127.0.0.1" in machine.run("journalctl", "ODRADEK_PROCESS=acceptor"),
        60,
        "the new log level is in effect",
    )
    machine.odradek("log-level", "broker.acceptor.acceptor", "INFO")


def test_clean_stop_releases_all_and_the_next_start_has_all_records(machine: Machine) -> None:
    load = Load(machine)
    load.await_more()
    load.finish()
    machine.run("journalctl", "--rotate", "--vacuum-time=1s")
    machine.stop()
    wait_until(lambda: "memory" in _stopped(machine), 60, "the journal has the last entry")
    assert _stopped(machine) == ["acceptor", "worker@0", "coordinator", "controller", "supervisor", "memory"]
    assert {machine.state(unit) for unit in (*UNITS, "odradek.socket", "odradek-memory.service")} == {"inactive"}
    assert (machine.data_dir / ".kafka_cleanshutdown").exists(), machine.log
    assert not list((machine.root / "dev/shm").iterdir())
    assert not list((machine.root / "run/odradek").iterdir())
    assert "no faults" in machine.odradek("check", "/var/lib/odradek")
    machine.systemctl("start", "odradek.target")
    load.verify()


def _stopped(machine: Machine) -> list[str]:
    """The services in the order in which they ended, without those whose order does not matter."""
    said = machine.run("journalctl", "--output=cat", "--no-pager").splitlines()
    ended = [line.split()[1] for line in said if line.startswith("Stopped odradek-")]
    names = [unit.removeprefix("odradek-").removesuffix(".service") for unit in ended]
    return [name for name in names if name not in ("janitor", "worker@1", "offline.path")]


def test_restart_of_the_target_restarts_all_processes(machine: Machine) -> None:
    topic = create_topic(machine)
    before = machine.pids()
    machine.systemctl("restart", "odradek.target")
    assert not set(machine.pids().values()) & set(before.values())
    with machine.wire() as wire:
        assert produce(wire, topic, batch([b"x"])).error_code == 0


@pytest.mark.parametrize(
    "place", ["/home", *(pytest.param(place, marks=pytest.mark.long) for place in ("/tmp", "/var/tmp"))]
)
def test_programs_and_data_in_hidden_directories_are_usable(machine: Machine, place: str) -> None:
    """PrivateTmp= and ProtectHome= hide these directories and mode 700 closes them; the units bind them."""
    config = machine.root / "etc/odradek/server.properties"
    before = config.read_text()
    mine = Path(place, "mine")
    machine.run("mkdir", "-p", "-m", "700", str(mine))
    machine.run("cp", "-a", str(HOME), str(mine))
    try:
        config.write_text(before.replace("log.dirs=/var/lib/odradek", f"log.dirs={mine}/data"))
        _install_from(machine, mine / HOME.name)
        for unit, pid in machine.pids().items():
            assert _inside(machine, pid, "cmdline").startswith(f"{mine}/{HOME.name}/bin/python"), unit
        topic = create_topic(machine)
        with machine.wire() as wire:
            assert produce(wire, topic, batch([b"x"])).error_code == 0
        assert (machine.root / str(mine)[1:] / f"data/{topic}-0").is_dir()
    finally:
        config.write_text(before)
        _install_from(machine, HOME)
        machine.run("rm", "-r", str(mine))


def _install_from(machine: Machine, home: Path) -> None:
    machine.stop()
    machine.run(*machine.command("systemd", "install", home=home))
    machine.systemctl("start", "odradek.target")


def test_repeated_install_adds_a_worker_and_restarts_none(machine: Machine) -> None:
    """The configuration has one more worker, and the broker is running."""
    config = machine.root / "etc/odradek/server.properties"
    config.write_text(config.read_text().replace("odradek.workers=2", "odradek.workers=3"))
    before = machine.pids()
    machine.odradek("systemd", "install")
    machine.systemctl("start", "odradek.target")
    assert machine.state("odradek-worker@2.service") == "active"
    after = machine.pids()
    assert after.pop("odradek-worker@2.service") and after == before
    machine.systemctl("stop", "odradek-worker@2")


@pytest.mark.long
def test_no_record_is_lost_by_random_kills(machine: Machine) -> None:
    """Up to two processes die at a time; no record is lost, duplicated or out of order."""
    chance = random.Random(5)
    load = Load(machine)
    for _ in range(40):
        load.await_more(chance.choice((1, 20, 200)))
        victims = {unit: machine.main_pid(unit) for unit in chance.sample(UNITS, chance.choice((1, 1, 2)))}
        machine.run("kill", f"-{chance.choice(('KILL', 'KILL', 'STOP'))}", *map(str, victims.values()))
        for unit, pid in victims.items():
            machine.await_another(unit, pid)
    load.await_more(200)
    load.verify()


@pytest.mark.long
def test_broker_stops_when_its_last_log_directory_fails(machine: Machine) -> None:
    """As with `odradek start`: the stop is in order, without a clean-shutdown marker, and a start is possible again."""
    faults, seam = machine.root / "run/faults.json", machine.root / "opt/seam"
    shutil.copytree(SEAM, seam)
    environment = "[Service]\nEnvironment=PYTHONPATH=/opt/seam ODRADEK_TEST_FAULTS=/run/faults.json\n"
    drop_ins = [machine.drop_in(f"odradek-{name}.service", environment) for name in (*PROCESSES, "worker@", "memory")]
    machine.systemctl("restart", "odradek.target")
    load = Load(machine)
    load.await_more(100)
    load.finish()
    fail(faults, Path("/var/lib/odradek"), ["open", "pwritev", "fsync"])
    try:
        with machine.wire() as wire:
            assert produce(wire, load.topic, batch([b"x"])).error_code == STORAGE_ERROR
        wait_until(
            lambda: machine.state("odradek-offline.target") == "active", 60, "the supervisor has detected the failure"
        )
        wait_until(lambda: machine.state("odradek-memory.service") in ("inactive", "failed"), 120, "all is stopped")
        ended = {unit: machine.state(unit) for unit in (*UNITS, "odradek.target", "odradek-memory.service")}
        assert set(ended.values()) == {"inactive"}, machine.log
        assert not list((machine.root / "dev/shm").iterdir())
        assert not list((machine.root / "run/odradek").iterdir())
        assert not (machine.data_dir / ".kafka_cleanshutdown").exists()
    finally:
        faults.unlink()
        shutil.rmtree(seam)
        for drop_in in drop_ins:
            drop_in.unlink()
        machine.systemctl("daemon-reload")
    machine.systemctl("start", "odradek.target")
    assert machine.state("odradek-offline.target") == "inactive"
    load.verify()


def test_invalid_configuration_starts_no_process(machine: Machine) -> None:
    """One unit fails and logs the reason; the others do not start."""
    machine.stop()
    config = machine.root / "etc/odradek/server.properties"
    good = config.read_text()
    try:
        config.write_text(good + "num.partitions=several\n")
        machine.systemctl("start", "odradek.target", check=False)
        assert machine.state("odradek-memory.service") == "failed"
        assert {machine.state(unit) for unit in UNITS} <= {"inactive", "failed"}
        said = lambda: machine.run("journalctl", "--unit=odradek-memory", "--no-pager", "-n", "40")  # noqa: E731
        wait_until(lambda: "num.partitions" in said(), 60, "the journal has the entry")
    finally:
        config.write_text(good)
        machine.systemctl("reset-failed")
        machine.systemctl("start", "odradek.target")
