"""Cold records: probed without waiting, read ahead, sent when they are there."""

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
    """A worker that remembers what is to be tried again, and what was answered."""

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


def test_what_was_read_is_cached(cold: FileSlice) -> None:
    cold.read()
    assert cached(cold)


def test_a_near_slice_is_sent_without_a_look(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: pytest.fail("probed"))
    cold.far = False
    worker = _Later()
    answer(worker, [b"head", cold])
    assert worker.sent == [[b"head", cold]]


def test_a_cold_slice_waits_until_it_is_there(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(pager, "cached", lambda piece: next(answers))
    worker = _Later()
    answer(worker, [b"head", cold])
    (work,) = worker.work
    assert not work()
    assert not worker.sent
    assert work()
    assert len(worker.sent) == 1


def test_a_client_that_is_gone_is_not_waited_for(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: False)
    worker = _Later()
    answer(worker, [cold])
    worker.connection.closed = True
    assert worker.work[0]()
    assert not worker.sent


def test_the_wait_for_the_disk_ends(cold: FileSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "cached", lambda piece: False)
    monkeypatch.setattr(pager, "TIMEOUT_S", -1.0)
    worker = _Later()
    answer(worker, [cold])
    assert worker.work[0]()
    assert len(worker.sent) == 1


def test_reading_ahead_brings_it_in(cold: FileSlice) -> None:
    """On a disk the slice is cold and comes in; on tmpfs it never was."""
    worker = _Later()
    answer(worker, [cold])
    while worker.work and not worker.work[0]():
        pass
    assert len(worker.sent) == 1
    wait_until(lambda: cached(cold), 60, "all of it")  # from a slow disk after the timeout
