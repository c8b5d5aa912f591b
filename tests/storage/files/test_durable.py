import errno
import os
from pathlib import Path

import pytest

from odradek.storage.files import durable
from tests.storage.faulty import FaultyFiles


@pytest.mark.parametrize("which", ["fail_next_write", "fail_next_sync", "fail_next_rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_replace_leaves_the_old_contents(tmp_path: Path, which: str, code: int) -> None:
    path = tmp_path / "f"
    durable.replace(path, b"old")
    files = FaultyFiles()
    setattr(files, which, code)
    with pytest.raises(OSError, match=os.strerror(code)):
        durable.replace(path, b"new contents", files=files)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_full_disk_in_the_middle_of_a_write(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.room = 5
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        durable.replace(tmp_path / "f", b"0123456789", files=files)
    assert os.listdir(tmp_path) == []


def test_replace_syncs_the_file_and_its_directory(tmp_path: Path) -> None:
    files = FaultyFiles()
    durable.replace(tmp_path / "f", b"x", files=files)
    assert files.calls == ["write", "sync", "rename", "sync"]
    files.calls.clear()
    durable.replace(tmp_path / "f", b"y", sync=False, files=files)
    assert files.calls == ["write", "rename"]


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    class Short(durable.Files):
        def _pwrite_some(self, fd: int, data: memoryview, offset: int) -> int:
            return super()._pwrite_some(fd, data[:3], offset)

    durable.replace(tmp_path / "f", b"0123456789", files=Short())
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_removing_a_missing_file_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert durable.remove(tmp_path / "f")
    assert not durable.remove(tmp_path / "f")
