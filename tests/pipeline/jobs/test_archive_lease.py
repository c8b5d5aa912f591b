"""An archive's lease: only one of two jobs writes, and the lease of a dead job is taken over."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import lease
from odradek.pipeline.jobs.archive.store.lease import LEASE, PATIENCE, Lease
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.files import Files

from ...harness.process import wait_until
from .stores import Died, Overtaken, after_death

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def test_second_job_is_refused_while_the_first_holds_the_lease(spark: SparkSession, tmp_path: Path) -> None:
    busy = pytest.raises(PipelineError, match=f"the job of process {os.getpid()} on .* is writing to this archive")
    with Store(Files(spark, str(tmp_path))), busy:
        Store(Files(spark, str(tmp_path))).__enter__()
    with Store(Files(spark, str(tmp_path))):
        pass


@pytest.mark.parametrize("lives", [True, False])
def test_lease_of_another_machine_is_watched_before_it_is_taken(
    spark: SparkSession, tmp_path: Path, lives: bool
) -> None:
    """The state of its processes is unknown."""
    files = Files(spark, str(tmp_path))
    held = {"id": "theirs", "beat": 1, "machine": "m", "host": "far-away", "pid": 1, "started": "1"}
    files.write(LEASE, json.dumps(held))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if lives and len(waits) == 9:
            files.write(LEASE, json.dumps({**held, "beat": 2}))

    lease = Lease(files)
    if lives:
        with pytest.raises(PipelineError, match="process 1 on far-away is writing to this archive"):
            lease.take(sleep)
    else:
        lease.take(sleep)
        lease.check()
        lease.release()
    assert sum(waits) == (9 if lives else PATIENCE)
    assert files.exists(LEASE) == lives


def test_one_of_two_jobs_takes_a_dead_lease(spark: SparkSession, tmp_path: Path) -> None:
    """The fast one takes it before any step of the slow one."""
    for at in count():
        folder = tmp_path / str(at)
        plain = Files(spark, str(folder))
        Lease(plain).take()
        after_death(folder)
        fast = Lease(plain)
        files = Overtaken(spark, str(folder), at, fast.take)
        slow = Lease(files)
        files.arm()
        try:
            slow.take()
        except PipelineError as error:
            assert "is writing to this archive" in str(error)
            fast.check()
            fast.release()
        else:
            break
    files.left = None
    slow.check()
    slow.release()
    assert at == 6, "the fast job must come before each step"
    assert not [path for path in (folder / "_odradek").rglob("*") if path.is_file()]


def test_lease_of_a_process_hidden_from_proc_is_watched(spark: SparkSession, tmp_path: Path) -> None:
    """With systemd's ProtectProc, /proc hides processes of other users: a missing entry in /proc proves no death.

    The test uses a process group: it exists, and /proc has no entry with its negative number.
    """
    files, waits = Files(spark, str(tmp_path)), list[float]()
    hidden = {"id": "theirs", "beat": 1, **lease._me(), "pid": -os.getpgrp()}
    with subprocess.Popen("true") as ended:
        pass
    for held, waited in ((hidden, PATIENCE), ({**hidden, "pid": ended.pid}, 0)):
        waits.clear()
        files.write(LEASE, json.dumps(held))
        mine = Lease(files)
        mine.take(waits.append)
        mine.release()
        assert sum(waits) == waited


class Faulty(Files):
    """Files with temporary read errors."""

    faults = 0

    def read(self, path: str) -> str:
        if self.faults > 0:
            self.faults -= 1
            raise PipelineError(f"{path}: the network is down")
        return super().read(path)


def test_lease_renewal_survives_temporary_errors(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise another machine would presume a running job dead."""
    files = Faulty(spark, str(tmp_path))
    lease = Lease(files, renewed=0.01)
    lease.take()
    files.faults = 3
    wait_until(lambda: files.faults == 0, 60, "the renewal is retried")
    first = files.read(LEASE)
    wait_until(lambda: files.read(LEASE) != first, 60, "the lease is renewed")
    lease.check()
    lease.release()


def test_lease_is_renewed_until_its_release(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    lease = Lease(files, renewed=0.01)
    lease.take()
    first = files.read(LEASE)
    wait_until(lambda: files.read(LEASE) != first, 60, "the lease is renewed")
    lease.release()
    assert not files.exists(LEASE)


def test_lease_is_not_written_after_its_release(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends during a renewal; the next job, in the same process, may start."""
    files = Files(spark, str(tmp_path))
    writes, goes_on, write = threading.Event(), threading.Event(), files.write

    def waits(path: str, text: str) -> None:
        writes.set()
        goes_on.wait(60)
        write(path, text)

    monkeypatch.setattr(files, "write", waits)
    before = {*threading.enumerate()}
    lease = Lease(files, renewed=0.01)
    lease.take()
    (renewing,) = {*threading.enumerate()} - before
    assert writes.wait(60)
    release = threading.Thread(target=lease.release)
    release.start()
    release.join(1)  # a former version deleted the lease here
    goes_on.set()
    release.join()
    renewing.join()
    assert not files.exists(LEASE)


def test_lost_lease_is_an_error_and_is_not_deleted(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    lease = Lease(files)
    lease.take()
    lease.check()
    files.write(LEASE, files.read(LEASE).replace('"id": "', '"id": "x'))
    with pytest.raises(PipelineError, match="took over this archive"):
        lease.check()
    lease.release()
    assert files.exists(LEASE), "the lease belongs to another job"


ROOM = "_odradek/staging/room"


class _Presumed:
    """A job that was presumed dead ends: before its step `at` another takes its lease, and `after` steps later does
    `what`. `came`: what has happened.
    """

    def __init__(self, spark: SparkSession, folder: Path, at: int, after: int, what: Callable[[Lease], object]) -> None:
        self._folder, self._after, self._what = folder, after, what
        self.came: list[str] = []
        self._owned = Files(spark, str(folder))
        self.owner = Lease(self._owned)
        self._files = Overtaken(spark, str(folder), at, self._take_over)
        job = Lease(self._files)
        job.take()
        self._files.arm()
        with suppress(Died):
            job.release()

    def _take_over(self) -> None:
        self.came.append("takeover")
        after_death(self._folder)
        self.owner.take()
        self._owned.make(ROOM)  # as Store does
        self._owned.room = ROOM
        self._files._at, self._files._other = self._after, self._then
        self._files.arm()

    def _then(self) -> None:
        self.came.append("then")
        self._what(self.owner)

    @classmethod
    def all(cls, spark: SparkSession, root: Path, what: Callable[[Lease], object]) -> Iterator[_Presumed]:
        """With the takeover before each step of the release, and the rest before each later one."""
        for at in count():
            for after in count(1):
                made = cls(spark, root / f"{at}-{after}", at, after, what)
                if not made.came:
                    assert at > 5, "the takeover must come before each step"
                    return
                yield made
                if made.came[-1] != "then":
                    break


def _files_left(made: _Presumed) -> list[Path]:
    return [path for path in (made._folder / "_odradek").rglob("*") if path.is_file()]


def test_job_presumed_dead_leaves_the_next_owner_its_lease(spark: SparkSession, tmp_path: Path) -> None:
    """Its check says that the lease is its own, and what it renames then is another's, which commits meanwhile."""
    for made in _Presumed.all(spark, tmp_path, Lease.check):
        made.owner.check()
        assert _files_left(made) == [made._folder / LEASE]
        made.owner.release()
        assert not _files_left(made)


def test_next_owner_may_end_before_the_job_presumed_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Its lease is not put back then: the archive would be locked for as long as its process lives."""
    for made in _Presumed.all(spark, tmp_path, Lease.release):
        if made.came[-1] != "then":
            made.owner.release()
        assert not _files_left(made)


def test_job_presumed_dead_dies_with_the_next_owners_lease(spark: SparkSession, tmp_path: Path) -> None:
    def die(_: Lease) -> None:
        raise Died

    for made in _Presumed.all(spark, tmp_path, die):
        made.owner.check()
        made.owner.release()
        assert not (made._folder / LEASE).exists()


def test_job_without_lease_does_not_get_it_back_once_another_has_worked(spark: SparkSession, tmp_path: Path) -> None:
    slow = Store(Files(spark, str(tmp_path)))
    with slow:
        after_death(tmp_path)
        with Store(Files(spark, str(tmp_path))):
            pass
        with pytest.raises(PipelineError, match="another job took over this archive"):
            slow._lease.check()
        assert not (tmp_path / LEASE).exists()
