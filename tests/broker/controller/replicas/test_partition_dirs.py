"""Directories of deleted partitions that cannot be renamed: the rename is retried, and logged once."""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.controller.replicas.stray_replicas import set_aside_strays
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.state import ClusterState
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.ipc import region
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared
from odradek.storage.files.durable import FILES

from .test_controller_requests import real_replicas, told

RENAME = os.rename
refusals = pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Renames of directories fail."""

    def rename(old: Any, new: Any, **arguments: Any) -> None:
        if os.path.isdir(old):
            raise OSError(number, os.strerror(number), str(old))
        RENAME(old, new, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        yield


def left(data: Path) -> list[str]:
    """Directory names, without their random parts."""
    return sorted(path.name[:3] + path.name.rpartition("-")[2] for path in data.iterdir() if path.is_dir())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def led(replicas: ReplicaManager, topic_id: bytes = b"t" * 16, epoch: int = 0) -> None:
    replicas.become(told(replicas=[0], epoch=epoch)._replace(leader=0, topic_id=topic_id))


@refusals
def test_a_deleted_replica_goes_when_the_disk_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    with real_replicas(tmp_path) as replicas:
        led(replicas)
        with refused(monkeypatch, number):
            assert replicas.stop("t", 0, -1, True) == 0
            for _ in range(3):
                replicas.retry(replicas.dirs.due())
        assert left(tmp_path / "data") == ["t-00"]
        assert [text.split(":")[0] for text in warnings(caplog)] == ["t-0"]
        replicas.retry(replicas.dirs.due())
        assert left(tmp_path / "data") == ["t-0delete"]
        assert replicas.dirs.due() == float("inf")


def test_new_log_of_the_same_name_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a log of another topic nor of the same one, moved away and back: the new log waits for the deletion."""
    with real_replicas(tmp_path) as replicas:
        for epoch, topic_id in enumerate((b"t" * 16, b"u" * 16, b"u" * 16)):
            with refused(monkeypatch, errno.EACCES):
                if epoch:
                    assert replicas.stop("t", 0, -1, True) == 0
                    replicas.view.forget("t")
                led(replicas, topic_id, epoch)
                assert (replicas.partition("t", 0) is None) == bool(epoch)
            replicas.retry(max(replicas.dirs.due(), replicas.due()) if epoch else 0)
            assert replicas.partition("t", 0) is not None
            assert left(tmp_path / "data") == ["t-00"] + ["t-0delete"] * epoch
            assert replicas.dirs.topic_id("t", 0) == topic_id


def test_stray_log_is_renamed_when_the_disk_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if its deletion was requested: a full LeaderAndIsr request does not change that."""
    with real_replicas(tmp_path) as replicas:
        for topic in ("t", "u"):
            replicas.dirs.create(topic, 0, topic.encode() * 16)
        with refused(monkeypatch, errno.EIO):
            replicas.dirs.put_away("t", 0, replicas.dirs.retire)
            set_aside_strays(replicas, [])
        replicas.retry(replicas.dirs.due())
        assert left(tmp_path / "data") == ["t-0delete", "u-0stray"]
        assert [text.split(":")[0] for text in warnings(caplog)][:2] == ["t-0", "u-0"]
        assert "u-0 is a stray replica" in warnings(caplog)[2]


def test_deletion_in_a_failed_directory_waits_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []
    dirs = PartitionDirs([str(tmp_path)], CheckpointLocks(tmp_path), lambda: failed)
    dirs.create("t", 0, b"t" * 16)
    with refused(monkeypatch, errno.EIO):
        dirs.put_away("t", 0, dirs.retire)
    failed.append(0)
    dirs.retry(dirs.due())
    assert left(tmp_path) == ["t-00"]
    assert dirs.due() == float("inf")


@refusals
def test_a_topic_is_deleted_though_the_disk_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    with owned(tmp_path) as owner:
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        done: list[Any] = []
        with refused(monkeypatch, number):
            owner.delete_topic("t", done.append)
            assert done == [None]
            with pytest.raises(ApiError):
                list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
            monkeypatch.setattr("time.monotonic", owner.due)
            owner.tick()
        assert [text.split(":")[0] for text in warnings(caplog)].count("t-0") == 1
        monkeypatch.setattr("time.monotonic", owner.due)
        owner.tick()
        assert left(tmp_path / "data") == ["t-0delete"]
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        assert left(tmp_path / "data") == ["t-00", "t-0delete"]


def test_a_deletion_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the disk still refuses the rename, it is retried."""
    with owned(tmp_path) as owner:
        for name in ("t", "u"):
            list(owner.create_topic(TopicPlan(name, {0: [0]}, {})))
        with refused(monkeypatch, errno.EACCES):
            owner.delete_topic("t", lambda error: None)
            second = restarted(tmp_path, owner)
        assert left(tmp_path / "data") == ["t-00", "u-00"] and len(second.state.unrenamed()) == 1
        third = restarted(tmp_path, second)
        assert left(tmp_path / "data") == ["t-0delete", "u-00"] and third.state.unrenamed() == []
        assert {text.split(":")[0] for text in warnings(caplog)} == {"t-0"}


def test_a_deletion_in_a_log_directory_that_failed_is_finished_when_it_is_mended(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        away = restarted(tmp_path, owner, failed=(0,))
        away.delete_topic("t", lambda error: None)
        assert "t" not in away.topics
        restarted(tmp_path, restarted(tmp_path, away, failed=(0,)))
        assert left(tmp_path / "data") == ["t-0delete"]


def test_a_rename_that_a_power_failure_may_undo_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owned(tmp_path) as owner:
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        monkeypatch.setattr(type(FILES), "sync_dir", broken)
        owner.delete_topic("t", lambda error: None)
        monkeypatch.undo()
        assert len(owner.state.unrenamed()) == 1
        (gone,) = tmp_path.glob("data/t-0*")
        gone.rename(tmp_path / "data" / "t-0")  # as after a power failure
        restarted(tmp_path, owner)
        assert left(tmp_path / "data") == ["t-0delete"]


@pytest.mark.parametrize("twice", [False, True])
def test_a_deletion_is_finished_once_its_renames_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """Also renames of a start that ended before it had synced them: the next start has nothing to rename."""
    with owned(tmp_path) as owner:
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        with refused(monkeypatch, errno.EACCES):
            owner.delete_topic("t", lambda error: None)
        with monkeypatch.context() as patch:
            patch.setattr(type(FILES), "sync_dir", broken)
            for _ in range(1 + twice):
                owner = restarted(tmp_path, owner)
        assert left(tmp_path / "data") == ["t-0delete"] and len(owner.state.unrenamed()) == 1
        assert restarted(tmp_path, owner).state.unrenamed() == []


def test_a_rename_of_a_process_before_may_be_undone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former process was killed before its sync: the next one, with nothing to rename, completes the deletion."""
    with owned(tmp_path) as owner:
        list(owner.create_topic(TopicPlan("t", {0: [0]}, {})))
        owner.dirs.retire("t", 0)
        with monkeypatch.context() as patch:
            patch.setattr(type(FILES), "sync_dir", broken)
            dirs = PartitionDirs(owner.dirs.log_dirs, CheckpointLocks(tmp_path / "run"))
            assert not dirs.all_renamed("t")
        assert dirs.all_renamed("t")


def broken(*_: Any) -> None:
    raise OSError(errno.EIO, "broken")


def test_a_directory_of_no_topic_is_named_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The metadata may be a backup that is older than the topic."""
    with owned(tmp_path) as owner:
        PartitionDirs([str(tmp_path / "data")], CheckpointLocks(tmp_path)).create("t", 0, b"t" * 16)
        restarted(tmp_path, owner)
        assert left(tmp_path / "data") == ["t-00"]
        (text,) = warnings(caplog)
        assert str(tmp_path / "data" / "t-0") in text and text.startswith("ignoring 1 directories")


def test_a_log_directory_that_cannot_be_listed_goes_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The controller process must not end, nor its successor, until the broker has no log directory left."""
    for name in ("one/t-0", "two/u-0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "two" / "v-0").symlink_to("v-0")
    failed: set[int] = set()
    folders = [str(tmp_path / name) for name in ("one", "two")]
    dirs = PartitionDirs(folders, CheckpointLocks(tmp_path), lambda: failed, failed.add)
    assert failed == {1} and dirs.found() == [("t", 0)]
    assert f"log directory {tmp_path / 'two'} is offline: cannot read it" in caplog.text


def test_lack_of_descriptors_takes_no_log_directory_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lack is temporary, but an offline log directory stays offline until the next start."""
    failed: set[int] = set()

    def scan(path: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="open files"):
        patch.setattr(os, "scandir", scan)
        PartitionDirs([str(tmp_path)], CheckpointLocks(tmp_path), lambda: failed, failed.add)
    assert not failed


def test_an_id_that_cannot_be_read_holds_up_no_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the id of a known topic nor that of another one, which may be a deleted topic: its notes stay."""
    with owned(tmp_path) as owner:
        for name in ("t", "u"):
            list(owner.create_topic(TopicPlan(name, {0: [0]}, {})))
        away = restarted(tmp_path, owner, failed=(0,))
        away.delete_topic("t", lambda error: None)
        readable = {name: unreadable(tmp_path / "data" / name / "partition.metadata") for name in ("t-0", "u-0")}
        second = restarted(tmp_path, away)
        assert left(tmp_path / "data") == ["t-00", "u-00"] and len(second.state.unrenamed()) == 1
        assert any("u-0" in text and "cannot read" in text for text in warnings(caplog))
        for again in readable.values():
            again()
        third = restarted(tmp_path, second)
        assert left(tmp_path / "data") == ["t-0delete", "u-00"] and third.state.unrenamed() == []


def unreadable(path: Path) -> Callable[[], None]:
    """Make the file unreadable, also for root, but not missing; the returned function repairs it."""
    text = path.read_text()
    path.unlink()
    path.mkdir()

    def mend() -> None:
        path.rmdir()
        path.write_text(text)

    return mend


def restarted(folder: Path, owner: MetadataOwner, failed: tuple[int, ...] = ()) -> MetadataOwner:
    """Stop the broker and start it with the remaining state."""
    state = ClusterState(owner.state.tree, 0)
    state.load()
    dirs = PartitionDirs([str(folder / "data")], CheckpointLocks(folder / "run"), lambda: failed)
    made = MetadataOwner(state, dirs, owner.slot_allocator, owner.config, lambda role: None)
    made.open_partitions(None)
    return made


@contextmanager
def owned(folder: Path) -> Iterator[MetadataOwner]:
    """A broker without processes."""
    data, run = folder / "data", folder / "run"
    for path in (data, run):
        path.mkdir()
    tree = EmbeddedTree(data / "tree.db")
    shared = Shared.create(f"/odradek-test{secrets.token_hex(4)}-", 1, 4)
    try:
        state = ClusterState(tree, 0)
        state.prepare(None)
        state.load()
        book = SlotAllocator(shared, PartitionLocks(run / "partition.lock"), 1)
        config = configuration.resolve({"log.dirs": str(data)})
        yield MetadataOwner(state, PartitionDirs([str(data)], CheckpointLocks(run)), book, config, lambda role: None)
    finally:
        tree.close()
        region.unlink_all(shared.prefix)
