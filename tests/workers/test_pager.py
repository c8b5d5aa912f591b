"""Cold records: probed without waiting, read ahead, sent when they are there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek.storage.openfile import FileSlice, OpenFile
from odradek.workers import pager
from odradek.workers.pager import Pager, cached

from ..harness.process import wait_until

SIZE = 4 << 20


class _Later:
    """A worker that remembers what is to be tried again."""

    def __init__(self) -> None:
        self.work: list[Callable[[], bool]] = []

    def again(self, work: Callable[[], bool]) -> None:
        self.work.append(work)


@pytest.fixture
def cold(tmp_path: Path) -> FileSlice:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    file = OpenFile(str(path))
    os.fsync(file.fd)
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return FileSlice(file, 0, SIZE, far=True)


def test_what_was_read_is_cached(cold: FileSlice) -> None:
    cold.read()
    assert cached(cold)


def test_a_near_slice_is_sent_without_a_look(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: pytest.fail("probed"))
    cold.far = False
    sent: list[int] = []
    Pager(_Later()).when_cached([b"head", cold], lambda: sent.append(1))  # type: ignore[arg-type]
    assert sent == [1]


def test_a_cold_slice_waits_until_it_is_there(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(pager, "cached", lambda piece: next(answers))
    worker, sent = _Later(), []
    Pager(worker).when_cached([b"head", cold], lambda: sent.append(1))  # type: ignore[arg-type]
    (work,) = worker.work
    assert not work()
    assert not sent
    assert work()
    assert sent == [1]


def test_patience_ends(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: False)
    monkeypatch.setattr(pager, "PATIENCE_S", -1.0)
    worker, sent = _Later(), []
    Pager(worker).when_cached([cold], lambda: sent.append(1))  # type: ignore[arg-type]
    assert worker.work[0]()
    assert sent == [1]


def test_reading_ahead_brings_it_in(cold: FileSlice) -> None:
    """On a disk the slice is cold and comes in; on tmpfs it never was."""
    worker, sent = _Later(), []
    Pager(worker).when_cached([cold], lambda: sent.append(1))  # type: ignore[arg-type]
    while worker.work and not worker.work[0]():
        pass
    assert sent == [1]
    wait_until(lambda: cached(cold), 60, "all of it")  # from a slow disk after patience has ended
