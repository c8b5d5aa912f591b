"""A broker of a simulated cluster stops: leadership and the role of controller move, then it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.cluster.tree import znodes
from odradek.ipc import slots

from .simulation.history import History
from .simulation.seams import installed

RETRIES, BACKOFF_S = 3, 0.5  # controlled.shutdown.max.retries, and controlled.shutdown.retry.backoff.ms here
SERVED_S = 3.0  # a broker serves for this time after it has moved leadership, while its connections drain


@pytest.fixture
def started() -> Iterator[Callable[[int], Any]]:
    """Makes a cluster of live brokers; each leads a partition of `t` and follows the others."""
    stack = ExitStack()

    def make(brokers: int) -> Any:
        history = History(1, unclean=False, brokers=brokers, lag=0.0, aside=0.0)
        cluster = history.cluster
        stack.enter_context(installed(history.world, cluster.codec, cluster.sockets, 1))
        for broker in cluster.brokers.values():
            broker.start()
        pass_(cluster, 2.0)
        ids = list(cluster.brokers)
        cluster.create_topic("t", {index: ids[index:] + ids[:index] for index in range(brokers)})
        pass_(cluster, 3.0)
        assert not cluster.ill()
        return cluster

    with stack:
        yield make


def pass_(cluster: Any, seconds: float) -> None:
    cluster.world.run(cluster.world.now + seconds)


def wait(cluster: Any, true: Callable[[], Any], seconds: float) -> None:
    """Run the simulated clock until `true` holds."""
    deadline = cluster.world.now + seconds
    while not true():
        assert cluster.world.now < deadline, f"not within {seconds} s"
        pass_(cluster, 0.05)


def epoch(cluster: Any) -> int:
    return int(cluster.zookeeper.nodes[znodes.CONTROLLER_EPOCH].data)


def holder(cluster: Any) -> int:
    """The broker that is the controller, -1 for none."""
    node = cluster.zookeeper.nodes.get(znodes.CONTROLLER)
    return -1 if node is None else znodes.decode_controller(node.data)


def leaders(cluster: Any) -> list[int]:
    return [cluster.state("t", index).leader for index in range(len(cluster.brokers))]


def delay_end(cluster: Any, broker: Any) -> list[str]:
    """Delay a broker's end after "left", with its listener closed; "left" is appended to the result."""
    said: list[str] = []

    def left() -> None:
        said.append("left")
        cluster.network.refusing[broker.number] = cluster.world.now + 60
        for one in cluster.network.of(broker.number):
            if one.brokers[1] == broker.number:
                one.reset()

    broker.mark_left_cluster = left
    return said


def test_leaving_controller_is_not_elected_again(started: Callable[[int], Any]) -> None:
    cluster = started(3)
    before, broker = epoch(cluster), cluster.brokers[holder(cluster)]
    said = delay_end(cluster, broker)
    broker.shut_down()
    wait(cluster, lambda: said, 0.5)
    assert holder(cluster) not in (-1, broker.number), "the listener stays open while the broker is the controller"
    assert broker.number not in leaders(cluster)
    pass_(cluster, SERVED_S)
    assert holder(cluster) not in (-1, broker.number)
    assert epoch(cluster) == before + 1


def test_leaving_broker_leads_nothing_without_request(started: Callable[[int], Any]) -> None:
    """The connections drain: requests that wait for followers would wait until their timeout."""
    cluster = started(3)
    broker = cluster.brokers[holder(cluster)]
    said = delay_end(cluster, broker)
    cluster.network.refusing[broker.number] = cluster.world.now + 60  # the next controller cannot connect
    led = [one for one in broker.partitions() if one.state().state == slots.LEADER]
    assert led
    broker.shut_down()
    wait(cluster, lambda: said, 2.0)
    assert broker.number not in leaders(cluster)
    assert {one.state().state for one in led} == {slots.FOLLOWER}


def test_leaving_broker_is_no_candidate_when_controller_dies(started: Callable[[int], Any]) -> None:
    cluster = started(3)
    controller = cluster.brokers[holder(cluster)]
    leaving = next(one for one in cluster.brokers.values() if one is not controller)
    said = delay_end(cluster, leaving)
    leaving.shut_down()
    controller.die("is killed")
    wait(cluster, lambda: said, 2.0)
    (other,) = cluster.brokers.keys() - {controller.number, leaving.number}
    assert holder(cluster) == other
    assert leaving.number not in leaders(cluster)
    wait(cluster, lambda: leaders(cluster) == [other] * 3, 1.0)


def test_single_broker_leaves_at_once(started: Callable[[int], Any]) -> None:
    cluster = started(1)
    (broker,) = cluster.brokers.values()
    said = delay_end(cluster, broker)
    broker.shut_down()
    wait(cluster, lambda: said, 0.2)
    pass_(cluster, SERVED_S)
    assert holder(cluster) == -1, "the leaving broker is not elected again"


def test_last_broker_leaves_after_all_retries(started: Callable[[int], Any]) -> None:
    """The partitions are replicated, and no other replica can lead them."""
    cluster = started(3)
    *others, last = cluster.brokers.values()
    for broker in others:
        broker.die("is killed")
    wait(cluster, lambda: holder(cluster) == last.number and leaders(cluster) == [last.number] * 3, 5.0)
    said = delay_end(cluster, last)
    last.shut_down()
    pass_(cluster, RETRIES * BACKOFF_S - 0.1)
    assert not said and holder(cluster) == last.number
    wait(cluster, lambda: said, 0.3)
    assert holder(cluster) == -1 and leaders(cluster) == [last.number] * 3


def test_brokers_that_all_stop_at_once_leave(started: Callable[[int], Any]) -> None:
    """Each broker becomes controller in turn. The last one has no broker to move leadership to."""
    cluster = started(3)
    said = [delay_end(cluster, broker) for broker in cluster.brokers.values()]
    for broker in cluster.brokers.values():
        broker.config["controlled.shutdown.retry.backoff.ms"] = 1000
        broker.shut_down()
    wait(cluster, lambda: sum(map(bool, said)) == 2, 2.0)
    wait(cluster, lambda: all(said), RETRIES * 1.0)
    pass_(cluster, SERVED_S)
    assert holder(cluster) == -1


@pytest.mark.parametrize("begun", [False, True])
def test_broker_leaves_although_its_controller_process_is_killed(started: Callable[[int], Any], begun: bool) -> None:
    """The process dies before or after it gets the request to leave."""
    cluster = started(3)
    broker = next(one for one in cluster.brokers.values() if one.number != holder(cluster))
    said = delay_end(cluster, broker)
    broker.shut_down()
    pass_(cluster, 0.0005 if begun else 0.0)
    broker.kill_controller()
    wait(cluster, lambda: said, 2.0)
    assert broker.number not in leaders(cluster)
