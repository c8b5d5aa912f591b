"""Regions are created whole or not at all; `attach` refuses another kind."""

from __future__ import annotations

import os

import pytest

from odradek.ipc import region
from odradek.ipc.region import Region, RegionError, SharedMemoryFull


def test_attach_sees_what_was_written(prefix: str) -> None:
    made = Region.create(prefix + "a", 64, "test", 5)
    made.words[3] = 99
    found = Region.attach(prefix + "a", "test")
    assert (found.words[3], found.incarnation, len(found.buf)) == (99, 5, 64)


def test_attach_to_a_missing_region_fails(prefix: str) -> None:
    with pytest.raises(RegionError, match="is the broker running"):
        Region.attach(prefix + "none", "test")


def test_region_of_another_kind_is_refused(prefix: str) -> None:
    Region.create(prefix + "a", 64, "test", 5)
    with pytest.raises(RegionError, match="another version"):
        Region.attach(prefix + "a", "other")


def test_unfinished_region_is_refused(prefix: str) -> None:
    Region.create(prefix + "a", 64, "test", 5)
    with open("/dev/shm" + prefix + "a", "r+b") as file:
        file.write(bytes(8))
    with pytest.raises(RegionError, match="is incomplete"):
        Region.attach(prefix + "a", "test")
    os.truncate("/dev/shm" + prefix + "a", 8)
    with pytest.raises(RegionError, match="is incomplete"):
        Region.attach(prefix + "a", "test")


def test_too_large_for_dev_shm_is_an_error_not_a_signal(prefix: str) -> None:
    with pytest.raises((RegionError, OSError)):
        Region.create(prefix + "huge", 1 << 46, "test", 5)
    assert not os.path.exists("/dev/shm" + prefix + "huge")


def test_region_larger_than_dev_shm_takes_no_memory(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is allocated piece by piece: without this check, the loop would first take all of it."""
    taken: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *arguments: taken.append(arguments))
    with pytest.raises(SharedMemoryFull, match="no room for"):
        Region.create(prefix + "huge", 1 << 46, "test", 5)
    assert not taken


def test_region_is_private(prefix: str) -> None:
    Region.create(prefix + "a", 64, "test", 5)
    assert os.stat("/dev/shm" + prefix + "a").st_mode & 0o777 == 0o600


def test_unlink_all_removes_only_its_prefix(prefix: str) -> None:
    Region.create(prefix + "a", 64, "test", 5)
    Region.create(prefix + "b", 64, "test", 5)
    assert region.unlink_all(prefix + "a") == [prefix + "a"]
    assert os.path.exists("/dev/shm" + prefix + "b")
