"""SIGKILL of each kind of process under a producer with acks=all: no acknowledged record is lost or duplicated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic, unique
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce, producer_id
from ..harness.process import family, living, wait_until
from ..harness.wire import answers
from .acknowledged import Load

pytestmark = pytest.mark.live

CHILDREN = ["worker", "acceptor", "coordinator", "janitor", "controller"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", ["worker", *(pytest.param(role, marks=pytest.mark.long) for role in CHILDREN[1:])])
def test_no_record_is_lost_when_a_child_is_killed(fresh_broker: Any, role: str) -> None:
    """The supervisor restarts the child, and the producer continues."""
    broker = fresh_broker()
    load = Load(broker)
    load.await_more()
    for _ in range(3):
        dead = broker.kill_role(role)
        broker.await_respawn(role, dead)
        load.await_more()
    load.verify()
    works(broker)


@pytest.mark.timeout(180)
def test_new_clients_are_served_after_repeated_kills_of_the_acceptor(fresh_broker: Any) -> None:
    """An acceptor that has served restarts without the back-off of a process that cannot start."""
    broker = fresh_broker()
    for _ in range(9):
        broker.kill_role("acceptor")
        wait_until(lambda: answers(broker.bootstrap, 3), 20, "a new client is answered")


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_no_record_is_lost_when_all_workers_are_killed(fresh_broker: Any) -> None:
    broker = fresh_broker()
    load = Load(broker)
    load.await_more()
    for _ in range(3):
        pids = broker.pids("worker")
        dead = [broker.kill_role("worker") for _ in pids]
        wait_until(lambda: len(set(broker.pids("worker")) - set(dead)) == 2, 30, "two workers again")  # noqa: B023
        load.await_more()
    load.verify()
    works(broker)


@pytest.mark.timeout(180)
def test_no_record_is_lost_when_the_supervisor_is_killed(fresh_broker: Any) -> None:
    """All processes die with the supervisor; the next start serves every acknowledged record."""
    broker = fresh_broker()
    load = Load(broker)
    for _ in range(3):
        load.await_more()
        broker.kill()
        broker.start()
    load.await_more()
    load.verify()
    works(broker)
    broker.stop()


@pytest.mark.timeout(180)
def test_no_record_is_lost_when_processes_are_killed_during_rolls(fresh_broker: Any) -> None:
    """Small segments roll often, with index and snapshot files, while processes are killed."""
    broker = fresh_broker(log_segment_bytes=20_000, log_index_interval_bytes=200)
    load = Load(broker, pause=0.0005, **{"batch.size": 10_000})  # a batch must fit into a segment
    for at in range(4):
        load.await_more(500)
        if at % 2:
            broker.kill()
            broker.start()
        else:
            broker.await_respawn("worker", broker.kill_role("worker", at // 2))
    load.verify()


def test_children_die_with_the_supervisor(fresh_broker: Any) -> None:
    broker = fresh_broker()
    members = family(broker.process.pid)
    assert len(members) >= 7, broker.commands()
    broker.kill()  # asserts that, too
    assert not living(members)


def test_start_replaces_shared_memory_left_by_a_kill(fresh_broker: Any, short_folder: Path) -> None:
    broker = fresh_broker(start=False)
    broker.env["TMPDIR"] = str(short_folder)  # or the start of another test's broker removes it before
    broker.start()
    topic = create_topic(broker)
    broker.kill()
    assert broker.shared_memory(), "the kill left no shared memory: this test shows nothing"
    broker.start()
    with broker.wire() as wire:
        assert produce(wire, topic, batch([b"x"])).error_code == 0
    broker.stop()  # asserts that /dev/shm is clean


def test_topics_survive_a_kill_of_the_controller(fresh_broker: Any) -> None:
    broker = fresh_broker()
    names = []
    for _ in range(3):
        names += [create_topic(broker) for _ in range(3)]
        broker.await_respawn("controller", broker.kill_role("controller"))
        wait_until(lambda: created(broker), 30, "topics can be created again")
    broker.restart(kill=True)
    with broker.wire() as wire:
        for name in names:
            assert produce(wire, name, batch([b"x"])).error_code == 0


def created(broker: Any) -> bool:
    """Whether a topic can be created now; without the controller a worker answers with an error, or waits."""
    try:
        create_topic(broker)
    except AssertionError:
        return False
    return True


def test_producer_ids_stay_unique_over_kills(fresh_broker: Any) -> None:
    broker = fresh_broker()
    found: list[int] = []
    for at in range(4):
        for _ in range(4):
            with broker.wire() as wire:
                found += [producer_id(wire)[0] for _ in range(10)]
        if at % 2:
            broker.restart(kill=True)
        else:
            broker.await_respawn("worker", broker.kill_role("worker"))
            wait_until(lambda: len(broker.pids("worker")) == 2)
            broker.await_ready()
    assert len(set(found)) == len(found)


def works(broker: Any) -> None:
    """Create a topic, and write to it over several connections."""
    topic = unique("after")
    wires = [broker.wire() for _ in range(4)]
    wait_until(lambda: made(broker, topic), 30, "a topic can be created")
    for at, wire in enumerate(wires):
        assert produce(wire, topic, batch([b"x"])).base_offset == at
        wire.close()


def made(broker: Any, topic: str) -> bool:
    """Create `topic`, or find it."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    row = Request.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with broker.wire() as wire:
        answer = wire.call(Request[4](topics=[row], timeout_ms=10_000, validate_only=False))
    return answer.topics[0].error_code in (0, 36)
