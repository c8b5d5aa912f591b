"""Inter-broker requests from others: from another address, on another listener, with forged fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol import interbroker
from odradek.storage.files.checkpoints import read_partition_metadata

from ..clients.admin import create_named, topic_id
from ..clients.raw.batches import batch
from ..clients.raw.calls import fetch_request, produce
from ..clients.transactions import Raw
from ..fuzz.watch import Watch
from ..harness.broker import Broker
from ..harness.process import free_port, wait_until
from ..harness.wire import Wire
from ..harness.zookeeper import ZooKeeper

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

STRANGER = "127.0.0.2"  # the broker advertises 127.0.0.1
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
NOT_LEADER, STALE_CONTROLLER_EPOCH, INVALID_TOPIC, INVALID_PARTITIONS = 6, 11, 17, 37
NEWEST = {"LeaderAndIsr": 7, "StopReplica": 4, "UpdateMetadata": 8, "ControlledShutdown": 3}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    running = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def clients_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeper, clients_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A single broker, with a listener for clients and one for brokers."""
    made = Broker(tmp_path_factory.mktemp("broker"), broker_id=0, zookeeper_connect=zookeeper.connect)
    protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT"
    made.set(
        listeners=f"PLAINTEXT://127.0.0.1:{made.port},CLIENTS://127.0.0.1:{clients_port}",
        listener_security_protocol_map=protocols, inter_broker_listener_name="PLAINTEXT",
    )  # fmt: skip
    try:
        made.start()
        with made.wire() as wire:
            wait_until(lambda: wire.metadata().controller_id == 0, 60, "a controller")
            create_named(wire, "t", 1)
            assert produce(wire, "t", batch([b"x"])).error_code == 0
        yield made
    finally:
        made.close()


@pytest.fixture
def watch(broker: Broker) -> Iterator[Watch]:
    """No process may end, or log an internal error."""
    made = Watch(broker)
    yield made
    assert not made.fault()


@pytest.fixture
def epoch(zookeeper: ZooKeeper) -> int:
    """The controller's epoch."""
    tree = ZooKeeperTree(zookeeper.connect)
    try:
        return int(tree.get(znodes.CONTROLLER_EPOCH)[0])
    finally:
        tree.close()


def send(wire: Wire, name: str, version: int = -1, **fields: Any) -> Any:
    """Send an inter-broker request; return its answer."""
    version = NEWEST[name] if version < 0 else version
    wire.send_raw(interbroker.request(name, version, 1, "forged", **fields))
    return interbroker.response(name, version, wire.read_frame())[1]


def controller_fields(epoch: int) -> dict[str, int]:
    return {"controller_id": 0, "controller_epoch": epoch, "broker_epoch": -1}


def lead(topic: str, number: int, *, replicas: tuple[int, ...] = (0,), epoch: int = 0, uuid: UUID | None = None) -> Any:
    """LeaderAndIsr's fields for one partition."""
    states = interbroker.message_class("LeaderAndIsrRequest").TopicState
    one = states.PartitionState(
        partition_index=number, controller_epoch=1, leader=0, leader_epoch=epoch, isr=list(replicas),
        partition_epoch=0, replicas=list(replicas), adding_replicas=[], removing_replicas=[], is_new=True,
    )  # fmt: skip
    topics = [states(topic_name=topic, topic_id=uuid or UUID(int=77), partition_states=[one])]
    return {"topic_states": topics, "live_leaders": [], "type": 1, "is_kraft_controller": False}


def stop(topic: str, number: int) -> Any:
    states = interbroker.message_class("StopReplicaRequest").TopicState
    one = states.PartitionState(partition_index=number, leader_epoch=1 << 30, delete_partition=True)
    return {"topic_states": [states(topic_name=topic, partition_states=[one])], "is_kraft_controller": False}


def know(topic: str, number: int) -> Any:
    states = interbroker.message_class("UpdateMetadataRequest").TopicState
    one = states.PartitionState(
        partition_index=number, controller_epoch=1, leader=-2, leader_epoch=0, isr=[0], zk_version=0, replicas=[0],
        offline_replicas=[],
    )  # fmt: skip
    topics = [states(topic_name=topic, topic_id=UUID(int=77), partition_states=[one])]
    return {"topic_states": topics, "live_brokers": [], "type": 2, "is_kraft_controller": False}


ORDERS: dict[str, Callable[[str, int], Any]] = {"LeaderAndIsr": lead, "StopReplica": stop, "UpdateMetadata": know}


def check_all_are_refused(wire: Wire, epoch: int) -> None:
    """Each of the four requests, in each version, is refused, and the topic stays."""
    for name, newest in NEWEST.items():
        for version in range(1 if name == "ControlledShutdown" else 0, newest + 1):
            if name == "ControlledShutdown":
                answer = send(wire, name, version, broker_id=0, broker_epoch=-1)
            else:
                fields = ORDERS[name]("t", 0) if version == newest else empty(name, version)
                answer = send(wire, name, version, **controller_fields(epoch), **fields)
            assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED, (name, version)
    row = wire.metadata("t").topics[0].partitions[0]
    assert (row.error_code, row.leader_id, list(row.replica_nodes)) == (0, 0, [0])


def empty(name: str, version: int) -> dict[str, Any]:
    """A request without partitions, in the fields of that version."""
    request = interbroker.message_class(name + "Request")
    arrays = [field for field in request._struct._fields if field.is_array() and field.for_version_q(version)]
    return {field.name: [] for field in arrays}


def test_requests_from_unknown_address_are_refused(broker: Broker, watch: Watch, epoch: int) -> None:
    with Wire(broker.bootstrap, source=STRANGER) as wire:
        check_all_are_refused(wire, epoch)


@pytest.mark.long
def test_requests_on_client_listener_are_refused(broker: Broker, clients_port: int, watch: Watch, epoch: int) -> None:
    with Wire(f"127.0.0.1:{clients_port}") as wire:
        check_all_are_refused(wire, epoch)


def test_requests_with_unknown_controller_epoch_are_refused(broker: Broker, watch: Watch, epoch: int) -> None:
    """If the broker took such an epoch, it would refuse all requests of the real controller."""
    with broker.wire() as wire:
        for claimed in (epoch + 1, (1 << 31) - 1):
            for name, order in ORDERS.items():
                answer = send(wire, name, **controller_fields(claimed), **order("t", 0))
                assert answer.error_code == STALE_CONTROLLER_EPOCH, name
        create_named(wire, f"after-{epoch}", 1)
        wait_until(
            lambda: wire.metadata(f"after-{epoch}").topics[0].error_code == 0,
            60,
            "the controller's requests are carried out",
        )


def test_invalid_topic_names_are_refused(broker: Broker, watch: Watch, epoch: int) -> None:
    """Such names would be other directories, or unreadable lines of a checkpoint."""
    before = directories(broker.folder)
    live = interbroker.message_class("UpdateMetadataRequest").Broker
    end = live.Endpoint(port=broker.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
    brokers = {"live_brokers": [live(id=0, endpoints=[end], rack=None)], "type": 1}
    with broker.wire() as wire:
        for name in ("../escaped", "a b", "a/b", "..", "", "x" * 250):
            answer = send(wire, "LeaderAndIsr", **controller_fields(epoch), **lead(name, 0))
            assert answer.topics[0].partition_errors[0].error_code == INVALID_TOPIC, name
            answer = send(wire, "UpdateMetadata", **controller_fields(epoch), **(know(name, 0) | brokers))
            assert answer.error_code == INVALID_TOPIC, name
            answer = send(wire, "StopReplica", **controller_fields(epoch), **stop(name, 0))
            assert answer.partition_errors[0].error_code == INVALID_TOPIC, name
        for number in (-1, 100_000, (1 << 31) - 1):
            answer = send(wire, "LeaderAndIsr", **controller_fields(epoch), **lead("u", number))
            assert answer.topics[0].partition_errors[0].error_code == INVALID_PARTITIONS, number
        answer = send(wire, "LeaderAndIsr", **controller_fields(epoch), **lead("u", 0, replicas=tuple(range(10))))
        assert answer.topics[0].partition_errors[0].error_code == 39
    assert directories(broker.folder) == before
    assert "more than the 9 that a partition may have" in broker.log


def test_log_gets_topic_id_in_every_request_version(broker: Broker, watch: Watch, epoch: int) -> None:
    """Versions before 5 have none; `odradek check` and Kafka require one id in all partitions of a topic."""
    with broker.wire() as wire:
        answer = send(wire, "LeaderAndIsr", 4, **controller_fields(epoch), **lead("t", 1))
        assert [part.error_code for part in answer.partition_errors] == [0]
        number = topic_id(wire, "t").bytes
    assert read_partition_metadata(broker.data_dir / "t-1") == number


def directories(folder: Path) -> set[Path]:
    """All directories in the broker's data directory and beside it."""
    return {path for path in folder.parent.rglob("*") if path.is_dir()}


def test_follower_fetch_from_unknown_address_is_refused(broker: Broker, clients_port: int, watch: Watch) -> None:
    """The sender would read uncommitted records, and count as a replica that has them."""
    number = topic_id(broker.wire(), "t")
    for version, topic in ((4, "t"), (12, "t"), (13, number), (17, number)):
        for wire in (Wire(broker.bootstrap, source=STRANGER), Wire(f"127.0.0.1:{clients_port}")):
            with wire:
                request = fetch_request(topic, 0, version=version)
                if version >= 15:
                    request.replica_state = type(request).ReplicaState(replica_id=0, replica_epoch=-1)
                else:
                    request.replica_id = 0
                part = wire.call(request).responses[0].partitions[0]
                assert (part.error_code, part.high_watermark) == (TOPIC_AUTHORIZATION_FAILED, -1)
                assert not part.records


def test_txn_marker_from_unknown_address_is_refused(broker: Broker, watch: Watch) -> None:
    from kafka.protocol.producer import WriteTxnMarkersRequest as Request

    with Wire(broker.bootstrap, 60, source=STRANGER) as wire:
        raw = Raw(wire)
        raw.add("t")
        raw.write("t", b"open")
        row = Request.WritableTxnMarker
        marker = row(
            producer_id=raw.id, producer_epoch=raw.epoch, transaction_result=True, coordinator_epoch=1 << 20,
            topics=[row.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )  # fmt: skip
        answer = wire.call(Request[1](markers=[marker]))
        assert answer.markers[0].topics[0].partitions[0].error_code == NOT_LEADER
        assert raw.end(commit=False) == 0, "its own coordinator decides"


def test_allowed_hosts_are_admitted(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """A broker may connect from another address than its host name resolves to."""
    settings = {"odradek_inter_broker_allowed_hosts": "10.0.0.0/8,127.0.0.2"}
    other = Broker(tmp_path, broker_id=7, zookeeper_connect=zookeeper.connect, **settings)
    try:
        other.start()
        with Wire(other.bootstrap, source=STRANGER) as wire:
            assert (
                send(wire, "LeaderAndIsr", **controller_fields(0), **lead("t", 0)).error_code == STALE_CONTROLLER_EPOCH
            )
    finally:
        other.close()


def test_broker_is_admitted_once_registered(zookeeper: ZooKeeper, broker: Broker, watch: Watch) -> None:
    """The broker is admitted even before the controller has sent its address."""
    tree = ZooKeeperTree(zookeeper.connect)
    node = {
        "version": 5,
        "endpoints": ["PLAINTEXT://127.0.0.3:1"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    }
    try:
        with Wire(broker.bootstrap, 60, source="127.0.0.3") as wire:
            assert (
                send(wire, "ControlledShutdown", broker_id=99, broker_epoch=0).error_code
                == CLUSTER_AUTHORIZATION_FAILED
            )
            tree.create(f"{znodes.BROKER_IDS}/3", json.dumps(node).encode(), ephemeral=True)
            assert send(wire, "ControlledShutdown", broker_id=99, broker_epoch=0).error_code == 8, (
                "there is no broker 99"
            )
    finally:
        tree.close()
