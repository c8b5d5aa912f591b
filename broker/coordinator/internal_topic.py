"""`__consumer_offsets` or `__transaction_state`: creates it for the first client, and loads the partitions led here.

The metadata says which partitions this broker leads. A partition is read as soon as its slot says so too, and read
again if leadership was lost meanwhile, however briefly. Loading runs in slices of the loop; meanwhile requests are
answered COORDINATOR_LOAD_IN_PROGRESS. It ends when the high watermark has passed the data read: no client gets an
offset that the next failover could take away.

A group (or transactional id) that was reset is read in the same way, once all records queued for the partition are in
its log; the rest of the partition is served meanwhile. An unreadable log is logged as an error, and its groups are
answered COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from typing import Any, NamedTuple, Protocol

from odradek.broker.coordinator.internal_topic_log import InternalTopicLog
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.events import Now
from odradek.groups.log_writer import LogError, LogWriter
from odradek.ipc import slots
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

SLICE_S = 0.02
CREATE_TIMEOUT_MS = 10_000
CREATE_PAUSE_MS = 1_000  # after a refusal, however many clients ask
LOAD_TIMEOUT_MS = 1_000


class Replay(Protocol):
    """The consumer of a partition's batches."""

    def feed(self, batch: bytes) -> None: ...


class CoordinatorState(Protocol):
    """Groups or Transactions: whose state the topic holds."""

    partitions: int

    def partition_of(self, key: str, /) -> int: ...
    def will_load(self, partition: int) -> None: ...
    def loaded(self, partition: int, replay: Any, now: Now, only: Collection[str] | None) -> None: ...
    def unload(self, partition: int) -> None: ...
    def unreadable(self, partition: int, keys: Collection[str] | None) -> None: ...


class _Waiting(NamedTuple):
    deadline_ms: int
    keys: tuple[str, ...]
    ready: Callable[[bool], None]


class _Reading(NamedTuple):
    """A partition being read, for these keys only or (None) for all; `batches` returns the log end."""

    partition: int
    keys: frozenset[str] | None
    replay: Replay
    batches: Generator[bytes | None, None, int]


class InternalTopic:
    """The topic's partitions led here, and how far they are loaded. `unloaded` is called for each that is given up."""

    def __init__(
        self, owner: CoordinatorState, topic_log: InternalTopicLog, writer: LogWriter, broker_id: int,
        create: Callable[[], None], replay: Callable[[], Replay], topic: str = OFFSETS,
        unloaded: Callable[[int], None] = lambda partition: None,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._replay = replay
        self._topic = topic
        self._log = topic_log
        self._writer = writer
        self._broker_id = broker_id
        self._create = create
        self._unloaded = unloaded
        self._id: bytes | None = None
        self._led: set[int] = set()  # by the metadata
        self._not_loaded: set[int] = set()  # of ours, those not loaded: in one of the next three
        self._to_load: deque[int] = deque()
        self._to_reload: dict[int, set[str]] = {}  # of loaded ones in `_to_load`, the keys to read again
        self._loading: _Reading | None = None
        self._uncertain: list[tuple[_Reading, int]] = []  # read up to an offset not replicated yet
        self._waiting: list[_Waiting] = []
        self._create_at_ms = 0
        self._refusal = ""

    @property
    def is_loading(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._not_loaded or self._to_reload or self._loading or self._uncertain)

    def is_partly_loaded(self, partition: int) -> bool:
        """Whether the partition is ours and not fully loaded."""
        readings = [*([self._loading] if self._loading else []), *(reading for reading, _ in self._uncertain)]
        return (
            partition in self._not_loaded
            or partition in self._to_reload
            or any(r.partition == partition for r in readings)
        )

    # -- metadata

    def follow(self, snapshot: Snapshot, now: Now) -> None:
        """Take over a new snapshot, which follows each leadership change: load new partitions, give up lost ones.

        A partition still led here may have had another leader in between: it is loaded again.
        """
        topic = snapshot.topics.get(self._topic)
        if topic is None or topic.id != self._id:
            self._forget(now)
        if topic is None:
            return
        if self._id is None:
            # The count is fixed while this process runs: with another one, keys would map to the wrong partitions.
            self._owner.partitions = len(topic)
            self._id, self._refusal = topic.id, ""
        count = self._owner.partitions
        ours = {i for i, info in enumerate(topic.partitions[:count]) if info.leader == self._broker_id}
        for partition in sorted(self._led - ours | set(self._log.ended())):
            self._drop(partition, now)
        for partition in sorted(ours - self._led):
            self._add(partition)

    def _add(self, partition: int) -> None:
        self._owner.will_load(partition)
        self._led.add(partition)
        self._not_loaded.add(partition)
        self._to_load.append(partition)

    def _drop(self, partition: int, now: Now) -> None:
        """Stop serving and writing a partition."""
        self._stop_loading(partition)
        self._led.discard(partition)
        self._owner.unload(partition)
        self._writer.fail(partition, Error.NOT_LEADER_OR_FOLLOWER, now)
        self._unloaded(partition)

    def _stop_loading(self, partition: int) -> None:
        self._not_loaded.discard(partition)
        self._log.leave(partition)
        self._to_reload.pop(partition, None)
        self._uncertain = [row for row in self._uncertain if row[0].partition != partition]
        if partition in self._to_load:
            self._to_load.remove(partition)
        if self._loading is not None and self._loading.partition == partition:
            self._loading = None

    def _forget(self, now: Now) -> None:
        for partition in sorted(self._led):
            self._drop(partition, now)
        self._id = None
        self._owner.partitions = 0

    # -- loading

    def reload(self, key: str) -> None:
        """Read one group or transactional id again after its reset."""
        partition = self._owner.partition_of(key)
        if partition not in self._led or partition in self._not_loaded:
            return  # the whole partition is read, here or by another broker
        if partition not in self._to_reload:
            self._to_load.append(partition)
        self._to_reload.setdefault(partition, set()).add(key)

    def step(self, now: Now) -> bool:
        """Load for one time slice; False when there was nothing to do: the rest waits for other processes."""
        until = time.monotonic() + SLICE_S
        did = False
        while time.monotonic() < until and (self._loading or self._start_reading()) and self._read_some(now):
            did = True
        return self._finish(now) or did

    def _start_reading(self) -> bool:
        """Start on the next partition that can be read."""
        for _ in range(len(self._to_load)):
            partition = self._to_load.popleft()
            if self._may_read(partition):
                keys = self._to_reload.pop(partition, None)
                only = None if keys is None else frozenset(keys)
                self._loading = _Reading(partition, only, self._replay(), self._log.read_all(partition))
                return True
            if self._log.state(partition) in (slots.OFFLINE, slots.DELETING):
                self._stop_serving(partition, None, "its log is offline")
            else:
                self._to_load.append(partition)
        return False

    def _may_read(self, partition: int) -> bool:
        """Whether reading may start. A loaded partition is still entered; its queued records must be written first."""
        if partition in self._to_reload:
            return not self._writer.is_queued(partition)
        return self._log.enter(partition)

    def _stop_serving(self, partition: int, keys: frozenset[str] | None, why: object) -> None:
        """Stop serving a partition until this broker becomes leader again; of a loaded one, only these keys."""
        log.error(
            "%s-%d cannot be read, %s in it are not served: %s. Restore its files (or delete its directory, which "
            "loses what it holds) and restart the broker; the other partitions are served meanwhile",
            self._topic, partition, "all keys" if keys is None else f"{len(keys)} keys", why,
        )  # fmt: skip
        if keys is None:
            self._stop_loading(partition)
        self._owner.unreadable(partition, keys)

    def _read_some(self, now: Now) -> bool:
        """Read some batches; False when the log must be read again in a moment."""
        assert self._loading is not None
        reading = self._loading
        try:
            for _ in range(100):
                batch = next(reading.batches)
                if batch is None:
                    return False
                reading.replay.feed(batch)
        except StopIteration as end:
            self._loading = None
            self._uncertain.append((reading, end.value))
        except LogError:  # leadership is lost, or was lost meanwhile
            self._read_whole(reading, now)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("%s-%d: unexpected error while reading it", self._topic, reading.partition)
            self._loading = None
            self._stop_serving(reading.partition, reading.keys, error)
        return True

    def _read_whole(self, reading: _Reading, now: Now) -> None:
        """Read a partition from the start once this broker leads it; all its other state is outdated too."""
        if reading.keys is not None:
            self._drop(reading.partition, now)
            self._add(reading.partition)
            return
        self._stop_loading(reading.partition)
        self._not_loaded.add(reading.partition)
        self._to_load.append(reading.partition)

    def _finish(self, now: Now) -> bool:
        """Take over partitions whose data is fully replicated."""
        certain = [row for row in self._uncertain if self._log.is_certain(row[0].partition, row[1])]
        self._uncertain = [row for row in self._uncertain if row not in certain]
        for reading, _ in certain:
            if reading.keys is None:
                self._not_loaded.discard(reading.partition)
            self._owner.loaded(reading.partition, reading.replay, now, reading.keys)
        return bool(certain)

    # -- the first client

    def when_ready(self, ready: Callable[[bool], None], keys: Iterable[str], now: Now) -> None:
        """Call `ready(True)` when the topic exists and, usually, is loaded for `keys` (groups or transactional ids);
        `ready(False)` when it takes too long or cannot be created.

        A topic that is slow to load counts as ready: the group's own requests report that it is loading.
        """
        waiting = _Waiting(now.steady_ms + LOAD_TIMEOUT_MS, tuple(keys), ready)
        if self._is_ready_for(waiting):
            ready(True)
        elif self._id is not None:
            self._waiting.append(waiting)
        elif now.steady_ms < self._create_at_ms:
            ready(False)
        else:
            first = not self._waiting
            self._waiting.append(waiting._replace(deadline_ms=now.steady_ms + CREATE_TIMEOUT_MS))
            if first:
                self._request_creation()

    def _request_creation(self) -> None:
        if not self._refusal:
            log.info("creating %s", self._topic)
        self._create()

    def _is_ready_for(self, waiting: _Waiting) -> bool:
        if self._id is None:
            return False
        return not self._not_loaded or all(
            self._owner.partition_of(key) not in self._not_loaded for key in waiting.keys
        )

    def answer_waiting(self, now: Now) -> None:
        """Answer the waiting requests, once a turn."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.deadline_ms <= now.steady_ms or self._is_ready_for(one):
                self._answer(one)
            else:
                self._waiting.append(one)

    def creation_failed(self, why: str, now: Now) -> None:
        """The topic could not be created: clients may ask again. Logged once for each new reason."""
        if why != self._refusal:
            log.error("cannot create %s: %s", self._topic, why)
        self._refusal, self._create_at_ms = why, now.steady_ms + CREATE_PAUSE_MS
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._answer(one)

    def _answer(self, one: _Waiting) -> None:
        """Answer one request; an exception in it does not affect the others."""
        try:
            one.ready(self._id is not None)
        except Exception:
            log.exception("%s: unexpected error in a delayed request", self._topic)
