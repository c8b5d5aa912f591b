"""Of several processes that notice the same event, one logs it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.ipc.notices import Notices

NOW = 1_800_000_000.0


def test_notice_is_first_once_a_period(tmp_path: Path) -> None:
    one, other = Notices(tmp_path), Notices(tmp_path)
    assert one.is_first("a", NOW, 10) and not other.is_first("a", NOW + 9, 10) and other.is_first("b", NOW + 9, 10)
    assert other.is_first("a", NOW + 10, 10), "a new period begins"
    assert not one.is_first("a", NOW + 9, 10), "this process read its clock before the other one"
    assert one.is_first("a", NOW - 1000, 10), "the clock was set back"
    assert (tmp_path / "notices.json").stat().st_mode & 0o777 == 0o600


def test_old_notices_are_forgotten(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    for day in range(30):
        notices.is_first(f"day {day}", NOW + day * 86_400, 10)
    assert (tmp_path / "notices.json").read_text().count("day") == 2


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": "b"}', "\0" * 1000, '{"a": null}'])
def test_corrupt_notices_file_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "notices.json").write_text(text)
    assert Notices(tmp_path).is_first("a", NOW, 10) and not Notices(tmp_path).is_first("a", NOW, 10)


def test_notice_without_a_run_dir_is_first(tmp_path: Path) -> None:
    assert Notices(tmp_path / "none").is_first("a", NOW, 10)


def test_held_lock_does_not_block_notices(tmp_path: Path) -> None:
    """While a stopped process holds the lock, every notice is first."""
    assert Notices(tmp_path).is_first("a", NOW, 10)
    with (tmp_path / "notices.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert Notices(tmp_path).is_first("a", NOW, 10)
    assert not Notices(tmp_path).is_first("a", NOW, 10)


@pytest.mark.live
def test_one_of_five_processes_is_first(tmp_path: Path) -> None:
    code = f"from odradek.ipc.notices import *; print(Notices(Path({str(tmp_path)!r})).is_first('a', {NOW}, 10))"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(5)]
    assert sorted(process.communicate(timeout=60)[0] for process in started) == ["False\n"] * 4 + ["True\n"]
