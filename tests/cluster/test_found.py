"""Faults that the chaos test or its analysis has found, each reproduced deliberately."""

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
from .chaos.chaos_cluster import ChaosCluster
from .chaos.faults import disk_full, killed, suspended
from .chaos.network import HUB
from .chaos.world import wait

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]
TIMED_OUT = 7
LAG_S = 10  # replica.lag.time.max.ms
# Steps within a session, or before a replica lags, must be in time also on a busy machine. This is the
# longest session that ZooKeeper grants here.
PATIENT = {"replica_lag_time_max_ms": LAG_S * 1000, "zookeeper_session_timeout_ms": 10_000}


@pytest.fixture(scope="module")
def chaos_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with ChaosCluster(tmp_path_factory.mktemp("found"), **PATIENT) as made:
        yield made


def put(chaos_cluster: ChaosCluster, broker: int, topic: str, timeout_ms: int = 10_000) -> int:
    """Produce one record with acks=all; return the error code."""
    request = produce_request(topic, batch([b"x"]))
    request.timeout_ms = timeout_ms
    with Wire(chaos_cluster.broker(broker).bootstrap, 90) as wire:
        return wire.call(request).responses[0].partition_responses[0].error_code


def state(chaos_cluster: ChaosCluster, broker: int, topic: str) -> Any:
    """The first partition in a broker's metadata."""
    answer = wait_until(lambda: chaos_cluster.metadata(broker, topic), 60, f"broker {broker} says something")
    return answer.topics[0].partitions[0]


@contextmanager
def zookeeper(chaos_cluster: ChaosCluster) -> Iterator[KazooClient]:
    """A client of ZooKeeper."""
    client = KazooClient(f"{HUB}:{chaos_cluster.zookeeper.port}")
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def node(chaos_cluster: ChaosCluster, path: str) -> bytes:
    """The content of a ZooKeeper node."""
    with zookeeper(chaos_cluster) as client:
        return bytes(client.get(path)[0])


def topic_id(chaos_cluster: ChaosCluster, topic: str) -> UUID:
    """The id in the topic's node."""
    data = node(chaos_cluster, f"/brokers/topics/{topic}")
    return UUID(bytes=base64.urlsafe_b64decode(json.loads(data)["topic_id"] + "=="))


@contextmanager
def zookeeper_suspended(chaos_cluster: ChaosCluster) -> Iterator[None]:
    """ZooKeeper accepts connections and answers nothing."""
    chaos_cluster.zookeeper.suspend()
    try:
        yield
    finally:
        chaos_cluster.zookeeper.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]  # it runs


def test_follower_that_has_not_fetched_does_not_join(chaos_cluster: ChaosCluster) -> None:
    """A follower whose disk is new was once in sync; the leader's memory of that must not let it join the ISR.

    Without new records, its former log end was the high watermark, so it once joined the ISR as soon as it
    was registered; if its leader had then died, an empty log could have led.
    """
    topic = chaos_cluster.create_topic("idle", 1)
    leader = chaos_cluster.leader(topic)
    follower = (leader + 2) % 3
    assert put(chaos_cluster, leader, topic) == 0
    with killed(chaos_cluster, follower, 0):
        wait_until(lambda: follower not in state(chaos_cluster, leader, topic).isr_nodes, 60, "it leaves the ISR")
        for path in chaos_cluster.data(follower).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        cut = chaos_cluster.network.cut(follower, chaos_cluster.network.address(leader))
        cut.__enter__()
    wait(LAG_S)  # with the fault, it would join in this time; no event shows that it does not
    try:
        assert follower not in state(chaos_cluster, leader, topic).isr_nodes
    finally:
        cut.__exit__(None, None, None)
    chaos_cluster.healed(topic, 1)


def test_follower_that_could_not_join_does_not_block_high_watermark(chaos_cluster: ChaosCluster) -> None:
    """The follower had caught up, the high watermark waited for it, ZooKeeper refused the ISR, and it died."""
    topic = chaos_cluster.create_topic("joining", 1)
    leader = chaos_cluster.leader(topic)
    follower, other = ((number + leader) % 3 for number in (1, 2))
    with ExitStack() as suspension:
        with chaos_cluster.network.cut(follower, *(chaos_cluster.network.address(one) for one in (leader, other))):
            assert put(chaos_cluster, leader, topic, 60_000) == 0  # once the follower is out of the ISR
            suspension.enter_context(zookeeper_suspended(chaos_cluster))
        wait(3)  # it fetches and would join, but ZooKeeper refuses: no event shows when
        chaos_cluster.broker(follower).kill()
        wait(8)  # long enough that the brokers close their connections to ZooKeeper
    try:
        wait_until(
            lambda: put(chaos_cluster, chaos_cluster.leader(topic), topic, 2000) == 0,
            60,
            "acks=all without the follower",
        )
    finally:
        chaos_cluster.broker(follower).start()
    chaos_cluster.healed(topic, 1)


def test_leader_elected_on_full_disk_leads_once_there_is_room(chaos_cluster: ChaosCluster) -> None:
    """The leader could not write its new epoch, and the controller does not repeat its request."""
    topic = chaos_cluster.create_topic("full", 1)
    leader, elected = state(chaos_cluster, chaos_cluster.leader(topic), topic).replica_nodes[:2]
    with disk_full(chaos_cluster, elected, 0), killed(chaos_cluster, leader, 0):
        wait_until(lambda: "cannot become leader or follower" in chaos_cluster.broker(elected).log, 60, "it is elected")
    wait_until(lambda: put(chaos_cluster, chaos_cluster.leader(topic), topic, 2000) == 0, 60, "it leads")
    chaos_cluster.healed(topic, 1)


def test_dead_replica_leaves_isr_before_its_session_ends(chaos_cluster: ChaosCluster) -> None:
    """A leader that did not know of a death yet added the dead replica to the ISR, which the controller did not see.

    The high watermark then waited for the end of a session.
    """
    topic = chaos_cluster.create_topic("dead", 1)
    leader = chaos_cluster.leader(topic)
    follower = next(one for one in chaos_cluster.ids if one not in (leader, chaos_cluster.controller()))
    path = f"/brokers/topics/{topic}/partitions/0/state"
    with killed(chaos_cluster, follower, 0), zookeeper(chaos_cluster) as client:
        wait_until(
            lambda: follower not in json.loads(client.get(path)[0])["isr"],
            60,
            "the controller removes the broker from the ISR",
        )
        found = json.loads(client.get(path)[0])
        client.set(path, json.dumps({**found, "isr": [*found["isr"], follower]}).encode())
        notice = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
        client.create("/isr_change_notification/isr_change_", json.dumps(notice).encode(), sequence=True)
        wait_until(lambda: follower not in json.loads(client.get(path)[0])["isr"], 60, "it leaves the ISR again")
        assert client.exists(f"/brokers/ids/{follower}"), "the session has ended before"
        epoch = json.loads(client.get(path)[0])["leader_epoch"]
        assert epoch > found["leader_epoch"], "the leader, not the controller, removed the lagging replica"
    chaos_cluster.healed(topic, 1)


def test_late_request_removes_no_isr_member(chaos_cluster: ChaosCluster) -> None:
    """A new controller reads an ISR; the leader adds a follower to it; then the leader gets the ISR that was read.

    The follower may be elected, so the high watermark must still wait for it.
    """
    topic = chaos_cluster.create_topic("late", 1)
    leader, controller = chaos_cluster.leader(topic), chaos_cluster.controller()
    follower, other = ((number + leader) % 3 for number in (1, 2))
    with suspended(chaos_cluster, follower, 0):
        send_leader_and_isr(chaos_cluster, topic, controller, leader, [leader, other])
        assert put(chaos_cluster, leader, topic, 1000) == TIMED_OUT, "acks=all must wait for all ISR members"
    chaos_cluster.healed(topic, 1)


def send_leader_and_isr(chaos_cluster: ChaosCluster, topic: str, controller: int, leader: int, isr: list[int]) -> None:
    """Send LeaderAndIsr as the controller does, in the current leader epoch."""
    request = interbroker.message_class("LeaderAndIsrRequest")
    row, epoch = state(chaos_cluster, leader, topic), int(node(chaos_cluster, "/controller_epoch"))
    part = request.TopicState.PartitionState(
        partition_index=0, controller_epoch=epoch, leader=leader, leader_epoch=row.leader_epoch, isr=isr,
        partition_epoch=0, replicas=list(row.replica_nodes), adding_replicas=[], removing_replicas=[], is_new=False,
        leader_recovery_state=0,
    )  # fmt: skip
    states = [request.TopicState(topic_name=topic, topic_id=topic_id(chaos_cluster, topic), partition_states=[part])]
    frame = interbroker.request(
        "LeaderAndIsr", 7, 1, "late", controller_id=controller, is_kraft_controller=False,
        controller_epoch=epoch, broker_epoch=-1, type=0, topic_states=states, live_leaders=[],
    )  # fmt: skip
    with chaos_cluster.network.at(controller), Wire(chaos_cluster.broker(leader).bootstrap, 20) as wire:
        wire.send_raw(frame)
        _, answer = interbroker.response("LeaderAndIsr", 7, wire.read_frame())
    assert answer.error_code == 0, answer
