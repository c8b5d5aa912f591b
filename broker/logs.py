"""Logging of one process: time, role, module; to stderr, a rotating file or the journal; levels by module, live.

Layout    : `log-levels.json` in the run directory: {module: level name}, on top of the configured levels.
Owner     : the supervisor, on `odradek log-level MODULE LEVEL` and for the controller process (KIP-412).
Writers   : the supervisor only (writes a `.new` file, then renames it).
Lock      : none; a reader sees the old file or the new.
Crash rule: the file is a request, not state: a process without it logs as configured.
Each process reads the file when it starts and on SIGUSR2. Each role has its own log file, and its own file of the audit
log, as two processes cannot rotate the same one.
Clients choose client ids, group ids and similar names, which may hold any character. `LineFormatter` escapes their line
breaks, so that none begins a line of the log. `LONGEST` limits a message, or clients could fill disks: an id may have
32 KiB, and a request thousands of ids.
"""

from __future__ import annotations

import json
import logging
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
_PACKAGE = Path(__file__).parents[1]
AUDIT = "odradek.audit"  # who was refused what, and who changed what (workers.dispatch.audit)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# log4j's names, as in Kafka
_ALIASES = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}


# Line breaks and terminal controls: the control characters of ASCII, Latin-1 and Unicode, with Python's escapes.
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_IN_TRACES = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


LONGEST = 4096  # characters of a message, or of a line of a trace
_LAST = 1024  # of them, kept from the end, which states the outcome


def end() -> None:
    """Flush buffered output before os._exit. Output that cannot be written is lost."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # disk full, no reader, closed, or absent
            stream.flush()


class LevelError(ValueError):
    """No such log level."""


class TruncatingFormatter(logging.Formatter):
    """Cuts long text and changes nothing else; the journal takes any character."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return cut(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        return "\n".join(cut(line) for line in super().formatException(ei).split("\n"))


class LineFormatter(TruncatingFormatter):
    """One line for each record, with its trace indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return super().formatMessage(record).translate(_CONTROLS)

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        return "  " + super().formatException(ei).translate(_IN_TRACES).replace("\n", "\n  ")


def cut(text: str) -> str:
    """The text; if it is longer than `LONGEST`, a count of characters replaces its middle."""
    left_out = len(text) - LONGEST
    if left_out <= 0:
        return text
    return f"{text[: LONGEST - _LAST]} [… {left_out} characters …] {text[-_LAST:]}"


def level_number(name: str) -> int:
    """The number of a level by name (any case; log4j's TRACE, WARN, FATAL and OFF too). Raises LevelError."""
    upper = _ALIASES.get(name.upper(), name.upper())
    if upper not in LEVELS:
        raise LevelError(f"{name!r} is not a log level; the levels are {', '.join(LEVELS)}")
    return int(getattr(logging, upper))


def logger_name(module: str) -> str:
    """`workers.net.connection` and `odradek.workers.net.connection` are the same logger; `root` is all of Odradek."""
    if module in ("root", ROOT, ""):
        return ROOT
    return module if module.startswith(f"{ROOT}.") else f"{ROOT}.{module}"


def exists(logger: str) -> bool:
    """Whether this is a logger of ours: each module and package may have one.

    A client may give the name. This looks for a file: to find a module, importlib runs what is before its last dot.
    """
    first, *names = logger.split(".")
    if first != ROOT or not all(name.isidentifier() for name in names):
        return False
    place = os.path.join(_PACKAGE, *names)
    files = (f"{place}.py", os.path.join(place, "__init__.py"))
    return logger in logging.root.manager.loggerDict or any(map(os.path.isfile, files))


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
    """Send this process's log where the configuration says, and apply `log-levels.json` now and on SIGUSR2."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_handler(role, config))
    _set_up_audit(role, config)
    _apply_all(config, run_dir)
    if run_dir is not None:
        signal.signal(signal.SIGUSR2, lambda _number, _frame: _apply_all(config, run_dir))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])  # a process is spawned with it blocked


def forget() -> None:
    """In a forked process: close the log of its parent here. Later its descriptors are those of other files."""
    for logger in (logging.getLogger(), logging.getLogger(AUDIT)):
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()


def file_of(role: str, path: Path) -> Path:
    """The log file of `role` when `odradek.log.file` is `path`: one of its own next to the supervisor's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path if role == "supervisor" else path.with_name(f"{path.stem}-{role}{path.suffix}")


def change_levels(run_dir: Path, changes: Mapping[str, str | None]) -> None:
    """Set levels in `log-levels.json` by module, or remove them (None). Raises LevelError. The caller then signals
    SIGUSR2."""
    levels = _read_levels(run_dir)
    for module, level in changes.items():
        if level is None:
            levels.pop(logger_name(module), None)
        else:
            level_number(level)
            levels[logger_name(module)] = level.upper()
    temporary = run_dir / f"{LEVELS_FILE}.new"
    temporary.write_text(json.dumps(levels))
    os.replace(temporary, run_dir / LEVELS_FILE)


def _set_up_audit(role: str, config: Mapping[str, Any]) -> None:
    """The audit log has files of its own where the log has files; in the journal it is LOGGER=odradek.audit."""
    audit = logging.getLogger(AUDIT)
    for former in list(audit.handlers):
        audit.removeHandler(former)
    path = config.get("odradek.log.file")
    audit.propagate = not path
    if path:
        handler = _file_handler(role, audit_file(Path(path)), config)
        handler.setFormatter(LineFormatter(f"%(asctime)s {role} %(message)s"))
        audit.addHandler(handler)


def audit_file(path: Path) -> Path:
    """The supervisor's audit log when `odradek.log.file` is `path`; other roles have theirs next to it (`file_of`)."""
    return path.with_name(f"{path.stem}-audit{path.suffix}")


def _handler(role: str, config: Mapping[str, Any]) -> logging.Handler:
    path = config.get("odradek.log.file")
    handler: logging.Handler
    if path:
        handler = _file_handler(role, Path(path), config)
    elif journald.is_stderr():
        handler = journald.JournalHandler(role)
        handler.setFormatter(TruncatingFormatter())
        return handler
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(f"%(asctime)s %(levelname)s {role} %(name)s: %(message)s"))
    return handler


def _file_handler(role: str, path: Path, config: Mapping[str, Any]) -> logging.Handler:
    """Raises OdradekError when the file cannot be opened, which may be repaired while a broker runs."""
    from logging.handlers import RotatingFileHandler  # which imports what writes to sockets and queues

    most, backups = config["odradek.log.file.max.bytes"], config["odradek.log.file.backups"]
    try:
        return RotatingFileHandler(file_of(role, path), maxBytes=most, backupCount=backups)
    except OSError as error:
        raise OdradekError(f"odradek.log.file: {path}: {error.strerror}") from None


def _apply_all(config: Mapping[str, Any], run_dir: Path | None) -> None:
    set_default_levels(config.get("odradek.log.level") or "INFO")
    configured = parse_levels(config.get("odradek.log.levels") or "")
    wished = _read_levels(run_dir) if run_dir is not None else {}
    levels = {logger_name(module): level for module, level in (configured | wished).items()}
    for logger in _set - levels.keys() - {ROOT}:
        set_level(logger, logging.NOTSET)
    for logger, level in levels.items():
        set_level(logger, level_number(level))
    _set.clear()
    _set.update(levels)


_set: set[str] = set()  # the loggers that have a level of the configuration or the file


def set_default_levels(level: str = "INFO") -> None:
    """Set the levels of what no setting names."""
    set_level("", logging.WARNING)  # third-party modules
    set_level(ROOT, level_number(level))


def set_level(logger: str, level: int) -> None:
    """Set a logger's level. One that it has already is not set: that would clear the caches of all loggers, and copy
    the pages of a forked process that have them."""
    found = logging.getLogger(logger)
    if found.level != level:
        found.setLevel(level)


def _read_levels(run_dir: Path) -> dict[str, str]:
    try:
        return dict(json.loads((run_dir / LEVELS_FILE).read_text()))
    except (FileNotFoundError, ValueError):
        return {}
