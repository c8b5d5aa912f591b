"""Sequences of valid requests with odd values against the controller and the replicator of a live broker.

All requests of brokers and administrators, in every version: to a broker of a ZooKeeper cluster, which takes the fuzzer
for a broker, to the first of two such brokers, and to a single broker. `ODRADEK_FUZZ_SEED=n` draws other sequences,
`ODRADEK_FUZZ_SEQUENCES=n` sets their number. Requests may stop and delete the topics of the fuzzer, and make brokers
that do not exist their leaders. The topic of the background client is not one of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol import interbroker
from odradek.workers.apis import table

from ..clients.admin import create_named, topic_id
from ..harness.broker import Broker
from ..harness.needs import available
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper
from .background_client import BackgroundClient
from .playing import Target
from .sequences import Api, Player, Pools, Script, script
from .watch import Watch

pytestmark = pytest.mark.live

SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "1"))
LENGTH = 12
MOST_GROWTH, LOOKS = 32 << 20, 10

BETWEEN_BROKERS = (1, 2, 4, 5, 6, 7, 23, 27)
ADMINISTRATION = (3, 19, 20, 21, 32, 33, 35, 37, 43, 44, 45, 46, 48, 50, 60, 61, 74, 75)
WEIGHTS = {1: 4, 4: 6, 5: 4, 6: 4, 19: 3, 37: 2}

TOPICS = [b"fuzz-a", b"fuzz-b", b"fuzz-c", b"fuzz-none"]
INDEXES = [0, 0, 1, 2, 7, -1]
COUNTS = (1, 2, 3, -1, 0, -5, 20_000, (1 << 31) - 1)  # no valid count that takes a minute
HOSTS = (b"127.0.0.1", b"localhost", b"", b"no-such-host.invalid", b"a\0b", b"x" * 300, b"::1")
RESOURCES: dict[str, list[Any]] = {"resource_type": [2, 2, 2, 4, 8], "resource_name": [*TOPICS, b"", b"0"]}
POOLS: Pools = {
    "topic_name": TOPICS, "topic": TOPICS, "name": TOPICS, "topic_names": TOPICS, "topics_names": TOPICS,
    "partition_index": INDEXES, "partition_indexes": INDEXES, "partition": INDEXES, "partitions": INDEXES,
    "partition_id": INDEXES, "leader": [0, 0, 0, 1, 5, -1, -2], "leader_epoch": [0, 1, 2, 3, 100],
    "current_leader_epoch": [-1, 0, 1, 2], "isr": [0, 1, 2], "replicas": [0, 1, 2], "broker_ids": [0, 0, 1],
    "offline_replicas": [0, 1], "controller_id": [0, 0, 0, 5], "broker_epoch": [-1, -1, -1, 0],
    "type": (0, 1), "delete_partition": [0, 1], "replica_id": [0, 1, 5, -1, -2], "is_new": [0, 1],
    "ControlledShutdown.broker_id": (1, 7, -1, (1 << 31) - 1), "host": HOSTS, "host_name": HOSTS, "v0_host": HOSTS,
    "port": (1, 0, -1, 65_536, 99_999), "v0_port": (1, -1), "listener": [b"PLAINTEXT"],
    "security_protocol": [0, 0, 3, 9], "id": [0, 0, 1, 5],
    "max_wait_ms": (0, 10), "min_bytes": (0, 1), "session_epoch": [0, 0, 1, 1, 2],
    "num_partitions": COUNTS, "count": COUNTS,
    "replication_factor": (1, 1, -1, 0, 3, 32_767), "timeout_ms": (0, 100, 1000, -1), "election_type": [0, 1],
    "CreateTopics.CreatableTopicConfig.name": [b"retention.ms"], "value": [b"1000", b"compact", b"", b"x"],
    "config_operation": [0, 1, 2, 3], "producer_id": [0, 1000], "producer_epoch": [0, 1], "fetch_offset": [0, 0, 1, 5],
    **RESOURCES,
}  # fmt: skip
LEARNS = {"session_id": ["session_id"]}
SHARED = ("session_id",)  # so that a worker gets session ids of another one


def apis(clustered: bool) -> list[Api]:
    """The APIs that sequences use."""
    rows = table.served(clustered)
    found = []
    for key in BETWEEN_BROKERS + ADMINISTRATION:
        if key in rows:
            low, high = rows[key].versions
            most = interbroker.message_class(rows[key].name + "Request").max_version
            found.append(Api(rows[key].name, (low, min(high, most)), WEIGHTS.get(key, 1)))
    return found


def controller_epoch(connect: str) -> int:
    tree = ZooKeeperTree(connect)
    try:
        return int(tree.get(znodes.CONTROLLER_EPOCH)[0])
    finally:
        tree.close()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper | None]:
    """None if ZooKeeper is not installed: then only the single broker is tested."""
    if not available("java-3.9.1"):
        yield None
        return
    running = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module", params=["member", "pair", "alone"])
def target(
    request: pytest.FixtureRequest, zookeeper: ZooKeeper | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A broker with a background client; of a pair, the first broker, which is the controller."""
    if request.param != "alone" and zookeeper is None:
        pytest.skip("java-3.9.1 is not installed")
    connect = f"{zookeeper.connect}/{request.param}" if request.param != "alone" and zookeeper else ""
    folder = tmp_path_factory.mktemp(request.param)
    brokers = [
        made_broker(folder / f"broker-{number}", number, connect) for number in range(1 + (request.param == "pair"))
    ]
    try:
        brokers[0].start()
        with brokers[0].wire(60) as wire:
            wait_until(lambda: wire.metadata().controller_id == 0, 60, "a controller")
        background = BackgroundClient(brokers[0])  # its topic is on this broker, since no other one runs yet
        for broker in brokers[1:]:
            broker.start()
        yield _target(brokers, background, connect)
        assert all(not Watch(broker).fault() for broker in brokers[1:])
    finally:
        for broker in brokers:
            broker.close()


def made_broker(folder: Path, number: int, connect: str) -> Broker:
    """A broker that accepts only 127.0.0.1 as an address of other brokers, whatever the fuzzer sends."""
    cluster = {"zookeeper_connect": connect, "odradek_inter_broker_allowed_hosts": "127.0.0.1"} if connect else {}
    return Broker(folder, broker_id=number, **cluster)


def _target(brokers: list[Broker], background: BackgroundClient, connect: str) -> Target:
    broker, played = brokers[0], apis(bool(connect))
    with broker.wire(60) as wire:
        wait_until(lambda: len(wire.metadata().brokers) == len(brokers), 60, "all brokers")
        for name in TOPICS[:3]:
            create_named(wire, name.decode(), 2, len(brokers))
        ids = [topic_id(wire, name.decode()).bytes for name in TOPICS[:3]]
    epoch = controller_epoch(connect) if connect else 1
    pools = {
        **POOLS, "topic_id": ids, "port": (*POOLS["port"], *[each.port for each in brokers]),
        "controller_epoch": [epoch] * 8 + [epoch - 1, epoch + 1, (1 << 31) - 1],
    }  # fmt: skip
    player = Player((broker.host, broker.port), pools, played, LEARNS, SHARED)

    def made(number: int) -> Script:
        return script(f"{SEED}/{number}", played, [{}, {}], LENGTH)

    return Target(broker, Watch(broker), background, player, made, SEED)


def sequences(default: int) -> int:
    """The number of sequences."""
    return int(os.environ.get("ODRADEK_FUZZ_SEQUENCES", default))


@pytest.mark.timeout(900)
def test_hundreds_of_sequences_do_no_harm(target: Target) -> None:
    target.play(range(sequences(200)))
    target.background.check()


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_thousand_sequences_leak_no_memory(target: Target) -> None:
    """The second half of the sequences must not need more memory than the first.

    A request of many MiB leaves a process larger until the allocator returns the memory, a few hundred sequences later
    (a controller went from 66 to 149 MiB and back to 84), so the test compares the minima of some measurements.
    """
    half = sequences(10_000) // 2
    before = _least_memory(target, range(200, 200 + half))
    after = _least_memory(target, range(200 + half, 200 + 2 * half))
    grown = {name: f"{before[name] >> 20} MiB, then {after[name] >> 20}" for name in after}
    print(f"{2 * half} sequences, no harm; least memory in their first half and in their second: {grown}")
    assert not any(after[name] > before[name] + MOST_GROWTH for name in after), grown


def _least_memory(target: Target, some: range) -> dict[str, int]:
    """The least memory of each process, of ten measurements during the second half of these sequences."""
    middle, pace = some.start + len(some) // 2, max(1, len(some) // 2 // LOOKS)
    target.play(range(some.start, middle))
    least: dict[str, int] = {}
    for start in range(middle, some.stop, pace):
        target.play(range(start, min(some.stop, start + pace)))
        for name, size in target.watch.memory().items():
            least[name] = min(size, least.get(name, size))
    return least


def test_records_and_directories_are_intact_after_all_sequences(target: Target) -> None:
    """Runs last: checks the records of the background client, the logs, and that no other directory was created."""
    background = target.background
    assert isinstance(background, BackgroundClient)
    background.finish()
    assert not target.watch.fault()
    target.broker.stop()
    checked = target.broker.command("check", str(target.broker.data_dir))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert directories(target.broker.folder) == {target.broker.data_dir}
    assert {path.name.partition("-")[0] for path in directories(target.broker.folder.parent)} == {"broker"}


def directories(folder: Path) -> set[Path]:
    """The directories in `folder`, where a topic name with dots might create one."""
    return {path for path in folder.iterdir() if path.is_dir()}
