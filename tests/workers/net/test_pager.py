"""Cold records: the pager probes without waiting, reads ahead, and sends them once they are cached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.workers.net import pager
from odradek.workers.net.pager import Pager, cached

from ...harness.process import wait_until

SIZE = 4 << 20


class _Later:
    """A worker that records retried work and answers."""

    def __init__(self) -> None:
        self.work: list[Callable[[], bool]] = []
        self.sent: list[Any] = []
        self.connection: Any = SimpleNamespace(closed=False)

    def again(self, work: Callable[[], bool], connection: Any) -> None:
        assert connection is self.connection
        self.work.append(work)


def answer(worker: Any, pieces: list[Any]) -> None:
    Pager(lambda _, pieces: worker.sent.append(pieces), worker.again).answer(worker.connection, pieces)


@pytest.fixture
def cold(tmp_path: Path) -> FileSlice:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    file = OpenFile(str(path))
    os.fsync(file.fd)
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return FileSlice(file, 0, SIZE, far=True)


def test_slice_is_cached_after_a_read(cold: FileSlice) -> None:
    cold.read()
    assert cached(cold)


def test_near_slice_is_sent_without_a_probe(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: pytest.fail("probed"))
    cold.far = False
    worker = _Later()
    answer(worker, [b"head", cold])
    assert worker.sent == [[b"head", cold]]


def test_cold_slice_is_sent_once_it_is_cached(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(pager, "cached", lambda piece: next(answers))
    worker = _Later()
    answer(worker, [b"head", cold])
    (work,) = worker.work
    assert not work()
    assert not worker.sent
    assert work()
    assert len(worker.sent) == 1


def test_cold_slice_of_a_closed_connection_is_dropped(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: False)
    worker = _Later()
    answer(worker, [cold])
    worker.connection.closed = True
    assert worker.work[0]()
    assert not worker.sent


def test_cold_slice_is_sent_after_the_timeout(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: False)
    monkeypatch.setattr(pager, "TIMEOUT_S", -1.0)
    worker = _Later()
    answer(worker, [cold])
    assert worker.work[0]()
    assert len(worker.sent) == 1


def test_read_ahead_caches_a_cold_slice(cold: FileSlice) -> None:
    """On a disk the slice is cold at first; on tmpfs it is always cached."""
    worker = _Later()
    answer(worker, [cold])
    while worker.work and not worker.work[0]():
        pass
    assert len(worker.sent) == 1
    wait_until(lambda: cached(cold), 60, "all of it")  # from a slow disk after the timeout
