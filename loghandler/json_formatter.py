"""A log record as one JSON object.

Fields: `timestamp` (ISO 8601 in UTC, with milliseconds), `level`, `logger`, `message`, `host`, `process` (its id),
`thread` (its name), `file` (path:line); where the record has them `exception` and `stack` (text), and `extra`, an
object of what the call passed as `extra=`. What JSON cannot hold becomes text, so each record has its object.
"""

from __future__ import annotations

import json
import logging
import math
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_DEEPEST = 20  # levels of containers below a field; a deeper one becomes text
_OF_LOGGING = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """`fields` are the same in each object, such as the name of a service; fields of the record replace them."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._fields = {"host": socket.gethostname(), **(fields or {})}

    def format(self, record: logging.LogRecord) -> str:
        """The object in one line. Raises what `record.getMessage()` raises, and nothing else."""
        record.message = record.getMessage()
        content = self._fields | self._content(record)
        try:
            return _dump(content)
        except (TypeError, ValueError, RecursionError):
            return _dump(_plain(content, 0))

    def _content(self, record: logging.LogRecord) -> dict[str, Any]:
        found: dict[str, Any] = {
            "timestamp": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.message,
            "process": record.process,
            "thread": record.threadName,
            "file": f"{record.pathname}:{record.lineno}",
        }
        if exception := self._exception(record):
            found["exception"] = exception
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        if extra := {name: value for name, value in vars(record).items() if name not in _OF_LOGGING}:
            found["extra"] = extra
        return found

    def _exception(self, record: logging.LogRecord) -> str | None:
        """The traceback, which `logging` keeps in the record for the next handler."""
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return record.exc_text


def _utc(seconds: float) -> str:
    """The same millisecond as the timestamp of the record in the topic."""
    return (
        datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _plain(value: Any, depth: int) -> Any:
    """`value` with text in place of all that JSON cannot hold."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEEPEST and isinstance(value, dict):
        return {_text(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    return _text(value)


def _text(value: Any) -> str:
    """Its text, whatever it is: the text of bytes, else what `str()` returns."""
    try:
        return value.decode(errors="backslashreplace") if isinstance(value, bytes | bytearray) else str(value)
    except Exception as error:
        return f"<{type(value).__name__}: str() raised {type(error).__name__}>"


# ValueError for NaN, infinity and circles, TypeError for keys such as tuples, RecursionError for deep values. One for
# all records: json.dumps would make one for each.
_dump = json.JSONEncoder(default=_text, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
