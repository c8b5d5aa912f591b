"""`odradek upgrade` under busy clients that neither retry nor reconnect: no error, no lost or doubled record."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek.broker.commands import upgrade as upgrade_command
from odradek.broker.commands._shared.broker import find_running
from odradek.broker.errors import NotRunning
from odradek.broker.process import control_bus
from odradek.broker.process.control_bus import ControlError
from odradek.broker.rolling.roll import Phase
from odradek.ipc.rundir import run_dir

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import fetch, part, produce, produce_request, session_request
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from ..workers.authentication.secured_broker import SecuredBroker
from .acknowledged import Load
from .pipelining import Pipelines, framed

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

CORRELATION = bytes(4)
SESSION_NOT_FOUND = 70
KILLED_IN = (Phase.STARTING, Phase.PROBING, Phase.GIVING, Phase.ENDING)
PRODUCERS, CONSUMERS, IDLERS = 60, 20, 20


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker of two workers, with a listener of each protocol."""
    made = SecuredBroker(tmp_path_factory.mktemp("upgraded"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def upgrade(broker: Any, expected: int = 0) -> str:
    """Run the command; returns what it says."""
    done = broker.command("upgrade", str(broker.properties_file), timeout=240)
    assert done.returncode == expected, done.stdout + done.stderr + broker.log[-4000:]
    return str(done.stdout + done.stderr)


def wires(broker: SecuredBroker, count: int) -> list[Wire]:
    """Every third one has authenticated by SASL."""
    return [broker.authenticated("SASL_PLAINTEXT") if n % 3 == 0 else broker.wire(60) for n in range(count)]


def test_clients_without_retries_notice_nothing_while_workers_are_replaced_three_times(upgraded: SecuredBroker) -> None:
    """Connections are 100 raw ones that pipeline or wait, and those of two producers of librdkafka."""
    broker = upgraded
    topic, idle = create_topic(broker, "busy", PRODUCERS), create_topic(broker, "idle")
    pipelines = Pipelines(wires(broker, PRODUCERS), topic, wires(broker, CONSUMERS), wires(broker, IDLERS), idle)
    with closing(pipelines):
        loads = [Load(broker, **{"enable.idempotence": False, "retries": 0}), Load(broker)]
        before, gaps = broker.pids("worker"), []
        for _ in range(3):
            await_more(pipelines)
            pipelines.measured()
            upgrade(broker)
            gaps.append(pipelines.measured())
            after = broker.pids("worker")
            assert len(after) == 2 and not set(after) & set(before)
            before = after
        await_more(pipelines)
        for load in loads:
            load.await_more()
            load.verify()
        pipelines.finish()
    assert pipelines.faults == []
    assert "process_restarted" not in findings(broker)
    print(f"the longest ms without an answer, and of the clients' own thread, in each upgrade: {gaps}")
    assert min(one.acked for one in pipelines.producers) > 3 and min(one.answers for one in pipelines.idlers) >= 3
    verify(broker, topic, pipelines)


def await_more(pipelines: Pipelines) -> None:
    goal = pipelines.acked + 5 * PRODUCERS
    wait_until(lambda: pipelines.acked >= goal or pipelines.faults, 120, "the pipelines move")
    assert pipelines.faults == []


def status(broker: Broker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    return found


def findings(broker: Broker) -> list[str]:
    return [one["name"] for one in status(broker)["findings"]]


def verify(broker: SecuredBroker, topic: str, pipelines: Pipelines) -> None:
    """Each partition has as many records as were acknowledged."""
    with broker.wire(60) as wire:
        for partition, one in enumerate(pipelines.producers):
            assert fetch(wire, topic, one.acked, partition=partition, wait_ms=0).high_watermark == one.acked


def test_unfinished_frame_goes_along_a_fetch_session_ends_and_no_connection_is_counted_twice(
    upgraded: SecuredBroker,
) -> None:
    broker = upgraded
    topic = create_topic(broker, "half")
    with broker.authenticated("SASL_PLAINTEXT") as wire, broker.wire(60) as reader:
        session = open_session(reader, topic)
        frame = framed(produce_request(topic, batch([b"a"])))
        wire.send_raw(frame[:37])
        upgrade(broker)
        wire.send_raw(frame[37:])
        assert wire.read_frame()[:4] == CORRELATION
        assert produce(wire, topic, batch([b"b"])).base_offset == 1
        assert reader.call(session_request([], session=session, session_epoch=1)).error_code == SESSION_NOT_FOUND
        assert open_session(reader, topic) > 0
        wait_until(lambda: connections(broker) == (2, 2), 60, f"two are counted, not {connections(broker)}")


def open_session(wire: Wire, topic: str) -> int:
    answer = wire.call(session_request([(topic, [part(0, 0)])], session=0, session_epoch=0, wait_ms=0))
    assert answer.error_code == 0
    return int(answer.session_id)


def connections(broker: SecuredBroker) -> tuple[int, int]:
    """As the acceptor counts them, and the workers."""
    rows = {row["name"]: row["connections"] for row in status(broker)["processes"] if row["alive"]}
    return rows["acceptor"], sum(count for name, count in rows.items() if name.startswith("worker-"))


def test_connection_with_tls_is_closed_between_two_requests_and_can_come_back(upgraded: SecuredBroker) -> None:
    broker = upgraded
    topic = create_topic(broker, "tls")
    with broker.connect("SSL") as wire:
        assert produce(wire, topic, batch([b"a"])).base_offset == 0
        upgrade(broker)
        assert wire.closed_by_peer()
    with broker.connect("SSL") as wire:
        assert produce(wire, topic, batch([b"b"])).base_offset == 1


def test_clients_with_tls_and_without_retries_get_no_error(upgraded: SecuredBroker) -> None:
    """Each connection ends with the answer that its client waits for."""
    broker = upgraded
    tls = {"bootstrap.servers": broker.address("SSL"), "security.protocol": "ssl", "ssl.ca.location": broker.ca}
    once = {"enable.idempotence": False, "retries": 0, "max.in.flight": 1}
    loads = [Load(broker, pause=pause, **tls, **once) for pause in (0.02, 0.005, 0.001) for _ in range(2)]
    for load in loads:
        load.await_more(20)
    upgrade(broker)
    for load in loads:
        load.await_more(20)
        load.verify()


def test_new_worker_that_cannot_start_leaves_the_old_ones_and_their_connections(upgraded: SecuredBroker) -> None:
    """A directory is in the place of a socket of the new worker."""
    broker = upgraded
    topic = create_topic(broker, "stays")
    before = broker.pids("worker")
    obstacle = run_dir(broker.data_dir) / "upgrade-worker-2.sock"
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()
    with broker.wire(60) as wire:
        said = upgrade(broker, expected=1)
        assert "the new worker-2 has ended" in said and said.count("\n") == 1
        assert produce(wire, topic, batch([b"a"])).base_offset == 0
        assert broker.pids("worker") == before
        obstacle.rmdir()
        upgrade(broker)
        assert produce(wire, topic, batch([b"b"])).base_offset == 1


def test_scale_waits_for_an_upgrade_and_a_second_upgrade_is_refused(upgraded: SecuredBroker) -> None:
    folder = run_dir(upgraded.data_dir)
    control_bus.request(folder, "supervisor", "upgrade")
    for command, arguments in (("upgrade", {}), ("scale", {"workers": 3})):
        with pytest.raises(ControlError, match="an upgrade is under way"):
            control_bus.request(folder, "supervisor", command, **arguments)
    wait_until(lambda: not control_bus.request(folder, "supervisor", "upgrade-state")["active"], 120, "it has ended")
    assert len(upgraded.pids("worker")) == 2


def test_supervisor_that_answers_late_does_not_end_the_command(
    upgraded: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upgrade goes on meanwhile, so the command must not say that it has failed. A dead broker is told."""
    monkeypatch.setattr(upgrade_command, "_ANSWER_MS", 100)
    config = find_running(upgraded.properties_file, ())
    supervisor = psutil.Process(upgraded.pids("supervisor")[0])
    supervisor.suspend()
    try:
        assert upgrade_command._state(config) is None
    finally:
        supervisor.resume()
    assert not wait_until(lambda: upgrade_command._state(config), 60, "the supervisor answers")["active"]
    gone = replace(config, typed={**config.typed, "odradek.run.dir": str(tmp_path)})
    with pytest.raises(NotRunning, match="has ended during the upgrade"):
        upgrade_command._state(gone)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_workers_of_an_upgrade_lose_and_double_no_record(upgraded: SecuredBroker) -> None:
    """The lowest number is the one that hands over, the highest the new one, or neither. Clients retry."""
    broker = upgraded
    loads = [Load(broker) for _ in range(3)]
    ends = set()
    for phase, which in itertools.product(KILLED_IN, (0, -1)):
        loads[0].await_more(50)
        control_bus.request(run_dir(broker.data_dir), "supervisor", "upgrade")
        await_phase(broker, phase)
        with suppress(ProcessLookupError):
            os.kill(broker.pids("worker")[which], signal.SIGKILL)
        wait_until(lambda: not state(broker)["active"], 120, "the upgrade has ended")
        ends.add(bool(state(broker)["error"]))
        wait_until(lambda: len(broker.pids("worker")) == 2, 120, "two workers run")
    for load in loads:
        load.await_more(50)
        load.verify()
    assert ends == {True, False}


def await_phase(broker: SecuredBroker, phase: Phase) -> None:
    """Or the end. Without a pause: a phase may last for a hundredth of a second."""
    while state(broker)["phase"] not in (phase.value, Phase.DONE.value):
        pass


def state(broker: Broker) -> dict[str, Any]:
    return control_bus.request(run_dir(broker.data_dir), "supervisor", "upgrade-state")
