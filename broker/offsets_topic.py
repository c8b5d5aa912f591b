"""`__consumer_offsets` or `__transaction_state`: making it when the first client comes, and loading what is in it.

Loading goes on in slices of the loop, so that requests are answered COORDINATOR_LOAD_IN_PROGRESS meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from odradek.broker.offsets_journal import TOPIC, OffsetsJournal
from odradek.cluster.snapshot import Snapshot
from odradek.groups.events import Now
from odradek.ipc import slots

log = logging.getLogger(__name__)

SLICE_S = 0.02
CREATE_PATIENCE_MS = 10_000
LOAD_PATIENCE_MS = 1_000


class Replay(Protocol):
    """What the batches of a partition are fed to."""

    def feed(self, batch: bytes) -> None: ...


class Owner(Protocol):
    """Groups or Transactions: whose state the topic holds."""

    partitions: int

    def will_load(self, partition: int) -> None: ...
    def loaded(self, partition: int, replay: Any, now: Now) -> None: ...
    def unload(self, partition: int, now: Now) -> None: ...


class OffsetsTopic:
    """Which of the topic's partitions are ours, and how far they are loaded."""

    def __init__(
        self, owner: Owner, journal: OffsetsJournal, broker_id: int, create: Callable[[], None],
        replay: Callable[[], Replay], topic: str = TOPIC,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._replay = replay
        self._topic = topic
        self._journal = journal
        self._broker_id = broker_id
        self._create = create
        self._id: bytes | None = None
        self._ours: set[int] = set()
        self._to_load: deque[int] = deque()
        self._loading: tuple[int, Replay, Iterator[bytes]] | None = None
        self._waiting: list[tuple[int, Callable[[bool], None]]] = []

    @property
    def is_loading(self) -> bool:
        """Whether `step` has something to do."""
        return self._loading is not None or bool(self._to_load)

    # -- metadata

    def follow(self, snapshot: Snapshot, now: Now) -> None:
        """Take over a new snapshot: load what became ours, let go of what is not any more."""
        topic = snapshot.topics.get(self._topic)
        if topic is None or topic.id != self._id:
            self._forget(now)
        if topic is None:
            return
        if self._id is None:
            # The count is fixed while we run: another one would look for everything in the wrong partitions.
            self._owner.partitions = len(topic)
            self._id = topic.id
        count = self._owner.partitions
        ours = {i for i, info in enumerate(topic.partitions[:count]) if info.leader == self._broker_id}
        for partition in sorted(self._ours - ours):
            self._owner.unload(partition, now)
        for partition in sorted(ours - self._ours):
            self._owner.will_load(partition)
            self._to_load.append(partition)
        self._ours = ours

    def _forget(self, now: Now) -> None:
        for partition in sorted(self._ours):
            self._owner.unload(partition, now)
        self._ours.clear()
        self._to_load.clear()
        self._loading = None
        self._id = None
        self._owner.partitions = 0

    # -- loading

    def step(self, now: Now) -> bool:
        """Load for a little while; False when there was nothing to do (a partition may still be recovered)."""
        until = time.monotonic() + SLICE_S
        did = False
        while time.monotonic() < until and (self._loading or self._begin()):
            self._go_on(now)
            did = True
        return did

    def _begin(self) -> bool:
        """Start on the next partition that can be read."""
        for _ in range(len(self._to_load)):
            partition = self._to_load.popleft()
            if partition not in self._ours:
                continue
            state = self._journal.state(partition)
            if state == slots.LEADER:
                self._loading = (partition, self._replay(), self._journal.read_all(partition))
                return True
            if state in (slots.OFFLINE, slots.DELETING):
                log.error("%s-%d cannot be read: what is in it is not served", self._topic, partition)
                continue
            self._to_load.append(partition)
        return False

    def _go_on(self, now: Now) -> None:
        assert self._loading is not None
        partition, replay, batches = self._loading
        if partition not in self._ours:
            self._loading = None
            return
        try:
            for _ in range(100):
                replay.feed(next(batches))
        except StopIteration:
            self._loading = None
            self._owner.loaded(partition, replay, now)
        except OSError as error:
            self._loading = None
            log.error("%s-%d cannot be read: what is in it is not served: %s", self._topic, partition, error)
            self._owner.unload(partition, now)

    # -- the first client

    def when_there(self, ready: Callable[[bool], None], now: Now) -> None:
        """Call `ready(True)` when the topic is there and, as a rule, loaded; `ready(False)` when it takes too long.

        A topic that is there but takes long to load is there: clients are told so by the group's own requests.
        """
        if self._id is not None and not self.is_loading:
            ready(True)
            return
        if self._id is None and not self._waiting:
            self._create()
        patience = CREATE_PATIENCE_MS if self._id is None else LOAD_PATIENCE_MS
        self._waiting.append((now.steady_ms + patience, ready))

    def tell(self, now: Now) -> None:
        """Answer those who waited, once a round."""
        if not self._waiting:
            return
        done = self._id is not None and not self.is_loading
        waiting, self._waiting = self._waiting, []
        for deadline, ready in waiting:
            if done or deadline <= now.steady_ms:
                ready(self._id is not None)
            else:
                self._waiting.append((deadline, ready))

    def creation_failed(self) -> None:
        """The controller could not make the topic: clients may ask again."""
        waiting, self._waiting = self._waiting, []
        for _, ready in waiting:
            ready(self._id is not None)
