"""The file of a backup: private, whole at any time, and refused in one line where it is not one."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from odradek.broker.commands.backup import backup_file
from odradek.broker.commands.backup.saved_cluster import SavedCluster
from odradek.broker.errors import OdradekError
from odradek.storage.files.durable import Files

OLD, NEW = SavedCluster(1, "old"), SavedCluster(2, "new")
STEPS = ("pwrite", "fsync", "rename")


class Interrupted(Files):
    """Files whose given step fails, or ends the process as a kill does."""

    def __init__(self, step: str, error: BaseException) -> None:
        def fail(*_: object) -> None:
            raise error

        setattr(self, step, fail)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_is_private_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    path.write_text("open to all")
    path.chmod(0o644)
    for saved in (OLD, NEW):
        backup_file.write(path, saved)
        assert backup_file.read(path) == saved and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert left(tmp_path) == ["backup.json"]


@pytest.mark.parametrize("step", STEPS)
def test_failed_write_leaves_the_old_file_whole(tmp_path: Path, step: str) -> None:
    path = tmp_path / "backup.json"
    backup_file.write(path, OLD)
    with pytest.raises(OdradekError, match=r"backup\.json cannot be written: No space left on device"):
        backup_file.write(path, NEW, Interrupted(step, OSError(errno.ENOSPC, "No space left on device")))
    assert backup_file.read(path) == OLD and left(tmp_path) == ["backup.json"]


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_write_leaves_the_old_file_whole(tmp_path: Path, step: str) -> None:
    path = tmp_path / "backup.json"
    backup_file.write(path, OLD)
    with pytest.raises(KeyboardInterrupt):
        backup_file.write(path, NEW, Interrupted(step, KeyboardInterrupt()))
    assert backup_file.read(path) == OLD and left(tmp_path) == ["backup.json"]


def test_file_is_synced_before_the_rename_and_its_folder_after(tmp_path: Path) -> None:
    steps: list[str] = []

    class Recorded(Files):
        def fsync(self, fd: int) -> None:
            steps.append("fsync")

        def rename(self, old: object, new: object) -> None:
            steps.append("rename")

        def sync_dir(self, directory: object) -> None:
            steps.append("sync_dir")

    backup_file.write(tmp_path / "backup.json", NEW, Recorded())
    assert steps == ["fsync", "rename", "sync_dir"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "damaged"),
        (b"\xff\xfe", "can't decode"),
        (b'{"version": 9}', "version 9"),
    ],
)
def test_bad_file_is_named_in_one_line(tmp_path: Path, content: bytes | None, text: str) -> None:
    path = tmp_path / "backup.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OdradekError) as caught:
        backup_file.read(path)
    assert text in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_wrong_path_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OdradekError, match="is a directory"):
        backup_file.check_writable(tmp_path)
    with pytest.raises(OdradekError, match="does not exist"):
        backup_file.check_writable(tmp_path / "none" / "backup.json")
