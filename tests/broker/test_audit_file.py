"""The destination of the audit log: its own files if the log has files, otherwise the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker import logs

FILES = {"odradek.log.file.max.bytes": 1 << 20, "odradek.log.file.backups": 1}


@pytest.fixture(autouse=True)
def former() -> Iterator[None]:
    """Restores pytest's own handlers afterwards."""
    loggers = [logging.getLogger(), logging.getLogger(logs.AUDIT)]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        for handler in logger.handlers:
            if handler not in handlers:
                handler.close()
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("role", "name"), [("supervisor", "broker-audit.log"), ("worker-1", "broker-audit-worker-1.log")]
)
def test_a_file_of_its_own(tmp_path: Path, role: str, name: str) -> None:
    logs.setup(role, {"odradek.log.file": str(tmp_path / "broker.log"), **FILES})
    logging.getLogger(logs.AUDIT).warning("refused: %s", "User:a\nlice")
    (line,) = (tmp_path / name).read_text().splitlines()
    assert line.endswith(f"{role} refused: User:a\\nlice")
    assert logs.file_of(role, tmp_path / "broker.log").read_text() == ""


def test_in_the_log_without_files(capfd: pytest.CaptureFixture[str]) -> None:
    logs.setup("worker-1", {})
    logging.getLogger(logs.AUDIT).warning("refused: alice")
    assert "WARNING worker-1 odradek.audit: refused: alice" in capfd.readouterr().err
