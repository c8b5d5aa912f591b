"""Adoption of log directories: deaths between any two steps, missing log directories."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.controller import adopt_log_dirs
from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.errors import BootError
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.cluster.configs.adopted_configs import UNKNOWN_RETENTION
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Operation
from odradek.ipc import region
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared

from ...cluster import kraft
from .test_adoption_plan import KEEP, A, B, C, made, metadata, partition


class Death(Exception):
    """The process dies here."""


class Mortal(EmbeddedTree):
    """Dies before write number `writes`."""

    writes = -1

    def multi(self, operations: Sequence[Operation]) -> Any:
        self.writes -= 1
        if self.writes == 0:
            raise Death
        return super().multi(operations)


def filled(log_dir: Path) -> None:
    """Fill a log directory so that every kind of step is needed."""
    for name, topic_id in (("known-0", A), ("other-0", B), ("gone-0", C), ("gone-1", C)):
        partition(log_dir, name, topic_id)
    broker_config = [kraft.config(kraft.BROKER_TYPE, "", "log.retention.ms", "-1")]
    metadata(log_dir, made("known", A, *KEEP.items()), made("gone", C), [kraft.remove_topic(C)], broker_config)


def start(
    log_dir: Path, run_dir: Path, writes: int = -1, failed: tuple[int, ...] = (), second: Path | None = None,
    then: Callable[[ClusterState, PartitionDirs], None] = lambda state, dirs: None,
) -> ClusterState:  # fmt: skip
    """Run the controller's first steps, and `then`. The second log directory is present if given, or failed."""
    tree = Mortal(log_dir / "tree.db")
    try:
        state = ClusterState(tree, 0)
        tree.writes = writes
        state.prepare(None)
        adopt_log_dirs.expect(state)
        state.count_start()
        state.load()
        more = [str(second)] if second else [str(log_dir / "missing")] if failed else []
        dirs = PartitionDirs([str(log_dir), *more], CheckpointLocks(run_dir), lambda: failed)
        adopt_log_dirs.adopt_topics(state, dirs, configuration.resolve({}), 1000)
        then(state, dirs)
        return state
    finally:
        tree.writes = -1
        tree.close()


def outcome(state: ClusterState, log_dir: Path) -> Any:
    topics = {name: (topic["id"], topic["config"], len(topic["partitions"])) for name, topic in state.topics.items()}
    return topics, state.dynamic, sorted(path.name.split(".")[0] for path in log_dir.iterdir() if path.is_dir())


def test_a_death_at_any_step_of_a_take_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    filled(tmp_path / "whole")
    wanted = outcome(start(tmp_path / "whole", tmp_path / "run"), tmp_path / "whole")
    assert wanted[0] == {"known": (A.hex(), KEEP, 1), "other": (B.hex(), UNKNOWN_RETENTION, 1)}
    assert wanted[2].count("gone-0") == 1
    for writes in range(1, 1000):
        log_dir = tmp_path / f"died-{writes}"
        filled(log_dir)
        try:
            start(log_dir, tmp_path / "run", writes)
        except Death:
            assert outcome(start(log_dir, tmp_path / "run"), log_dir) == wanted
            continue
        assert writes > 10
        return


def test_logs_added_after_the_adoption_are_not_adopted(tmp_path: Path) -> None:
    start(tmp_path, tmp_path)
    partition(tmp_path, "late-0", A)
    assert start(tmp_path, tmp_path).topics == {}


def test_tree_without_the_adoption_note_is_not_new(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path / "tree.db")
    ClusterState(tree, 0).prepare(None)
    tree.create(znodes.STARTS, b"1")
    tree.close()
    partition(tmp_path, "stray-0", A)
    assert start(tmp_path, tmp_path).topics == {}


def test_a_missing_log_directory_stops_the_take_over(tmp_path: Path) -> None:
    """Otherwise its partitions would start empty, and the directory would never be read again."""
    filled(tmp_path / "data")
    with pytest.raises(BootError, match="missing cannot be used"):
        start(tmp_path / "data", tmp_path, failed=(1,))
    assert start(tmp_path / "data", tmp_path).topics.keys() == {"known", "other"}


def test_logs_in_a_log_directory_that_was_missing_at_first(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert start(tmp_path / "data", tmp_path, failed=(1,)).topics == {}
    partition(tmp_path / "data", "there-0", A)
    assert start(tmp_path / "data", tmp_path).topics.keys() == {"there"}


def make_own(run_dir: Path) -> Callable[[ClusterState, PartitionDirs], None]:
    """Let the broker create the topic `own` with two partitions, as on a client's request."""

    def make(state: ClusterState, dirs: PartitionDirs) -> None:
        shared = Shared.create(f"/odradek-test{secrets.token_hex(4)}-", 1, 4)
        try:
            book = SlotAllocator(shared, PartitionLocks(run_dir / "partition.lock"), 1)
            owner = MetadataOwner(state, dirs, book, configuration.resolve({}), lambda role: None)
            list(owner.create_topic(TopicPlan("own", {0: [0], 1: [0]}, {})))
        finally:
            region.unlink_all(shared.prefix)

    return make


def test_own_topics_made_beside_a_missing_log_directory(tmp_path: Path) -> None:
    """Own topics are no logs of another broker; a returning directory of the same name must not replace their logs."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    own = start(first, tmp_path, failed=(1,), second=second, then=make_own(tmp_path)).topics["own"]["id"]
    assert start(first, tmp_path, failed=(1,), second=second).topics.keys() == {"own"}
    for index in (2, 3, 4):
        partition(second, f"own-{index}", A)
    assert start(first, tmp_path, second=second).topics["own"]["id"] == own
    assert {"own-0", "own-1"} <= {path.name for path in first.iterdir()}


def test_topics_of_the_tree_are_not_taken_over_again(tmp_path: Path) -> None:
    """A tree may have both topics and the note: an earlier release stored the note next to the broker's own topics."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    def make(state: ClusterState, dirs: PartitionDirs) -> None:
        make_own(tmp_path)(state, dirs)
        state.tree.ensure(znodes.ADOPTION)

    own = start(first, tmp_path, failed=(1,), second=second, then=make).topics["own"]["id"]
    assert start(first, tmp_path, failed=(1,), second=second).topics.keys() == {"own"}
    for index in (2, 3, 4):
        partition(second, f"own-{index}", A)
    partition(second, "other-0", B)
    state = start(first, tmp_path, second=second)
    assert (state.topics["own"]["id"], len(state.topics["own"]["partitions"])) == (own, 2)
    assert state.topics.keys() == {"own", "other"}
    assert {"own-0", "own-1"} <= {path.name for path in first.iterdir()}


def test_a_directory_of_a_deleted_topic_is_not_taken_over(tmp_path: Path) -> None:
    """The broker died in the deletion, between the tree and the disk; a log directory was missing since its start."""
    (tmp_path / "data").mkdir()

    def make_and_delete(state: ClusterState, dirs: PartitionDirs) -> None:
        make_own(tmp_path)(state, dirs)
        state.delete_topic("own")

    start(tmp_path / "data", tmp_path, failed=(1,), then=make_and_delete)
    assert start(tmp_path / "data", tmp_path, failed=(1,)).topics == {}


def test_symbolic_link_of_a_stray_is_set_aside(tmp_path: Path) -> None:
    filled(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "gone-0" / "00000000000000000000.log").touch()
    (tmp_path / "data").mkdir()
    for path in (tmp_path / "elsewhere").iterdir():
        (tmp_path / "data" / path.name).symlink_to(path)
    start(tmp_path / "data", tmp_path)
    assert not (tmp_path / "data" / "gone-0").exists()
    (stray,) = (tmp_path / "data").glob("gone-0.*-stray")
    assert stray.is_symlink() and stray.samefile(tmp_path / "elsewhere" / "gone-0")


def test_a_partitions_directory_may_be_a_link(tmp_path: Path) -> None:
    """Administrators move partitions to other disks by hand, and Kafka follows such links."""
    data, elsewhere, run_dir = tmp_path / "data", tmp_path / "elsewhere", tmp_path / "run"
    for path in (data, elsewhere, run_dir):
        path.mkdir()
    (data / "t-3").symlink_to(elsewhere)
    (data / "t-4").write_text("")
    assert PartitionDirs([str(data)], CheckpointLocks(run_dir)).found() == [("t", 3)]
