"""What chaos, or thinking about chaos, has found: each made to happen on purpose, and never again."""

from __future__ import annotations

import base64
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import pytest
from kazoo.client import KazooClient

from odradek.protocol import interbroker

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce_request
from ..harness.process import wait_until
from ..harness.wire import Wire
from .chaos.faults import disk_full, killed, suspended
from .chaos.ground import Ground
from .chaos.network import HUB
from .chaos.world import wait

pytestmark = [pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]
TIMED_OUT = 7
LAG_S = 10  # replica.lag.time.max.ms
# What is done while a session lasts, or before a replica lags, must be done in time on a busy machine, too. This is the
# longest session that ZooKeeper grants here.
PATIENT = {"replica_lag_time_max_ms": LAG_S * 1000, "zookeeper_session_timeout_ms": 10_000}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with Ground(tmp_path_factory.mktemp("found"), **PATIENT) as made:
        yield made


def put(ground: Ground, broker: int, topic: str, timeout_ms: int = 10_000) -> int:
    """One record with acks=all; the error code."""
    request = produce_request(topic, batch([b"x"]))
    request.timeout_ms = timeout_ms
    with Wire(ground.broker(broker).bootstrap, 90) as wire:
        return wire.call(request).responses[0].partition_responses[0].error_code


def state(ground: Ground, broker: int, topic: str) -> Any:
    """The first partition as a broker sees it."""
    answer = wait_until(lambda: ground.metadata(broker, topic), 60, f"broker {broker} says something")
    return answer.topics[0].partitions[0]


@contextmanager
def zookeeper(ground: Ground) -> Iterator[KazooClient]:
    """A client of ZooKeeper."""
    client = KazooClient(f"{HUB}:{ground.zookeeper.port}")
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def node(ground: Ground, path: str) -> bytes:
    """What a node of ZooKeeper says."""
    with zookeeper(ground) as client:
        return bytes(client.get(path)[0])


def topic_id(ground: Ground, topic: str) -> UUID:
    """The id that the topic's node says."""
    data = node(ground, f"/brokers/topics/{topic}")
    return UUID(bytes=base64.urlsafe_b64decode(json.loads(data)["topic_id"] + "=="))


@contextmanager
def zookeeper_suspended(ground: Ground) -> Iterator[None]:
    """It takes connections and answers nothing."""
    ground.zookeeper.suspend()
    try:
        yield
    finally:
        ground.zookeeper.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]


def test_who_has_not_fetched_does_not_join(ground: Ground) -> None:
    """A follower whose disk is new was once in sync: that its leader remembers it does not make it so now.

    With nothing produced since, its former log end was the high watermark, so it was taken into the ISR as soon as it
    was registered; had its leader then died, an empty log might have led.
    """
    topic = ground.create_topic("idle", 1)
    leader = ground.leader(topic)
    follower = (leader + 2) % 3
    assert put(ground, leader, topic) == 0
    with killed(ground, follower, 0):
        wait_until(lambda: follower not in state(ground, leader, topic).isr_nodes, 60, "it leaves the ISR")
        for path in ground.data(follower).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        cut = ground.network.cut(follower, ground.network.address(leader))
        cut.__enter__()
    wait(LAG_S)
    try:
        assert follower not in state(ground, leader, topic).isr_nodes
    finally:
        cut.__exit__(None, None, None)
    ground.healed(topic, 1)


def test_a_follower_that_could_not_join_does_not_hold_up_the_rest(ground: Ground) -> None:
    """It had caught up, the leader's high watermark waited for it, ZooKeeper did not take the ISR, and it died."""
    topic = ground.create_topic("joining", 1)
    leader = ground.leader(topic)
    follower, other = ((number + leader) % 3 for number in (1, 2))
    with ExitStack() as suspension:
        with ground.network.cut(follower, *(ground.network.address(one) for one in (leader, other))):
            assert put(ground, leader, topic, 60_000) == 0  # once the follower is out of the ISR
            suspension.enter_context(zookeeper_suspended(ground))
        wait(3)  # it fetches, and is to join
        ground.broker(follower).kill()
        wait(8)  # the connections to ZooKeeper are given up
    try:
        wait_until(lambda: put(ground, ground.leader(topic), topic, 2000) == 0, 60, "acks=all without the follower")
    finally:
        ground.broker(follower).start()
    ground.healed(topic, 1)


def test_who_is_elected_on_a_full_disk_leads_when_there_is_room(ground: Ground) -> None:
    """It could not note the epoch that began; the controller does not say again that it leads."""
    topic = ground.create_topic("full", 1)
    leader, elected = state(ground, ground.leader(topic), topic).replica_nodes[:2]
    with disk_full(ground, elected, 0), killed(ground, leader, 0):
        wait_until(lambda: "cannot become leader or follower" in ground.broker(elected).log, 60, "it is elected")
    wait_until(lambda: put(ground, ground.leader(topic), topic, 2000) == 0, 60, "it leads")
    ground.healed(topic, 1)


def test_the_dead_do_not_stay_in_an_isr_until_their_session_ends(ground: Ground) -> None:
    """A leader that had not heard of a death yet took the dead into the ISR, behind the controller's back.

    The high watermark then waited for the end of a session.
    """
    topic = ground.create_topic("dead", 1)
    leader = ground.leader(topic)
    follower = next(one for one in ground.ids if one not in (leader, ground.controller()))
    path = f"/brokers/topics/{topic}/partitions/0/state"
    with killed(ground, follower, 0), zookeeper(ground) as client:
        wait_until(lambda: follower not in json.loads(client.get(path)[0])["isr"], 60, "it is taken for dead")
        found = json.loads(client.get(path)[0])
        client.set(path, json.dumps({**found, "isr": [*found["isr"], follower]}).encode())
        notice = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
        client.create("/isr_change_notification/isr_change_", json.dumps(notice).encode(), sequence=True)
        wait_until(lambda: follower not in json.loads(client.get(path)[0])["isr"], 60, "it leaves the ISR again")
        assert client.exists(f"/brokers/ids/{follower}"), "only when its session had ended"
        epoch = json.loads(client.get(path)[0])["leader_epoch"]
        assert epoch > found["leader_epoch"], "not by the controller, but by the leader, when it lagged"
    ground.healed(topic, 1)


def test_what_a_controller_says_late_takes_nobody_out_of_the_isr(ground: Ground) -> None:
    """A new controller has read an ISR; the leader takes a follower into it; then it is told what was read.

    The follower may be elected, so the high watermark must wait for it all the same.
    """
    topic = ground.create_topic("late", 1)
    leader, controller = ground.leader(topic), ground.controller()
    follower, other = ((number + leader) % 3 for number in (1, 2))
    with suspended(ground, follower, 0):
        tell(ground, topic, controller, leader, [leader, other])
        assert put(ground, leader, topic, 1000) == TIMED_OUT, "acks=all must wait for who is in the ISR"
    ground.healed(topic, 1)


def tell(ground: Ground, topic: str, controller: int, leader: int, isr: list[int]) -> None:
    """LeaderAndIsr as from the controller, in the leader epoch of now."""
    request = interbroker.message_class("LeaderAndIsrRequest")
    row, epoch = state(ground, leader, topic), int(node(ground, "/controller_epoch"))
    part = request.TopicState.PartitionState(
        partition_index=0, controller_epoch=epoch, leader=leader, leader_epoch=row.leader_epoch, isr=isr,
        partition_epoch=0, replicas=list(row.replica_nodes), adding_replicas=[], removing_replicas=[], is_new=False,
        leader_recovery_state=0,
    )  # fmt: skip
    states = [request.TopicState(topic_name=topic, topic_id=topic_id(ground, topic), partition_states=[part])]
    frame = interbroker.request(
        "LeaderAndIsr", 7, 1, "late", controller_id=controller, is_kraft_controller=False,
        controller_epoch=epoch, broker_epoch=-1, type=0, topic_states=states, live_leaders=[],
    )  # fmt: skip
    with ground.network.at(controller), Wire(ground.broker(leader).bootstrap, 20) as wire:
        wire.send_raw(frame)
        _, answer = interbroker.response("LeaderAndIsr", 7, wire.read_frame())
    assert answer.error_code == 0, answer
