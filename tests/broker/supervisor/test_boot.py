"""The state of the log directories at a start, before any process runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.errors import BootError
from odradek.broker.supervisor import boot
from odradek.broker.supervisor.boot import Boot
from odradek.storage.dirs import logdirs
from odradek.storage.files import checkpoints
from odradek.storage.files.durable import FILES


@contextmanager
def booted(folder: Path) -> Iterator[Boot]:
    """Two log directories after a clean stop; no sockets, no processes."""
    paths = [folder / name for name in ("one", "two")]
    for path in paths:
        path.mkdir(exist_ok=True)
    settings = {"log.dirs": ",".join(map(str, paths)), "odradek.run.dir": str(folder / "run")}
    lock, locked = logdirs.lock_dir, list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logdirs, "lock_dir", lambda *args, **options: locked.append(lock(*args, **options)) or locked[-1])
        made = boot.prepare(configuration.resolve(settings), listen=False)
    try:
        yield made
    finally:
        made.leave()
        for fd in locked:  # the end of the process releases locks in the same way
            os.close(fd)


def marks(folder: Path) -> list[bool]:
    return [(folder / name / checkpoints.CLEAN_SHUTDOWN).exists() for name in ("one", "two")]


def leave_marks(folder: Path) -> None:
    with booted(folder):
        pass
    for name in ("one", "two"):
        checkpoints.mark_clean_shutdown(folder / name)


def test_the_mark_of_a_clean_stop_counts_once(tmp_path: Path) -> None:
    leave_marks(tmp_path)
    for clean in (True, False):
        with booted(tmp_path) as made:
            assert made.config.clean == (clean, clean) and marks(tmp_path) == [False, False]


@pytest.mark.parametrize("call", ["unlink", "sync_dir"])
def test_log_directory_whose_mark_cannot_be_removed_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Otherwise, after a death of this run, the next start would skip the recovery of its writes."""
    leave_marks(tmp_path)
    real = getattr(type(FILES), call)

    def refusing(files: Any, path: Any) -> None:
        if str(path).startswith(str(tmp_path / "two")):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        real(files, path)

    monkeypatch.setattr(type(FILES), call, refusing)
    with booted(tmp_path) as made:
        assert made.config.clean == (True, False) and made.shared.failed_dirs() == [1]
        assert f"{tmp_path / 'two'} is offline: cannot remove {checkpoints.CLEAN_SHUTDOWN}" in caplog.text


@contextmanager
def unlisted(log_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int = errno.EIO) -> Iterator[None]:
    """The disk fails to list a directory."""
    scandir = os.scandir

    def scan(path: Any) -> Any:
        if Path(path) == log_dir:
            raise OSError(number, os.strerror(number), str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan)
        yield


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_log_directory_that_cannot_be_listed_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    leave_marks(tmp_path)
    with unlisted(tmp_path / "two", monkeypatch, number), booted(tmp_path) as made:
        assert made.config.clean == (True, False) and made.shared.failed_dirs() == [1]
    assert f"{tmp_path / 'two'} is offline: it cannot be read: {os.strerror(number)}" in caplog.text
    assert marks(tmp_path) == [False, True]


def test_a_link_in_a_log_directory_that_the_disk_does_not_follow_takes_it_offline(tmp_path: Path) -> None:
    """The link may be a partition's: if it were ignored, the log would be created again, empty."""
    leave_marks(tmp_path)
    (tmp_path / "two" / "t-0").symlink_to("t-0")
    with booted(tmp_path) as made:
        assert made.shared.failed_dirs() == [1]


def test_a_log_directory_whose_identity_cannot_be_read_is_offline(tmp_path: Path) -> None:
    """In contrast to a damaged identity, which may be another broker's."""
    leave_marks(tmp_path)
    (tmp_path / "two" / checkpoints.META_PROPERTIES).unlink()
    (tmp_path / "two" / checkpoints.META_PROPERTIES).mkdir()  # gives an error, also for root
    with booted(tmp_path) as made:
        assert made.shared.failed_dirs() == [1]
    (tmp_path / "one" / checkpoints.META_PROPERTIES).write_text("nonsense")
    with pytest.raises(BootError, match="restore it"), booted(tmp_path):
        pass


def test_a_start_without_any_log_directory_that_can_be_listed_is_refused(tmp_path: Path) -> None:
    leave_marks(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name / "t-0").symlink_to("t-0")
    with (
        pytest.raises(BootError, match=r"none of log.dirs can be used: .*one: it cannot be read.*two"),
        booted(tmp_path),
    ):
        pass
    assert marks(tmp_path) == [True, True]


def test_a_log_directory_that_is_offline_keeps_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_marks(tmp_path)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "two" and access(path, mode))
    with booted(tmp_path) as made:
        assert made.config.clean == (True, False) and made.shared.failed_dirs() == [1]
    assert marks(tmp_path) == [False, True]
