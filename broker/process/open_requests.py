"""The requests that an owner (the coordinator, the controller) has taken and not answered, so that it can end in order.

    SERVING  SIGTERM                              FINISHING   take no more requests, finish those taken
    FINISHING  all are answered, or FINISH_S over  ENDING      ENDS to each worker (ipc.forward), then close

Owner     : the process; in its own memory.
Writers   : its loop.
Crash rule: an owner that dies before its ENDS has ended as by a crash: workers answer what was in flight with an error
            that clients retry. After ENDS it begins nothing, so it does not matter when it dies: what workers sent
            meanwhile lies unread in its sockets, and they send it again to the next owner. A worker that connects
            between the last look at the door and its close gets no ENDS; that costs it what a crash does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from odradek.ipc import forward
from odradek.ipc.channel import Channel

FINISH_S = 3.0  # less than supervisor.stop_limits gives it: for appends under way, replicas, ZooKeeper
FLUSH_S = 1.0
_STEP_S = 0.002


class OpenRequests:
    """All of one process. `repeatable`: keys of APIs that wait for other clients, and may be executed again."""

    def __init__(self, repeatable: Collection[int] = ()) -> None:
        self._repeatable = repeatable
        self._open: dict[Channel, dict[int, int]] = {}  # by token: the key of the API
        self._until = 0.0

    def taken(self, link: Channel, token: int, api_key: int) -> None:
        """A request begins."""
        self._open.setdefault(link, {})[token] = api_key

    def answered(self, link: Channel, token: int) -> None:
        """It has its answer."""
        found = self._open.get(link)
        if found is not None:
            found.pop(token, None)

    def gone(self, link: Channel) -> None:
        """The process that sent them has ended."""
        self._open.pop(link, None)

    def begun(self, link: Channel) -> list[int]:
        """The tokens of those that must not be executed again."""
        return [token for token, key in self._open.get(link, {}).items() if key not in self._repeatable]

    def finish(self) -> None:
        """From now on, FINISH_S are left."""
        self._until = time.monotonic() + FINISH_S

    @property
    def finishing(self) -> bool:
        """Whether some are still to be finished, and there is time."""
        return any(self.begun(link) for link in self._open) and time.monotonic() < self._until

    def end(self, links: Iterable[Channel]) -> None:
        """Say to each that nothing follows. Waits until it is sent, FLUSH_S at most."""
        ending = list(links)
        for link in ending:
            link.send(forward.encode_end(self.begun(link)))
        until = time.monotonic() + FLUSH_S
        while any(link.wants_write for link in ending) and time.monotonic() < until:
            time.sleep(_STEP_S)
            for link in ending:
                link.flush()
