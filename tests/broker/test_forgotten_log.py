"""A forked process has no log of its parent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.broker import logs


def test_log_of_the_parent_is_closed_in_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [logging.FileHandler(tmp_path / name) for name in ("log", "audit")]
    streams = [handler.stream for handler in made]
    for name, handler in zip(("", logs.AUDIT), made, strict=True):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    logs.forget()
    assert all(stream and stream.closed for stream in streams)
    assert not logging.getLogger().handlers and not logging.getLogger(logs.AUDIT).handlers
