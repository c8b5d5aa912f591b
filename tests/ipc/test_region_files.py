"""Regions as files: found with their incarnation, and removed only as what they were found as."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.ipc import region, region_files
from odradek.ipc.region import Region


@pytest.fixture
def key() -> Iterator[str]:
    made = secrets.token_hex(6)
    yield made
    region.unlink_all(f"/odradek-{made}-")


def test_a_region_is_found_with_its_owner_size_and_incarnation(key: str) -> None:
    Region.create(f"/odradek-{key}-a", 8192, "test", 5)
    (one,) = region_files.found(key)
    assert (one.name, one.key, one.uid, one.incarnation) == (f"odradek-{key}-a", key, os.getuid(), 5)
    assert one.size >= 8192
    assert one in region_files.found()


def test_what_is_no_region_has_no_incarnation_and_is_not_removed(key: str) -> None:
    folder = Path(region.SHM)
    (folder / f"odradek-{key}-short").write_bytes(b"odradek1")
    (folder / f"odradek-{key}-zero").write_bytes(bytes(100))
    (folder / f"odradek-{key}-link").symlink_to("/etc/passwd")
    found = region_files.found(key)
    assert [(one.name[-5:], one.incarnation) for one in found] == [("short", 0), ("-zero", 0)]
    assert not any(region_files.remove(one) for one in found)


def test_a_region_that_was_replaced_meanwhile_is_not_removed(key: str) -> None:
    Region.create(f"/odradek-{key}-a", 64, "test", 5)
    (old,) = region_files.found(key)
    Region.create(f"/odradek-{key}-a", 64, "test", 6)
    assert not region_files.remove(old)
    (new,) = region_files.found(key)
    assert region_files.remove(new) and not region_files.found(key)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change a file's owner")
def test_a_region_of_another_user_is_not_removed(key: str) -> None:
    Region.create(f"/odradek-{key}-a", 64, "test", 5)
    os.chown(f"{region.SHM}/odradek-{key}-a", 12345, -1)
    (one,) = region_files.found(key)
    assert one.uid == 12345 and not region_files.remove(one)


def test_nothing_is_removed_while_a_start_replaces_regions(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_files, "WAIT_S", 0.0)
    Region.create(f"/odradek-{key}-a", 64, "test", 5)
    (one,) = region_files.found(key)
    with region_files.replacing():
        assert not region_files.remove(one)


def test_a_start_goes_on_while_another_user_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_files, "WAIT_S", 0.0)
    fd = os.open(region.SHM, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with region_files.replacing():
            pass
    finally:
        os.close(fd)


def test_a_creator_that_dies_half_way_leaves_nothing(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "_reserve", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    pid = os.fork()
    if pid == 0:
        Region.create(f"/odradek-{key}-a", 64, "test", 5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not region_files.found(key)


def test_a_kernel_without_unnamed_files_makes_regions_too(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # then the kernel's error is as without: EISDIR
    Region.create(f"/odradek-{key}-a", 64, "test", 5)
    assert Region.attach(f"/odradek-{key}-a", "test").incarnation == 5
    with pytest.raises(region.SharedMemoryFull):
        Region.create(f"/odradek-{key}-huge", 1 << 46, "test", 5)
    assert len(region_files.found(key)) == 1
