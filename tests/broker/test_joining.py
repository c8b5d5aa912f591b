"""The file that names the session with ZooKeeper, for the process that comes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek.broker import joining

FIRST, SECOND = (1, b"secret"), (2, b"another")


def test_the_last_session_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert joining.former_session(tmp_path) is None
    for credentials in (FIRST, SECOND):
        joining.save_session(tmp_path, credentials)
        assert joining.former_session(tmp_path) == credentials
    assert (tmp_path / joining.SESSION_FILE).stat().st_mode & 0o777 == 0o600
    joining.forget_session(tmp_path)
    assert joining.former_session(tmp_path) is None


def test_a_session_that_cannot_be_named_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As on a full disk: the broker takes part all the same, and the file names no session that is over."""
    joining.save_session(tmp_path, FIRST)
    (tmp_path / f"{joining.SESSION_FILE}.new").mkdir()
    joining.save_session(tmp_path, SECOND)
    assert joining.former_session(tmp_path) is None
    assert "zookeeper-session" in caplog.text
