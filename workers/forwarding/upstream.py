"""A worker's channel to the coordinator or the controller, for requests that these processes answer.

The process at the other end may be starting or restarting: requests wait until it listens, up to a bound. Where it ends
in order (ENDS, ipc.forward; broker.process.open_requests), requests that it has not begun go to the next one, in their
order, and their callers notice nothing but the time. Callers of requests that were in flight when it died get LOST,
since it is unknown whether they took effect.
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
_TIMEOUT_S = 15.0  # for a process that is starting


class Upstream:
    """Requests to one process. `channel` is None while the process is not connected."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = itertools.count(1)
        self._pending: dict[int, tuple[Answered, bytes]] = {}  # in the order of the requests
        self._queued: list[tuple[int, bytes]] = []
        self._since = time.monotonic()
        self._begun: frozenset[int] | None = None  # requests that the process leaves unfinished; None: it has not ended
        self.channel: Channel | None = None

    def connect(self) -> bool:
        """Try to connect to the process; True when the channel is new. A timer calls this repeatedly."""
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

    def send(self, request: Forwarded, answered: Answered) -> None:
        """Send `request` (with a new token); calls `answered(flags, body)` once, with LOST if the process died.

        The caller polls for writability while `channel.wants_write`: a large request does not leave at once.
        """
        token = next(self._tokens)
        message = forward.encode(request._replace(token=token))
        if self.channel is None and len(self._queued) >= _QUEUE_LIMIT:
            answered(LOST, b"")
            return
        self._pending[token] = answered, message
        if self.channel is None:
            self._queued.append((token, message))
        else:
            self.channel.send(message)

    def receive(self, unwatch: Callable[[], None]) -> None:
        """Receive answers; on EOF `unwatch` the channel, close it, and answer all pending requests with LOST."""
        assert self.channel is not None
        try:
            messages = self.channel.receive()
        except EOFError:
            unwatch()
            self._lost()
            return
        for message in messages:
            token, flags, body = forward.decode_reply(message)
            if flags == forward.ENDS:
                self._begun = frozenset(forward.decode_end(body))
            elif token in self._pending:
                answered, _ = self._pending.pop(token)
                _tell(answered, flags, body)

    def _lost(self) -> None:
        """The process has ended. Keep what it has not begun for the next one, if it said what that is."""
        assert self.channel is not None
        self.channel.close()
        self.channel, self._since = None, time.monotonic()
        pending, self._pending, begun, self._begun = self._pending, {}, self._begun, None
        if begun is not None:
            self._pending = {token: one for token, one in pending.items() if token not in begun}
            self._queued = [(token, message) for token, (_, message) in self._pending.items()]
        lost = [one[0] for token, one in pending.items() if token not in self._pending]
        log.log(
            logging.WARNING if begun is None or lost else logging.INFO,
            "%s: its process ended, %d requests lost, %d wait", self._path.name, len(lost), len(self._pending),
        )  # fmt: skip
        for answered in lost:
            _tell(answered, LOST, b"")

    def tick(self) -> None:
        """Called periodically: if no process has listened for too long, answer the unsent requests with LOST."""
        if self.channel is not None or time.monotonic() - self._since < _TIMEOUT_S:
            return
        queued, self._queued = self._queued, []
        for token, _ in queued:
            found = self._pending.pop(token, None)
            if found is not None:
                _tell(found[0], LOST, b"")


def _tell(answered: Answered, flags: int, body: bytes) -> None:
    """Call `answered`; an exception in one caller must not cost the others their answers."""
    try:
        answered(flags, body)
    except Exception:
        log.exception("unexpected error while handling a response")
