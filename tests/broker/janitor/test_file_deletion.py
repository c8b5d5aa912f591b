"""Deletion of files and directories after their delay."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor import file_deletion, log_retention

from ..partitions import now_ms
from .benches import Maker


def test_deleted_files_wait_for_their_delay(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_ms=1, file_delete_delay_ms=60_000)
    for _ in range(3):
        log.append(timestamp=1)
    log_retention.Retention().trim(log.partition(), now_ms())
    marked = log.files(".deleted")
    assert marked
    assert file_deletion.remove_segments(log.partition(), now_ms()) == (0, len(marked))
    assert file_deletion.remove_segments(log.partition(), now_ms() + 60_001) == (len(marked), 0)
    assert not log.files(".deleted")


def test_failed_removal_delays_no_other(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench(segment_bytes=200, retention_ms=1, file_delete_delay_ms=0)
    for _ in range(3):
        log.append(timestamp=1)
    directory = Path(log.partition().directory)
    (directory / "kept.deleted").mkdir()
    log_retention.Retention().trim(log.partition(), now_ms())
    stuck = log.files(".log.deleted")[0]
    unlink = os.unlink

    def unlink_or_refuse(path: str) -> None:
        if os.path.basename(path) == stuck:
            raise PermissionError(errno.EPERM, "an immutable file", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlink_or_refuse)
    for _ in range(2):
        with pytest.raises(PermissionError, match="immutable"):
            file_deletion.remove_segments(log.partition(), now_ms())
        assert set(log.files(".deleted")) == {"kept.deleted", stuck}
    monkeypatch.undo()
    assert file_deletion.remove_segments(log.partition(), now_ms()) == (1, 0)


def test_directory_that_cannot_be_removed_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance a mount point; its contents are deleted."""
    doomed = tmp_path / f"t-0.{'0' * 32}-delete"
    doomed.mkdir()
    (doomed / "file").touch()
    told: list[tuple[str, OSError]] = []

    def busy(path: str, **_: Any) -> None:
        raise OSError(errno.EBUSY, "busy", path)

    monkeypatch.setattr(os, "rmdir", busy)
    found = file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0, lambda *what: told.append(what))
    monkeypatch.undo()
    assert found == (0, 1) and [path for path, _ in told] == [str(doomed)]
    assert not (doomed / "file").exists()
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (1, 0)


def test_a_link_to_a_directory_is_removed_alone(tmp_path: Path) -> None:
    """Administrators move partitions to other disks by hand."""
    elsewhere, link = tmp_path / "elsewhere", tmp_path / f"t-1.{'0' * 32}-delete"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    link.symlink_to(elsewhere)
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (1, 0)
    assert not link.is_symlink() and (elsewhere / "file").exists()


@pytest.mark.parametrize("target", ["gone", "itself"])
def test_a_link_that_leads_nowhere_is_removed(tmp_path: Path, target: str) -> None:
    """The disk of its target is not mounted. Other pending deletions continue."""
    link, doomed = (tmp_path / f"t-{number}.{'0' * 32}-delete" for number in (1, 2))
    link.symlink_to(link if target == "itself" else tmp_path / "gone")
    doomed.mkdir()
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (2, 0)
    assert list(tmp_path.iterdir()) == []


def test_only_marked_directories_are_removed(tmp_path: Path) -> None:
    doomed = tmp_path / f"t-0.{'0' * 32}-delete"
    kept = [tmp_path / "t-1", tmp_path / f"t-2.{'0' * 32}-stray", tmp_path / "nonsense-delete"]
    for path in (doomed, *kept):
        path.mkdir()
        (path / "file").touch()
    assert file_deletion.remove_directories(str(tmp_path), now_ms(), 60_000) == (0, 1)
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 60_001, 60_000) == (1, 0)
    assert not doomed.exists()
    assert all(path.exists() for path in kept)
