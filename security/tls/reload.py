"""A listener's certificates, replaced while it runs: when its files change, and when its settings do.

State: the version in force, what the files looked like when it was loaded, and what they looked like last. Owner: the
process that serves the listener; it calls `poll()` with the time and the files' stat results, often enough for its
promise: a change is loaded by the second poll that sees it, so that a half-written file is not loaded.
A broken change leaves the version in force, and is logged once. A crash leaves nothing: a start loads the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from . import compatibility
from .listener import TlsListener, check_connects
from .settings import TlsError, TlsSettings

Load = Callable[[TlsSettings, float], TlsListener]
_KEPT = "the old certificate stays in force"


class Stat(NamedTuple):
    """Detects a change of a file's content; a symbolic link counts as its target."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


Stats = Mapping[str, Stat | None]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A new version is in force."""

    listener: TlsListener


@dataclass(frozen=True, slots=True)
class Rejected:
    """A new version cannot be used, the old one stays in force; the line to log."""

    line: str


class Reloader:
    """Keeps one listener's TLS up to date."""

    def __init__(self, listener: TlsListener, stats: Stats, load: Load, *, inter_broker: bool = False) -> None:
        self.listener = listener
        self._load = load
        self._inter_broker = inter_broker
        self._loaded = self._seen = dict(stats)

    def poll(self, now: float, stats: Stats) -> Reloaded | Rejected | None:
        """Check the files; the result, if they changed."""
        settled, self._seen = stats == self._seen, dict(stats)
        if stats == self._loaded or not settled:
            return None
        self._loaded = dict(stats)
        return self.change(self.listener.settings, now, stats)

    def change(self, settings: TlsSettings, now: float, stats: Stats) -> Reloaded | Rejected:
        """Apply changed settings, as AlterConfigs has them."""
        try:
            self.take(settings, now, stats)
        except TlsError as error:
            return Rejected(f"{error}; {_KEPT}")
        return Reloaded(self.listener)

    def take(self, settings: TlsSettings, now: float, stats: Stats) -> None:
        """`change`, but raises TlsError."""
        self.listener = self.check(settings, now)
        self._loaded = self._seen = dict(stats)

    def check(self, settings: TlsSettings, now: float) -> TlsListener:
        """The version that `change` would put in force. Raises TlsError."""
        listener = self._load(settings, now)
        compatibility.check(listener, self.listener)
        if self._inter_broker:
            check_connects(self.listener, listener)
        return listener


def watched(settings: TlsSettings) -> list[str]:
    """The files to check."""
    return [path for path in (settings.keystore_location, settings.truststore_location) if path]


def stats_of(settings: TlsSettings) -> dict[str, Stat | None]:
    """The stat results of the files now; None for a missing one."""
    return {path: _stat(path) for path in watched(settings)}


def _stat(path: str) -> Stat | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a path with a NUL
        return None
    return Stat(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
