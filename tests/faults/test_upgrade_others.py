"""`odradek upgrade` and the processes beside the workers: replaced one by one, or the former ones go on."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from odradek.broker.process import control_bus
from odradek.broker.rolling.helper_roll import HelperPhase
from odradek.broker.rolling.roll import Phase
from odradek.ipc import region
from odradek.ipc.rundir import run_dir

from ..clients.admin import create_topic
from ..clients.transactions import read
from ..harness.broker import Broker
from ..harness.process import command_words, free_port, wait_until
from .acknowledged import Load
from .installed_code import environment
from .steady_clients import SteadyClient, commits, connections, creations, transactions
from .test_upgrade import findings, state, status, upgrade

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

OTHERS = ("janitor", "exporter", "acceptor", "coordinator", "controller")
UP_TO_DATE = "all processes but the supervisor run the installed code"


class Installed(NamedTuple):
    """A broker, and the file with changes of the code that it finds when it is upgraded."""

    broker: Broker
    changes: Path


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("others")
    broker = Broker(folder, **{"odradek_metrics_listener": f"127.0.0.1:{free_port()}"})
    broker.env |= environment(folder / "changes.py")
    try:
        broker.start()
        yield Installed(broker, folder / "changes.py")
    finally:
        broker.close()


@pytest.fixture
def installed(module_broker: Installed) -> Iterator[Installed]:
    yield module_broker
    module_broker.changes.unlink(missing_ok=True)


def pids(broker: Broker) -> dict[str, list[int]]:
    return {role: broker.pids(role) for role in ("worker", *OTHERS)}


def steady(broker: Broker) -> list[SteadyClient]:
    """Some commits are under way at any time."""
    committing = [commits(broker, create_topic(broker, "committed")) for _ in range(3)]
    found = [*committing, creations(broker), connections(broker)]
    for one in found:
        one.await_more()
    return found


def finish(clients: list[SteadyClient]) -> None:
    for one in clients:
        one.await_more()
        one.finish()
    print("the longest call in ms:", [(one.name, round(one.longest * 1000)) for one in clients])


def test_all_but_the_supervisor_are_replaced_and_no_client_gets_an_error(installed: Installed) -> None:
    """Commits need the coordinator, new topics the controller, new connections the acceptor; none is tried again."""
    broker = installed.broker
    clients, load = steady(broker), Load(broker, **{"enable.idempotence": False, "retries": 0})
    decided = create_topic(broker, "decided")
    committed = transactions(broker, decided)
    committed.await_more()
    before, supervisor = pids(broker), broker.pids("supervisor")
    load.await_more()
    assert UP_TO_DATE in upgrade(broker)
    after = pids(broker)
    assert all(len(after[role]) == len(before[role]) for role in before)
    assert not {*itertools.chain(*after.values())} & {*itertools.chain(*before.values())}
    assert broker.pids("supervisor") == supervisor
    finish([*clients, committed])
    assert read(broker, decided, "read_committed") == [b"%d" % number for number in range(committed.count)]
    load.verify()
    assert findings(broker) == []
    states = {row["name"]: row["state"] for row in status(broker)["processes"]}
    assert states["worker-2"] == "retired" and "dead" not in states.values(), "the spare number"
    shown = broker.command("status", str(broker.properties_file)).stdout
    assert "worker-1" in shown and "worker-2" not in shown


def scale(broker: Broker, workers: int) -> None:
    done = broker.command("scale", str(broker.properties_file), "--workers", str(workers))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(broker.pids("worker")) == workers, 60, f"{workers} workers run")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "from odradek.ipc import region; region.LAYOUT = 99",
            f"the layout of shared memory is {region.LAYOUT} here and 99",
        ),
        (
            "from odradek.broker.process import versions; versions.MESSAGES = 99",
            "messages between processes is 1 here and 99",
        ),
        ("import sys; sys.modules['odradek.broker.janitor.janitor'] = None", "the installed code cannot be imported"),
    ],
    ids=["layout", "messages", "import"],
)
def test_code_that_does_not_fit_replaces_nothing(installed: Installed, change: str, said: str) -> None:
    broker = installed.broker
    before = pids(broker)
    installed.changes.write_text(change)
    text = upgrade(broker, expected=1)
    assert said in text and text.count("\n") == 1
    assert pids(broker) == before


def test_coordinator_that_ends_at_once_gives_its_place_back_to_the_former_code(installed: Installed) -> None:
    """What was replaced before stays; the next upgrade replaces all."""
    broker = installed.broker
    clients, before = steady(broker), pids(broker)
    installed.changes.write_text("from odradek.broker.coordinator import coordinator; coordinator.main = None")
    text = upgrade(broker, expected=1)
    assert "the new coordinator has ended" in text and text.count("\n") == 1
    wait_until(lambda: broker.pids("coordinator"), 60, "the coordinator runs")
    after = pids(broker)
    assert after["controller"] == before["controller"] and after["acceptor"] != before["acceptor"]
    finish(clients)
    installed.changes.unlink()
    assert UP_TO_DATE in upgrade(broker)


@pytest.mark.long
def test_upgrade_right_after_scale_waits_for_the_workers_that_retire(installed: Installed) -> None:
    """A worker that ends must not be taken for the new one of its number. The one that retires is stopped meanwhile."""
    broker = installed.broker
    folder = run_dir(broker.data_dir)
    scale(broker, 3)
    retiring = psutil.Process(broker.pids("worker")[2])
    retiring.suspend()
    control_bus.request(folder, "supervisor", "scale", workers=2)
    control_bus.request(folder, "supervisor", "upgrade")
    with suppress(psutil.NoSuchProcess):
        retiring.resume()
    wait_until(lambda: not state(broker)["active"], 240, "the upgrade has ended")
    assert state(broker)["error"] == "" and len(broker.pids("worker")) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_processes_of_an_upgrade_are_started_again(installed: Installed) -> None:
    """Each of them in each phase of its replacement. Clients retry; nothing is lost."""
    broker = installed.broker
    load = Load(broker)
    phases = (HelperPhase.ENDING, HelperPhase.STARTING, HelperPhase.SETTLING)
    for role, phase in itertools.product(OTHERS, phases):
        control_bus.request(run_dir(broker.data_dir), "supervisor", "upgrade")
        await_phase(broker, role, phase)
        for pid in broker.pids(role):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not state(broker)["active"], 240, "the upgrade has ended")
        wait_until(
            lambda: all(len(found) == 1 for name, found in pids(broker).items() if name in OTHERS), 60, "all run"
        )
        load.await_more(50)
    load.verify()
    assert UP_TO_DATE in upgrade(broker)


MOMENTS: list[tuple[str, Phase | HelperPhase]] = [
    ("", Phase.IMPORTING), ("", Phase.STARTING), ("", Phase.PROBING), ("", Phase.ENDING),
    ("janitor", HelperPhase.STARTING), ("coordinator", HelperPhase.ENDING), ("controller", HelperPhase.STARTING),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
def test_stop_at_any_moment_of_an_upgrade_is_in_order(installed: Installed) -> None:
    """Exit code 0, no process and no shared memory is left, and all that was acknowledged is there."""
    broker = installed.broker
    for role, phase in MOMENTS:
        load = Load(broker)
        load.await_more(50)
        control_bus.request(run_dir(broker.data_dir), "supervisor", "upgrade")
        await_phase(broker, role, phase)
        broker.stop()
        broker.start()
        load.verify()


NOT_BEGUN = "the new worker-2 has ended"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fork_servers_that_are_killed_do_not_keep_an_upgrade_from_its_end(installed: Installed) -> None:
    """The new one, which the supervisor started last, or both. While it imports, nothing is replaced.

    A worker that it has forked and not let begin yet ends with it (supervisor.forkserver): then the upgrade has failed.
    """
    broker = installed.broker
    load = Load(broker)
    for (role, phase), both in itertools.product(MOMENTS, (False, True)):
        control_bus.request(run_dir(broker.data_dir), "supervisor", "upgrade")
        await_phase(broker, role, phase)
        for pid in fork_servers(broker)[0 if both else -1 :]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not state(broker)["active"], 240, "the upgrade has ended")
        if phase is not Phase.STARTING or state(broker)["error"] != NOT_BEGUN:
            assert bool(state(broker)["error"]) == (phase is Phase.IMPORTING), state(broker)
        wait_until(lambda: len(broker.pids("worker")) == 2, 60, "two workers run")
        load.await_more(50)
    load.verify()
    assert UP_TO_DATE in upgrade(broker)


def fork_servers(broker: Broker) -> list[int]:
    """In the order of their starts."""
    (supervisor,) = broker.pids("supervisor")
    found = [one for one in psutil.Process(supervisor).children() if "fork" in " ".join(command_words(one))]
    return [one.pid for one in sorted(found, key=lambda one: one.create_time())]


def await_phase(broker: Any, role: str, phase: Phase | HelperPhase) -> None:
    """Or the end. Without a pause: a phase may last for a hundredth of a second."""
    while (now := state(broker))["active"] and (now["process"], now["phase"]) != (role, phase.value):
        pass
