"""The log as fields in systemd's journal, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

Used when standard error is the journal, as JOURNAL_STREAM shows. A message is one datagram of fields; one that is
too large is sent as a sealed memory file. To read it: `journalctl ODRADEK_PROCESS=worker-3`, `journalctl
LOGGER=odradek.storage.recovery.recovery`.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
BUFFER = 8 << 20  # so that no process blocks while journald is away for a moment
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_SIZE = struct.Struct("<Q")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_stderr(environ: Mapping[str, str] | None = None) -> bool:
    """Whether standard error goes to the journal (sd-daemon(3), $JOURNAL_STREAM), and its socket is there."""
    environ = os.environ if environ is None else environ
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}" and os.path.exists(SOCKET)


class JournalHandler(logging.Handler):
    """Sends each record; if the journal does not take it, writes it to standard error, prefixed with its priority."""

    def __init__(self, role: str, path: str = SOCKET) -> None:
        super().__init__()
        self._role = role
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            message = self.format(record)
            datagram = encoded(self._fields(record, message))
            try:
                self._send(datagram)
            except OSError:
                lines = message.replace("\n", "\n  ")  # a line that begins with <0> would be an emergency message
                sys.stderr.write(f"<{priority(record.levelno)}>{self._role} {record.name}: {lines}\n")
        except Exception:
            self.handleError(record)

    def _fields(self, record: logging.LogRecord, message: str) -> dict[str, object]:
        return {
            "MESSAGE": message,
            "PRIORITY": priority(record.levelno),
            "SYSLOG_IDENTIFIER": f"odradek-{self._role}",
            "SYSLOG_PID": record.process,
            "ODRADEK_PROCESS": self._role,
            "LOGGER": record.name,
            "THREAD_NAME": record.threadName,
            "CODE_FILE": record.pathname,
            "CODE_LINE": record.lineno,
            "CODE_FUNC": record.funcName,
        }

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._path)
        except OSError as error:
            if not is_too_large(error):
                raise
            self._send_file(datagram)

    def _send_file(self, datagram: bytes) -> None:
        memory = os.memfd_create("odradek-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(memory, datagram)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))]
            self._socket.sendmsg([], rights, 0, self._path)
        finally:
            os.close(memory)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def is_too_large(error: OSError) -> bool:
    """Whether a datagram was refused only because of its size."""
    return error.errno in (errno.EMSGSIZE, errno.ENOBUFS)


def priority(level: int) -> int:
    """syslog's number for a log level."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


def encoded(fields: Mapping[str, object]) -> bytes:
    """Fields in the journal's format: a line each; a value with a line break follows its length."""
    lines = []
    for name, value in fields.items():
        data = str(value).encode("utf-8", "backslashreplace")
        if b"\n" in data:
            lines.append(name.encode() + b"\n" + _SIZE.pack(len(data)) + data + b"\n")
        else:
            lines.append(name.encode() + b"=" + data + b"\n")
    return b"".join(lines)
