"""A worker's channel to the coordinator or the controller: requests that those answer.

The process at the other end may be starting or starting again: requests wait until it listens, up to a bound. What
was under way when it died is told to its callers as LOST, since nobody knows whether it took effect.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path

from odradek.ipc import channel, forward
from odradek.ipc.channel import Channel
from odradek.ipc.forward import Forwarded

log = logging.getLogger(__name__)

LOST = -1
Answered = Callable[[int, bytes], None]

_QUEUE_LIMIT = 10_000
_PATIENCE_S = 15.0  # for a process that is starting


class Upstream:
    """Requests to one process. `channel` is None while it is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = itertools.count(1)
        self._pending: dict[int, Answered] = {}
        self._queued: list[tuple[int, bytes]] = []
        self._since = time.monotonic()
        self.channel: Channel | None = None

    def connect(self) -> bool:
        """Try to reach the process; True when the channel is newly there. Called again by a timer."""
        if self.channel is not None:
            return False
        try:
            self.channel = channel.connect(self._path)
        except OSError:
            return False
        for _, message in self._queued:
            self.channel.send(message)
        self._queued.clear()
        return True

    def ask(self, request: Forwarded, answered: Answered) -> None:
        """Send `request` (its token is set here); `answered(flags, body)` is called once, flags LOST if it died.

        The caller polls for writability while `channel.wants_write`: a large request does not leave at once.
        """
        token = next(self._tokens)
        message = forward.encode(request._replace(token=token))
        if self.channel is None and len(self._queued) >= _QUEUE_LIMIT:
            answered(LOST, b"")
            return
        self._pending[token] = answered
        if self.channel is None:
            self._queued.append((token, message))
        else:
            self.channel.send(message)

    def receive(self, unwatch: Callable[[], None]) -> None:
        """Take in answers; on EOF `unwatch` the channel, tell everyone who waits, and forget it."""
        assert self.channel is not None
        try:
            messages = self.channel.receive()
        except EOFError:
            unwatch()
            self._lost()
            return
        for message in messages:
            token, flags, body = forward.decode_reply(message)
            answered = self._pending.pop(token, None)
            if answered is not None:
                _tell(answered, flags, body)

    def _lost(self) -> None:
        assert self.channel is not None
        self.channel.close()
        self.channel, self._since = None, time.monotonic()
        pending, self._pending = self._pending, {}
        log.warning("%s: its process ended, %d requests in flight", self._path.name, len(pending))
        for answered in pending.values():
            _tell(answered, LOST, b"")

    def tick(self) -> None:
        """Now and then: when nobody listened for too long, tell those whose requests were never sent."""
        if self.channel is not None or time.monotonic() - self._since < _PATIENCE_S:
            return
        queued, self._queued = self._queued, []
        for token, _ in queued:
            answered = self._pending.pop(token, None)
            if answered is not None:
                _tell(answered, LOST, b"")


def _tell(answered: Answered, flags: int, body: bytes) -> None:
    """A fault in what one caller makes of its answer must not cost the others theirs."""
    try:
        answered(flags, body)
    except Exception:
        log.exception("unexpected error while handling a response")
