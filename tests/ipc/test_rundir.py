"""The run directory is private, and not in a place where other users could replace it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from odradek.ipc import rundir
from odradek.ipc.rundir import RunDirError


def test_run_dir_is_private(tmp_path: Path) -> None:
    made = rundir.make_run_dir(tmp_path / "base" / "run")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert rundir.make_run_dir(made).stat().st_mode & 0o777 == 0o700


def test_symlink_as_run_dir_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunDirError):
        rundir.make_run_dir(tmp_path / "run")


def test_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """The limit counts bytes, and the path has two-byte characters."""
    with pytest.raises(RunDirError, match=r"odradek\.run\.dir"):
        rundir.make_run_dir(Path("/tmp") / ("ü" * 40))
    with pytest.raises(RunDirError, match=r"exists: change odradek\.run\.dir"):
        rundir.make_run_dir(Path("/dev/null/run"))


def test_base_leaves_a_temporary_directory_that_is_too_long_for_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest TMPDIR that is used has a run directory that `make_run_dir` takes."""

    def base(length: int) -> Path:
        monkeypatch.setattr(tempfile, "tempdir", "/" + "t" * (length - 1))
        return rundir.default_base()

    kept = max(length for length in range(2, 100) if base(length).parent != Path("/tmp"))
    assert len(os.fsencode(base(kept) / rundir.broker_key("/data"))) == rundir.LONGEST
    assert base(kept + 1) == Path("/tmp", f"odradek-{os.getuid()}")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change a directory's owner")
def test_parent_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    os.chown(tmp_path / "base", 12345, -1)
    with pytest.raises(RunDirError):
        rundir.make_run_dir(tmp_path / "base" / "run")
