"""The supervisor with real but trivial children (standin.py), so that its own behaviour shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek.broker import config as configuration
from odradek.broker.errors import FATAL_BOOT
from odradek.broker.process import control_bus
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.process import ROLE_LOCK
from odradek.broker.process.status import Observer
from odradek.ipc import roles
from odradek.ipc.locks import RoleLocks
from odradek.ipc.rundir import run_dir, shm_prefix
from odradek.storage.files import checkpoints

from ...harness.process import command_words, die_with_parent, family, living, shm_names, wait_dead, wait_until
from ...harness.tracer import traced

pytestmark = pytest.mark.live

HUNG = """
import json, pathlib, sys
import zmq
from odradek.broker.process import control_bus
folder = pathlib.Path(sys.argv[1])
heard = control_bus.events(folder, 100)
next(heard)
asking = zmq.Context.instance().socket(zmq.DEALER)
asking.connect(f"ipc://{folder}/control-supervisor.ipc")
for _ in range(5000):
    asking.send_multipart([b"", json.dumps({"command": "status"}).encode()])
print("asked", flush=True)
asking.poll()
input()
"""
STANDIN = Path(__file__).with_name("standin.py")
WITHOUT_ACCEPTOR = """
import sys
from odradek.broker.process import entry
from odradek.broker.supervisor import supervisor
def refuse(*_):
    raise OSError(24, "Too many open files")
entry.load_on_demand()
supervisor.HostedAcceptor = refuse
sys.path.insert(0, sys.argv[1])
import standin
standin.start(sys.argv[2], ["listeners=PLAINTEXT://127.0.0.1:0"])
"""
ROLES = ("acceptor", "coordinator", "controller", "janitor", "worker-0", "worker-1")


class Standin:
    """One supervised stand-in broker."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.out = folder / "out"
        self.run_dir = run_dir(self.data)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *overrides: str, wait: bool = True) -> Standin:
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", "odradek.workers=2", *overrides]
        with self.out.open("ab") as out:
            readies = self.text.count("READY ")  # of former starts; this one may be ready before the wait begins
            self.process = subprocess.Popen(
                [sys.executable, str(STANDIN), "start", str(self.data), *settings],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.data.parent,
                preexec_fn=die_with_parent,
            )
        if wait:
            wait_until(lambda: self.text.count("READY ") > readies or self._ended(), 120, "the broker is ready")
            assert not self._ended(), self.text
        return self

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    @property
    def text(self) -> str:
        return self.out.read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def family(self) -> list[psutil.Process]:
        return family(self.pid)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(60)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return control_bus.request(self.run_dir, "supervisor", command, 60_000, **arguments)

    def odradek(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "odradek.broker", *words, "--override", f"log.dirs={self.data}"],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def processes(self) -> dict[str, dict[str, Any]]:
        sample = Observer(configuration.saved(self.run_dir)).sample()
        return {row["name"]: row for row in sample.processes}

    def role_pid(self, name: str) -> int:
        for process in self.family()[1:]:
            words = command_words(process)
            if len(words) > 2 and words[2] == name:
                return process.pid
        return 0

    def shm(self) -> list[str]:
        return shm_names(shm_prefix(self.data))

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for name in self.shm():
            Path("/dev/shm", name).unlink(missing_ok=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Standin]:
    broker = Standin(tmp_path)
    yield broker
    broker.close()


@pytest.mark.smoke
def test_starts_all_roles_and_leaves_nothing(standin: Standin) -> None:
    standin.start()
    members = standin.family()
    rows = standin.processes()
    assert {name for name, row in rows.items() if row["state"] == "running"} == {"supervisor", *ROLES}
    assert standin.shm()
    assert standin.stop() == 0
    assert not wait_dead(members)
    assert not standin.shm()
    assert not standin.run_dir.exists()
    assert (standin.data / "finished").exists()


def test_stops_in_order(standin: Standin) -> None:
    standin.start().stop()
    order = (standin.data / "order").read_text().split()
    assert order[0] == "acceptor"
    assert sorted(order[1:3]) == ["worker-0", "worker-1"]
    assert order[3:] == ["coordinator", "janitor", "controller"]


def test_stop_command_waits_for_the_end(standin: Standin) -> None:
    standin.start()
    done = standin.odradek("stop")
    assert (done.returncode, done.stderr) == (0, "")
    assert standin.wait() == 0
    assert not standin.shm()
    again = standin.odradek("stop")
    assert again.returncode == 1
    assert "no broker is running" in again.stderr


def test_second_broker_on_the_directory_is_refused(standin: Standin) -> None:
    standin.start()
    before = {name: row["pid"] for name, row in standin.processes().items()}
    second = subprocess.run(
        [sys.executable, str(STANDIN), "start", str(standin.data), "listeners=PLAINTEXT://127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode != 0
    assert "a broker is running already" in second.stderr
    assert {name: row["pid"] for name, row in standin.processes().items()} == before
    assert standin.stop() == 0


@pytest.mark.parametrize("name", ROLES)
def test_a_killed_child_is_started_again(standin: Standin, name: str) -> None:
    standin.start()
    others = {other: standin.role_pid(other) for other in ROLES if other != name}
    killed = standin.role_pid(name)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: standin.role_pid(name) not in (0, killed), 60, f"{name} is restarted")
    row = lambda: standin.processes()[name]  # noqa: E731
    # Before the new process has written its row, the row is that of the killed one.
    wait_until(lambda: row()["state"] == "running" and row()["starts"] > 1, 60, f"{name} runs")
    assert row()["starts"] == 2
    assert {other: standin.role_pid(other) for other in others} == others
    assert standin.stop() == 0


def test_children_die_with_the_supervisor_and_the_next_start_replaces_all(
    standin: Standin, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_folder))  # or the start of another test's broker removes what is left
    standin.run_dir = short_folder / standin.run_dir.parent.name / standin.run_dir.name
    standin.start()
    members = standin.family()
    assert len(members) == 7
    os.kill(standin.pid, signal.SIGKILL)
    standin.wait()
    assert not wait_dead(members)
    left = standin.shm()
    assert left
    stray = Path("/dev/shm", f"{left[0].rsplit('-', 1)[0]}-stray")
    stray.write_bytes(b"left by an unknown process")
    standin.start()
    assert not stray.exists()
    assert standin.processes()["worker-0"]["starts"] == 1  # the memory must be new
    assert standin.stop() == 0
    assert not standin.shm()


def test_fatal_boot_error_of_a_child_stops_the_broker(standin: Standin) -> None:
    standin.data.mkdir()
    (standin.data / "janitor.exit").write_text(str(FATAL_BOOT))
    standin.start(wait=False)
    assert standin.wait() == FATAL_BOOT
    assert standin.text.count("started janitor") == 1
    assert not (standin.data / "finished").exists()
    assert not standin.shm()


def test_a_child_that_ran_before_cannot_stop_the_broker(standin: Standin) -> None:
    """A resource that it lacks now existed at the first start, so the others continue, and the child is restarted."""
    standin.start()
    others = {other: standin.role_pid(other) for other in ROLES if other != "janitor"}
    refused = standin.data / "janitor.exit"
    refused.write_text(str(FATAL_BOOT))
    os.kill(standin.role_pid("janitor"), signal.SIGKILL)
    wait_until(lambda: standin.text.count("exit code 3") >= 2, 60, "the janitor is restarted")
    refused.unlink()
    wait_until(lambda: standin.processes()["janitor"]["state"] == "running", 60, "the janitor runs")
    assert {other: standin.role_pid(other) for other in others} == others
    assert standin.stop() == 0


def test_a_child_that_never_lives_ends_the_boot(standin: Standin) -> None:
    standin.data.mkdir()
    (standin.data / "worker-1.exit").write_text("1")
    standin.start(wait=False)
    assert standin.wait() == 1
    assert standin.text.count("started worker-1") == 5


def test_terminated_while_it_boots(standin: Standin) -> None:
    standin.start(wait=False)
    wait_until(lambda: "started controller" in standin.text, 60)
    assert standin.stop() == 0
    assert not standin.shm()


def test_port_in_use(standin: Standin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        standin.start(f"listeners=PLAINTEXT://127.0.0.1:{port}", wait=False)
        assert standin.wait() != 0
    assert f"port {port} is in use" in standin.text
    assert not standin.shm()


def test_supervisor_that_cannot_be_the_acceptor_leaves_nothing(standin: Standin) -> None:
    command = [sys.executable, "-c", WITHOUT_ACCEPTOR, str(STANDIN.parent), str(standin.data)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode and "Too many open files" in ended.stderr
    assert not standin.shm() and not standin.run_dir.exists()


def test_several_listeners_and_free_ports(standin: Standin) -> None:
    standin.start(
        "listeners=PLAINTEXT://127.0.0.1:0,B://[::1]:0,C://0.0.0.0:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
    )
    found = configuration.saved(standin.run_dir)
    assert all(endpoint.port for endpoint in found.listeners)
    ready = next(line for line in standin.text.splitlines() if line.startswith("READY "))
    told = json.loads(standin.odradek("status", "--json").stdout)["listeners"]
    assert ready.split()[1:] == [str(endpoint) for endpoint in found.listeners] == told
    assert found.advertised[2].host == socket.gethostname()
    assert found.advertised[2].port == found.listeners[2].port
    for endpoint in found.listeners:
        socket.create_connection((endpoint.host, endpoint.port), 5).close()
    assert standin.stop() == 0


def test_scale_up_and_down(standin: Standin) -> None:
    standin.start()
    stays = standin.role_pid("worker-0")
    assert standin.odradek("scale", "--workers", "4").returncode == 0
    assert {f"worker-{i}" for i in range(4)} <= standin.processes().keys()
    assert standin.odradek("scale", "--workers", "1").returncode == 0
    states = {name: row["state"] for name, row in standin.processes().items() if name.startswith("worker")}
    assert states == {"worker-0": "running", "worker-1": "retired", "worker-2": "retired", "worker-3": "retired"}
    assert standin.role_pid("worker-0") == stays
    refused = standin.odradek("scale", "--workers", "65")
    assert refused.returncode == 2
    assert standin.stop() == 0


def test_log_level_of_every_process(standin: Standin) -> None:
    logs = standin.data.parent / "logs"
    standin.start(f"odradek.log.file={logs / 'o.log'}")
    assert (logs / "o-worker-0.log").exists()
    assert standin.odradek("log-level", "broker.supervisor.children", "DEBUG").returncode == 0
    assert json.loads((standin.run_dir / "log-levels.json").read_text()) == {
        "odradek.broker.supervisor.children": "DEBUG"
    }
    assert standin.odradek("log-level", "broker", "LOUD").returncode == 2
    assert len(living(standin.family())) == 7  # SIGUSR2 has killed no process
    assert standin.stop() == 0


def test_events_tell_of_a_death(standin: Standin) -> None:
    standin.start()
    heard = control_bus.events(standin.run_dir, 200)
    _await_subscribed(standin, heard)
    killed = standin.role_pid("janitor")
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 60
    found = None
    while (found is None or found["event"] == "scale") and time.monotonic() < deadline:
        found = next(heard)
    assert found is not None and (found["event"], found["process"], found["pid"]) == ("died", "janitor", killed)
    heard.close()
    assert standin.stop() == 0


def _await_subscribed(standin: Standin, heard: Iterator[dict[str, Any] | None]) -> None:
    """Events before the subscription are lost: publish harmless events until one arrives."""
    next(heard)

    def told() -> bool:
        standin.ask("scale", workers=2)  # the current number
        return next(heard) is not None

    wait_until(told, 60, "an event arrives")


def test_bad_commands_are_answered(standin: Standin) -> None:
    standin.start()
    with pytest.raises(control_bus.ControlError, match="not a command"):
        standin.ask("dance")
    with pytest.raises(control_bus.ControlError, match="workers must be"):
        standin.ask("scale", workers=0)
    with pytest.raises(control_bus.ControlError, match="TypeError"):
        standin.ask("scale", sheep=1)
    assert standin.ask("status")["workers"] == 2
    assert standin.stop() == 0


def test_interrupt_stops_too_and_a_hung_child_is_killed(standin: Standin) -> None:
    # The stopped child is not killed before the signal, however long that takes.
    standin.start("odradek.drain.timeout.ms=1000", "odradek.stopped.kill.ms=-1")
    os.kill(standin.role_pid("worker-1"), signal.SIGSTOP)
    assert standin.process is not None
    standin.process.send_signal(signal.SIGINT)
    assert standin.wait() == 0
    assert re.search(r"killed during shutdown: (worker-0, )?worker-1\n", standin.text)
    assert not standin.shm()


def test_stopped_child_does_not_delay_the_shutdown(standin: Standin) -> None:
    standin.start("odradek.drain.timeout.ms=600000")
    assert standin.process is not None
    for name in ("worker-0", "janitor"):
        os.kill(standin.role_pid(name), signal.SIGSTOP)
    standin.process.send_signal(signal.SIGTERM)
    assert standin.wait() == 0
    assert not standin.shm()


def test_a_child_in_a_debugger_does_not_hold_up_the_end(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is dead and has released everything, but cannot be reaped."""
    monkeypatch.setenv("STANDIN_TIMEOUT_S", "0.5")
    standin.start()
    assert standin.process is not None
    with traced(standin.role_pid("janitor")):
        standin.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "SIGTERM: stopping" in standin.text, 60)
        assert standin.stop() == 0  # by a second signal, without waiting for the stage's limit
    assert "cannot wait for janitor" in standin.text
    assert (standin.data / "finished").exists()
    assert not standin.shm()


def test_unkillable_child_does_not_delay_the_shutdown(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a process in disk sleep: here a foreign process holds the lock of its role."""
    monkeypatch.setenv("STANDIN_TIMEOUT_S", "0.5")
    standin.start()
    assert standin.process is not None
    locks = RoleLocks(standin.run_dir / ROLE_LOCK)
    assert locks.hold(roles.worker_role(9))
    standin.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "SIGTERM: stopping" in standin.text, 60)
    assert standin.stop() == 1
    assert "worker-9 does not exit after SIGKILL" in standin.text
    assert not (standin.data / "finished").exists(), "the stop was finished while a process may still write"
    locks.close()


def test_checkpoint_lock_does_not_delay_the_shutdown(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process should hold the lock after all have ended; the log directory gets no clean mark then."""
    monkeypatch.setenv("STANDIN_TIMEOUT_S", "0.5")
    standin.start()
    with CheckpointLocks(standin.run_dir).of(0):
        assert standin.stop() == 0
    assert not (standin.data / checkpoints.CLEAN_SHUTDOWN).exists()
    assert not standin.shm()


def test_hanging_peers_on_the_bus_do_not_delay_the_shutdown(standin: Standin) -> None:
    """One client does not read its response, another one does not read events."""
    standin.start()
    asking = subprocess.Popen([sys.executable, "-c", HUNG, str(standin.run_dir)], stdout=subprocess.PIPE)
    assert asking.stdout is not None
    assert asking.stdout.readline()
    os.kill(asking.pid, signal.SIGSTOP)
    for _ in range(50):
        standin.ask("scale", workers=2)
    assert standin.stop() == 0
    asking.kill()
    asking.wait()
    asking.stdout.close()
    assert not standin.shm()


def test_other_things_in_the_run_directory_are_left_alone(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = standin.data.parent / "mine"
    mine.mkdir()
    (mine / "letter").touch()
    (mine / "log-levels.json").write_text('{"odradek": "DEBUG"}')  # left by a killed run
    monkeypatch.setenv("ODRADEK_RUN_DIR", str(mine))
    standin.run_dir = mine
    standin.start()
    assert not (mine / "log-levels.json").exists()
    assert standin.stop() == 0
    assert [path.name for path in mine.iterdir()] == ["letter"]
    standin.run_dir = standin.data.parent / "none"


def test_a_process_started_by_hand_is_stopped_too(standin: Standin) -> None:
    standin.start()
    by_hand = subprocess.Popen(
        [sys.executable, str(STANDIN), "worker-7", str(standin.run_dir)], preexec_fn=die_with_parent
    )
    wait_until(lambda: standin.processes().get("worker-7", {}).get("state") == "running", 60)
    assert standin.stop() == 0
    assert by_hand.wait(60) == 0
    assert not standin.shm()
