import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.storage.dirs import logdirs
from odradek.storage.dirs.logdirs import LogDir, LogDirError
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import MetaProperties


def close(opened: list[LogDir]) -> None:
    for log_dir in opened:
        if log_dir.lock >= 0:
            os.close(log_dir.lock)


def test_directories_are_made_and_locked(tmp_path: Path) -> None:
    opened = logdirs.open_log_dirs([tmp_path / "a" / "b", tmp_path / "c"])
    assert [d.problem for d in opened] == ["", ""]
    with pytest.raises(LogDirError, match="another broker"):
        logdirs.lock_dir(tmp_path / "c")
    close(opened)
    close([LogDir(tmp_path, "", logdirs.lock_dir(tmp_path / "c"))])


@pytest.mark.live
def test_the_lock_is_freed_when_its_holder_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from odradek.storage.dirs.logdirs import lock_dir as f; "
        "f(sys.argv[1]); print('held', flush=1); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LogDirError):
            logdirs.lock_dir(tmp_path)
        holder.kill()
        holder.wait()
    os.close(logdirs.lock_dir(tmp_path))


@pytest.mark.live
@pytest.mark.parametrize("broker", [None, 7])
def test_a_lock_as_java_takes_it_excludes_us(tmp_path: Path, broker: int | None) -> None:
    code = "import fcntl,sys\nf=open(sys.argv[1],'w')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ninput()"
    lock = str(tmp_path / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LogDirError):
            logdirs.lock_dir(tmp_path, broker)
        holder.kill()


def test_only_processes_of_one_broker_share_a_directory(tmp_path: Path) -> None:
    held = [logdirs.lock_dir(tmp_path, 7) for _ in range(2)]
    for _ in range(2):
        for other in (6, 8, 1 << 62, None):
            with pytest.raises(LogDirError):
                logdirs.lock_dir(tmp_path, other)
        with (tmp_path / ".lock").open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as Java takes it
        assert logdirs.is_in_use(tmp_path)
        os.close(held.pop())
    assert not logdirs.is_in_use(tmp_path)
    alone = logdirs.lock_dir(tmp_path)
    with pytest.raises(LogDirError):
        logdirs.lock_dir(tmp_path, 7)
    os.close(alone)


def test_broken_directory_is_offline_and_the_others_are_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    opened = logdirs.open_log_dirs([tmp_path / "file" / "under", tmp_path / "good"])
    assert opened[0].problem
    assert not opened[1].problem
    close(opened)
    with pytest.raises(LogDirError, match="none of"):
        logdirs.open_log_dirs([tmp_path / "file" / "under"])


def test_the_same_directory_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LogDirError, match="more than once"):
        logdirs.open_log_dirs([tmp_path, tmp_path / "link"])


def test_directories_must_have_the_same_broker_id(tmp_path: Path) -> None:
    dirs = [LogDir(tmp_path / name) for name in "ab"]
    for log_dir in dirs:
        log_dir.path.mkdir()
    checkpoints.write_meta_properties(dirs[0].path, MetaProperties("cluster", 3))
    agreed = logdirs.agree_on_identity(dirs, 3)
    assert agreed == MetaProperties("cluster", 3)
    assert checkpoints.read_meta_properties(dirs[1].path) == agreed
    assert logdirs.agree_on_identity(dirs, 3) == agreed
    with pytest.raises(LogDirError, match=r"belongs to broker\.id 3, not 4"):
        logdirs.agree_on_identity(dirs, 4)
    checkpoints.write_meta_properties(dirs[1].path, MetaProperties("other", 3))
    with pytest.raises(LogDirError, match="they belong to different brokers"):
        logdirs.agree_on_identity(dirs, 3)


def test_warning_for_an_empty_directory_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It looks like a new directory, which Kafka uses without a warning."""
    dirs = [LogDir(tmp_path / name) for name in "abc"]
    for log_dir in dirs[:2]:
        log_dir.path.mkdir()
    agreed = logdirs.agree_on_identity(dirs[:2], 3)
    assert not caplog.records, "all are new"
    for name in (".lock", "odradek-reserve"):
        (dirs[0].path / name).touch()
    (dirs[0].path / "lost+found").mkdir()
    (dirs[0].path / "meta.properties").unlink()
    (dirs[2].path / "t-0").mkdir(parents=True)  # which was moved here
    for _ in range(2):
        assert logdirs.agree_on_identity(dirs, 3) == agreed
    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert said.getMessage().startswith(f"{tmp_path}/a has neither")
    assert all(checkpoints.read_meta_properties(log_dir.path) == agreed for log_dir in dirs)


def test_a_new_cluster_gets_an_id(tmp_path: Path) -> None:
    agreed = logdirs.agree_on_identity([LogDir(tmp_path)], 0)
    assert agreed.cluster_id is not None
    assert len(checkpoints.parse_uuid(agreed.cluster_id)) == 16


def test_partitions_and_other_files(tmp_path: Path) -> None:
    for name in ("b-1", "a-0", "a-1.0f0f-delete", "remote-log-index-cache", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "meta.properties").touch()
    assert [place.path.name for place in logdirs.partitions_in(tmp_path)] == ["a-0", "a-1.0f0f-delete", "b-1"]
    (tmp_path / "photos").mkdir()
    with pytest.raises(LogDirError, match="photos"):
        logdirs.partitions_in(tmp_path)


def test_unlistable_log_directory_may_hold_any_log(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    assert logdirs.holds_only(tmp_path, {("a", 0), ("b", 0)}) and not logdirs.holds_only(tmp_path, {("b", 0)})
    (tmp_path / "b-0").symlink_to("b-0")
    assert not logdirs.holds_only(tmp_path, {("a", 0), ("b", 0)})


def test_two_logs_of_a_partition_are_refused(tmp_path: Path) -> None:
    for name in ("one/a-0", "one/b-1.0f0f-delete", "two/a-1", "two/b-1", "two/b-1.0f0f-stray"):
        (tmp_path / name).mkdir(parents=True)
    one, two = (logdirs.partitions_in(tmp_path / name) for name in ("one", "two"))
    logdirs.refuse_doubles([*one, *two])
    (tmp_path / "one" / "b-1").mkdir()
    with pytest.raises(LogDirError, match=rf"^b-1 has two logs, {tmp_path}/one/b-1 and {tmp_path}/two/b-1: delete one"):
        logdirs.refuse_doubles([*logdirs.partitions_in(tmp_path / "one"), *two])
    (tmp_path / "one" / "a-1").mkdir()
    with pytest.raises(LogDirError, match="and 1 more such"):
        logdirs.refuse_doubles([*logdirs.partitions_in(tmp_path / "one"), *two])


def test_the_lock_is_not_inherited_by_programs_started(tmp_path: Path) -> None:
    fd = logdirs.lock_dir(tmp_path)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(fd)
