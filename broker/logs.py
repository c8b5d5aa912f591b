"""Logging of one process: time, role, module; to stderr, a rotating file or the journal; levels by module, live.

Layout    : `log-levels.json` in the run directory: {module: level name}, on top of the configured levels.
Owner     : the supervisor, on `odradek log-level MODULE LEVEL`.
Writers   : the supervisor only (written beside, then renamed).
Lock      : none; a reader sees the old file or the new.
Crash rule: the file is a wish, not state: a process without it logs as configured.
Each process reads the file when it starts and on SIGUSR2. Files are one for each role, as two processes
cannot rotate the same one.
Names of clients, groups and their like are the clients' own, and may hold anything: no line break of theirs begins a
line of the log (`Lines`), and none is longer than `LONGEST`, of which clients could otherwise fill disks: an id has
32 KiB, and a request can have thousands of them.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from odradek.broker import journald
from odradek.broker.errors import OdradekError

LEVELS_FILE = "log-levels.json"
ROOT = "odradek"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# log4j's names, which people know from Kafka
_ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}


# Line breaks, and what terminals obey: the controls of ASCII, Latin-1 and Unicode, each as Python writes it.
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_IN_TRACES = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


LONGEST = 4096  # characters of a message, or of a line of a trace
_LAST = 1024  # of them, those at its end, which says what came of it


def end() -> None:
    """Write what is buffered, before os._exit. What cannot be written is lost."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, without a reader, closed, never there
            stream.flush()


class LevelError(ValueError):
    """No such log level."""


class Cut(logging.Formatter):
    """As it is, but for what is too long; the journal takes any character."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return cut(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        return "\n".join(cut(line) for line in super().formatException(ei).split("\n"))


class Lines(Cut):
    """A line for each record, and its trace below, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return super().formatMessage(record).translate(_CONTROLS)

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        return "  " + super().formatException(ei).translate(_IN_TRACES).replace("\n", "\n  ")


def cut(text: str) -> str:
    """The text without its middle if it is longer than `LONGEST`, and how much that was."""
    left_out = len(text) - LONGEST
    if left_out <= 0:
        return text
    return f"{text[: LONGEST - _LAST]} [… {left_out} characters …] {text[-_LAST:]}"


def level_number(name: str) -> int:
    """The number of a level by name (any case; log4j's WARN, FATAL and OFF too). Raises LevelError."""
    upper = _ALIASES.get(name.upper(), name.upper())
    if upper not in LEVELS:
        raise LevelError(f"{name!r} is no log level; the levels are {', '.join(LEVELS)}")
    return int(getattr(logging, upper))


def logger_name(module: str) -> str:
    """`workers.net.connection` and `odradek.workers.net.connection` are the same logger; `root` is all of ours."""
    if module in ("root", ROOT, ""):
        return ROOT
    return module if module.startswith(f"{ROOT}.") else f"{ROOT}.{module}"


def parse_levels(text: str) -> dict[str, str]:
    """Parse `module=LEVEL,…` as `odradek.log.levels` has it. Raises LevelError."""
    levels: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        module, equals, level = entry.partition("=")
        if not equals:
            raise LevelError(f"odradek.log.levels: {entry!r} is not of the form module=LEVEL")
        level_number(level.strip())
        levels[module.strip()] = level.strip().upper()
    return levels


def setup(role: str, config: Mapping[str, Any], run_dir: Path | None = None) -> None:
    """Send this process's log where the configuration says, and follow `log-levels.json` from now on."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_handler(role, config))
    _apply_all(config, run_dir)
    if run_dir is not None:
        signal.signal(signal.SIGUSR2, lambda _number, _frame: _apply_all(config, run_dir))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])  # spawned with it blocked


def file_of(role: str, path: Path) -> Path:
    """Where `role` logs when `odradek.log.file` is `path`: its own file beside the supervisor's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path if role == "supervisor" else path.with_name(f"{path.stem}-{role}{path.suffix}")


def change_level(run_dir: Path, module: str, level: str) -> None:
    """Add one wish to `log-levels.json`. Raises LevelError. The caller then signals SIGUSR2."""
    level_number(level)
    levels = _read_levels(run_dir)
    levels[logger_name(module)] = level.upper()
    beside = run_dir / f"{LEVELS_FILE}.new"
    beside.write_text(json.dumps(levels))
    os.replace(beside, run_dir / LEVELS_FILE)


def _handler(role: str, config: Mapping[str, Any]) -> logging.Handler:
    path = config.get("odradek.log.file")
    handler: logging.Handler
    if path:
        handler = _file_handler(role, Path(path), config)
    elif journald.is_stderr():
        handler = journald.JournalHandler(role)
        handler.setFormatter(Cut())
        return handler
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(f"%(asctime)s %(levelname)s {role} %(name)s: %(message)s"))
    return handler


def _file_handler(role: str, path: Path, config: Mapping[str, Any]) -> logging.Handler:
    """Raises OdradekError where there can be no such file, which may be mended while a broker runs."""
    most, backups = config["odradek.log.file.max.bytes"], config["odradek.log.file.backups"]
    try:
        return logging.handlers.RotatingFileHandler(file_of(role, path), maxBytes=most, backupCount=backups)
    except OSError as error:
        raise OdradekError(f"odradek.log.file: {path}: {error.strerror}") from None


def _apply_all(config: Mapping[str, Any], run_dir: Path | None) -> None:
    logging.getLogger().setLevel(logging.WARNING)  # other people's modules
    logging.getLogger(ROOT).setLevel(level_number(config.get("odradek.log.level") or "INFO"))
    configured = parse_levels(config.get("odradek.log.levels") or "")
    wished = _read_levels(run_dir) if run_dir is not None else {}
    for module, level in (configured | wished).items():
        logging.getLogger(logger_name(module)).setLevel(level_number(level))


def _read_levels(run_dir: Path) -> dict[str, str]:
    try:
        return dict(json.loads((run_dir / LEVELS_FILE).read_text()))
    except (FileNotFoundError, ValueError):
        return {}
