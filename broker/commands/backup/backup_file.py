"""The file of a backup: mode 0600, and whole at any time.

It is written to a temporary file next to it, which is synced and renamed. A crash leaves the former file, or none, and
perhaps the temporary file `.odradek-backup-…`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from odradek.broker.commands.backup.saved_cluster import NotABackup, SavedCluster, from_json, to_json
from odradek.broker.errors import OdradekError
from odradek.storage.files.durable import FILES, Files


def check_writable(path: Path) -> None:
    """Before the work, so that a wrong path costs none. OdradekError."""
    if path.is_dir():
        raise OdradekError(f"{path} is a directory: name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OdradekError(f"{path.parent} does not exist, or cannot be written to")


def incomplete(path: Path) -> Path:
    """Where a backup goes that lacks something: a backup that was complete is not replaced by it."""
    return path.with_name(f"{path.name}.incomplete")


def write(path: Path, saved: SavedCluster, files: Files = FILES) -> None:
    """Replace the file. OdradekError; the former file is left then."""
    data = to_json(saved).encode()
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".odradek-backup-", dir=path.parent)  # mode 0600
    except OSError as error:
        raise OdradekError(f"{path} cannot be written: {error.strerror}") from None
    try:
        _fill(descriptor, data, files)
        files.rename(temporary, path)
        files.sync_dir(path.parent)
    except OSError as error:
        raise OdradekError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _fill(descriptor: int, data: bytes, files: Files) -> None:
    try:
        files.pwrite(descriptor, data, 0)
        files.fsync(descriptor)
    finally:
        files.close(descriptor)


def read(path: Path) -> SavedCluster:
    """The content of the file. OdradekError for a file that is no backup, damaged, or of a newer version."""
    try:
        return from_json(path.read_bytes().decode())
    except OSError as error:
        raise OdradekError(f"{path} cannot be read: {error.strerror}") from None
    except (NotABackup, UnicodeDecodeError) as error:
        raise OdradekError(f"{path}: {error}") from None
