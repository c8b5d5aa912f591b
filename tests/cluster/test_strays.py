"""Logs of replicas that were moved away, and of topics that were deleted or recreated, while a broker was down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.stray_replicas import set_aside_strays
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.cluster.metadata.view import PartitionUpdate, View
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Create, Set
from odradek.ipc import slots
from odradek.storage.files import names

from .simulation.disk import Directory
from .simulation.history import History
from .simulation.seams import installed

SOON_S = 20.0


class Scene:
    """A simulated cluster of three brokers without random faults."""

    def __init__(self) -> None:
        self.history = History(3, unclean=False, brokers=3, aside=0.0)
        self.cluster = self.history.cluster

    def begin(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.start()
        self.until(lambda: not self.cluster.ill(), "all brokers are registered")

    def until(self, there: Any, what: str) -> None:
        world = self.cluster.world
        deadline = world.now + SOON_S
        while not there():
            assert world.now < deadline, f"not within {SOON_S} s: {what}: {self.cluster.ill()}"
            world.run(world.now + 0.1)

    def well(self) -> None:
        """Wait until all brokers agree with the tree."""
        self.until(lambda: not self.cluster.ill(), "it is well")

    def create(self, name: str, *replicas: list[int]) -> None:
        self.cluster.create_topic(name, dict(enumerate(replicas)))
        self.until(lambda: name in self.cluster.topics, "the topic")
        self.well()

    def logs(self, broker: int) -> list[tuple[str, int]]:
        return sorted((one.topic, one.index) for one in self.cluster.brokers[broker].disk.all())

    def directory(self, broker: int) -> Directory:
        """The directory of t-0."""
        (found,) = (one for one in self.cluster.brokers[broker].disk.all() if (one.topic, one.index) == ("t", 0))
        return found


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with installed(made.cluster.world, made.cluster.codec, made.cluster.sockets, 3):
        made.begin()
        yield made


def test_log_of_a_replica_moved_off_a_dead_broker_is_a_stray(scene: Scene) -> None:
    scene.create("t", [3, 1], [1, 3])
    dead = scene.cluster.brokers[3]
    dead.die("is killed")
    scene.until(lambda: scene.cluster.state("t", 0).leader == 1, "another leader")
    scene.cluster.move("t", {0: [1, 2], 1: [1, 2]})
    scene.until(lambda: scene.cluster.topic("t").replicas == {0: [1, 2], 1: [1, 2]}, "the reassignment is complete")
    assert scene.logs(3) == [("t", 0), ("t", 1)]
    dead.start()
    scene.well()
    assert scene.logs(3) == []


def test_log_of_a_topic_deleted_while_a_broker_is_down_is_removed(scene: Scene) -> None:
    scene.create("t", [3, 1])
    scene.create("u", [3, 1])
    dead = scene.cluster.brokers[3]
    dead.die("is killed")
    scene.cluster.delete_topic("t")
    scene.until(scene.cluster.going, "the deletion is requested")
    dead.start()
    scene.well()
    assert scene.logs(3) == [("u", 0)]


def test_topic_with_pending_deletion_is_no_stray(scene: Scene) -> None:
    """The returned broker does not delete the log before the other brokers are back."""
    scene.create("t", [3, 2])
    for number in (2, 3):
        scene.cluster.brokers[number].die("is killed")
    scene.cluster.delete_topic("t")
    scene.cluster.brokers[3].start()
    scene.until(lambda: scene.cluster.brokers[3].registered, "broker 3 is back")
    scene.cluster.world.run(scene.cluster.world.now + 3.0)
    assert scene.logs(3) == [("t", 0)]
    scene.cluster.brokers[2].start()
    scene.well()
    assert scene.logs(3) == []


@pytest.mark.parametrize("replicas", [{0: [1, 2, 3]}, {0: [1]}, {0: [3, 2], 1: [2, 3]}])
def test_topic_recreated_after_the_removal_of_its_nodes_is_served(scene: Scene, replicas: dict[int, list[int]]) -> None:
    scene.create("t", [1, 2, 3], [3, 2, 1])
    lives = {number: broker.lives for number, broker in scene.cluster.brokers.items()}
    scene.cluster.remake_topic("t", replicas)
    scene.cluster.world.run(scene.cluster.world.now + 0.5)
    scene.well()
    assert {number: broker.lives for number, broker in scene.cluster.brokers.items()} == lives, "no broker restarts"


@pytest.mark.parametrize("starts", ["none", "a broker", "all"])
def test_topic_with_malformed_node_is_no_stray(scene: Scene, starts: str) -> None:
    """The logs stay, whichever brokers start meanwhile, and have leaders again once the node is valid."""
    scene.create("t", [3, 1], [1, 3])
    for _ in range(20):
        scene.cluster.produce("t", 0, 3, True)
    scene.cluster.world.run(scene.cluster.world.now + 1.0)
    logs = {number: scene.directory(number) for number in (1, 3)}
    records = {number: list(directory.records) for number, directory in logs.items()}
    assert len(records[3]) == 20
    path = znodes.topic_path("t")
    former = scene.cluster.zookeeper.nodes[path].data
    scene.cluster.tool(lambda tree: tree.multi([Set(path, b"{")]))
    scene.until(lambda: scene.cluster.zookeeper.nodes[path].data == b"{", "nonsense")
    elected = next(one for one in scene.cluster.brokers.values() if one.is_elected)
    dead = {"none": [elected], "a broker": [scene.cluster.brokers[3]], "all": list(scene.cluster.brokers.values())}
    for broker in dead[starts]:
        broker.die("is killed")
    scene.cluster.world.run(scene.cluster.world.now + 15.0)
    for broker in dead[starts]:
        broker.start()
    scene.until(lambda: all(one.registered for one in scene.cluster.brokers.values()), "all are back")
    scene.cluster.world.run(scene.cluster.world.now + 5.0)
    assert all(scene.logs(number) == [("t", 0), ("t", 1)] for number in logs)
    scene.cluster.tool(lambda tree: tree.multi([Set(path, former)]))
    scene.until(lambda: scene.cluster.zookeeper.nodes[path].data == former, "sense")
    scene.well()
    assert {number: scene.directory(number) for number in logs} == logs
    assert {number: directory.records for number, directory in logs.items()} == records


def test_deletion_waits_for_valid_topic_node(scene: Scene) -> None:
    """A controller that cannot decode the node keeps the mark; one that can continues the deletion."""
    scene.create("t", [3, 1], [1, 3])
    path, mark = znodes.topic_path("t"), f"{znodes.DELETE_TOPICS}/t"
    nodes = scene.cluster.zookeeper.nodes
    former = nodes[path].data
    scene.cluster.tool(lambda tree: tree.multi([Set(path, b"{")]))
    scene.until(lambda: nodes[path].data == b"{", "nonsense")
    for broker in scene.cluster.brokers.values():
        broker.die("is killed")
    for broker in scene.cluster.brokers.values():
        broker.start()
    scene.until(lambda: all(one.registered for one in scene.cluster.brokers.values()), "all are back")
    scene.cluster.delete_topic("t")
    scene.until(lambda: mark in nodes, "the mark")
    scene.cluster.world.run(scene.cluster.world.now + 10.0)
    assert mark in nodes and scene.logs(3) == scene.logs(1) == [("t", 0), ("t", 1)]
    scene.cluster.tool(lambda tree: tree.multi([Set(path, former)]))
    scene.until(lambda: path not in nodes and mark not in nodes, "the topic is gone")
    assert scene.logs(3) == scene.logs(1) == []


def test_half_deleted_topic_does_not_return(scene: Scene) -> None:
    """A controller died after it deleted the states; the next one reads the topic's node while a broker is down."""
    scene.create("t", [3, 1], [1, 3])
    path, state, mark = znodes.topic_path("t"), znodes.state_path("t", 0), f"{znodes.DELETE_TOPICS}/t"
    nodes, brokers = scene.cluster.zookeeper.nodes, scene.cluster.brokers
    former = nodes[path].data
    for broker in brokers.values():
        broker.die("is killed")
    scene.cluster.tool(lambda tree: tree.multi([*tree.removal(path)[:-1], Set(path, b"{"), Create(mark)]))
    scene.until(lambda: mark in nodes, "the mark")
    for number in (2, 3):
        brokers[number].start()
    scene.until(lambda: all(brokers[number].registered for number in (2, 3)), "brokers 2 and 3 are back")
    scene.cluster.world.run(scene.cluster.world.now + 5.0)
    scene.cluster.tool(lambda tree: tree.multi([Set(path, former)]))
    scene.cluster.world.run(scene.cluster.world.now + 5.0)
    assert path in nodes and mark in nodes and state not in nodes
    brokers[1].start()
    scene.until(lambda: path not in nodes and mark not in nodes, "the topic is gone")
    assert scene.logs(3) == scene.logs(1) == []


def test_known_topic_with_malformed_node_keeps_leader(scene: Scene) -> None:
    scene.create("t", [3, 1], [1, 3])
    brokers = scene.cluster.brokers
    controller = next(number for number, one in brokers.items() if one.is_elected)
    path = znodes.topic_path("t")
    scene.cluster.tool(lambda tree: tree.multi([Set(path, b"{")]))
    scene.cluster.world.run(scene.cluster.world.now + 1.0)
    dead, index, other = (1, 1, 3) if controller == 3 else (3, 0, 1)
    brokers[dead].die("is killed")
    scene.until(lambda: scene.cluster.state("t", index).leader == other, "another leader")


def test_topic_with_malformed_node_keeps_leader_after_process_restart(scene: Scene) -> None:
    """The next controller process reads the whole tree again; the elected controller has nothing to send."""
    scene.create("t", [3, 1], [1, 3])
    brokers, path = scene.cluster.brokers, znodes.topic_path("t")
    index, leader = next((index, leader) for index, leader in ((0, 3), (1, 1)) if not brokers[leader].is_elected)
    former = brokers[leader].workers.log.get("t", index).slot.state()
    scene.cluster.tool(lambda tree: tree.multi([Set(path, b"{")]))
    scene.until(lambda: scene.cluster.zookeeper.nodes[path].data == b"{", "nonsense")
    brokers[leader].kill_controller()
    scene.until(lambda: brokers[leader].controller is not None, "another process")
    scene.cluster.world.run(scene.cluster.world.now + 3.0)
    state = brokers[leader].workers.log.get("t", index).slot.state()
    assert (state.state, state.incarnation) == (slots.LEADER, former.incarnation)


class Slots:
    """Replicas without slots: logs of unknown topics."""

    def __init__(self, dirs: PartitionDirs) -> None:
        self.view = View(1, "c")
        self.dirs = dirs

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_log_of_unknown_topic_is_renamed_to_stray(tmp_path: Path) -> None:
    data, turns = tmp_path / "data", CheckpointLocks(tmp_path)
    data.mkdir()
    dirs: Any = PartitionDirs([str(data)], turns)
    for topic in "ab":
        dirs.create(topic, 0, topic.encode() * 16)
    dirs.create("b", 1, b"b" * 16)
    told = [
        PartitionUpdate("b", b"b" * 16, index, 1, 2, 0, [2], 0, replicas)
        for index, replicas in ((0, [1, 2]), (1, [2, 3]))
    ]
    replicas: Any = Slots(PartitionDirs([str(data)], turns))
    set_aside_strays(replicas, told)
    left = [entry.name for entry in data.iterdir()]
    assert sorted(name[:3] for name in left) == ["a-0", "b-0", "b-1"]
    assert sorted(name for name in left if not name.endswith(names.STRAY_DIR)) == ["b-0"]


def test_stray_on_failed_disk_does_not_block_recreated_topic(tmp_path: Path) -> None:
    """The stray cannot be renamed there, and its log directory may be unreadable."""
    data = [tmp_path / name for name in ("one", "two")]
    for folder in data:
        folder.mkdir()
    failed: list[int] = []
    dirs: Any = PartitionDirs([str(folder) for folder in data], CheckpointLocks(tmp_path), lambda: failed)
    assert dirs.create("t", 0, b"1" * 16) == 0
    failed.append(0)
    data[0].rename(tmp_path / "gone")
    data[0].touch()
    assert dirs.create("t", 0, b"2" * 16) == 1
    assert [entry.name for entry in data[1].iterdir()] == ["t-0"]


def test_directory_without_a_segment_is_removed(tmp_path: Path) -> None:
    """On a full disk, a replica that is created and moved away leaves such a directory, which has no log to keep."""
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    replicas: Any = Slots(PartitionDirs([str(data)], CheckpointLocks(tmp_path)))
    set_aside_strays(replicas, [])
    (left,) = data.iterdir()
    assert left.name.startswith("t-0.") and left.name.endswith(names.DELETE_DIR)


def test_kraft_metadata_log_is_no_stray(tmp_path: Path) -> None:
    """This log is not one of a partition, and the only store of KRaft's users and ACLs."""
    (tmp_path / "__cluster_metadata-0").mkdir()
    replicas: Any = Slots(PartitionDirs([str(tmp_path)], CheckpointLocks(tmp_path)))
    set_aside_strays(replicas, [])
    assert (tmp_path / "__cluster_metadata-0").is_dir()
