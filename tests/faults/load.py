"""Producers that continue through all faults, and remember acknowledged records (readers: readers.py).

Each is a thread with one raw connection at a time. A producer has up to five requests in flight. If it is idempotent
it resends unanswered requests in order; else it gives them up. Both move to a new connection now and then, so that in
time every worker serves every producer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from . import wires
from .checker import History
from .wires import Frames

IN_FLIGHT = 5
PATIENCE_S = 30.0  # without an answer for this long, a client drops its connection
RETRY_S = 0.02
MOVE_AFTER = (100, 400)
AWAY = {3, 5, 6}  # unknown topic or partition, leader not available, not the leader: try again
_OUT_OF_ORDER = 45


class Request(NamedTuple):
    """A Produce request without an answer so far."""

    partition: int
    first: int
    size: int
    records: bytes


class Client:
    """A thread with a connection."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.rng = random.Random(seed)
        self.problems: list[str] = []
        self.patient = True  # at the end, wait for the answers to all requests in flight
        self.longest_gap = 0.0  # between two answers on a connection, while a request was in flight
        self.longest_greeting = 0.0  # until the first answer on a new connection, which the acceptor hands over
        self.gap_ended = self.greeting_ended = ""  # wall-clock times, to find the place in the log of the broker
        self._greeted = False
        self._stop = threading.Event()
        self._frames: Frames | None = None
        self._asked_at = 0.0
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.problems.append(f"{type(self).__name__}: {error!r}")
            raise

    def _run(self) -> None:
        raise NotImplementedError

    def _connected(self) -> Frames | None:
        if self._frames is None:
            try:
                self._frames = Frames(self.bootstrap)
                self._greeted = False
            except OSError:
                time.sleep(RETRY_S)
        return self._frames

    def _drop(self) -> None:
        if self._frames is not None:
            self._frames.close()
        self._frames = None

    def _answered(self) -> None:
        """Note an answer on this connection."""
        now = time.monotonic()
        waited = now - self._asked_at
        if not self._greeted and waited > self.longest_greeting:
            self.longest_greeting, self.greeting_ended = waited, time.strftime("%X")
        elif self._greeted and waited > self.longest_gap:
            self.longest_gap, self.gap_ended = waited, time.strftime("%X")
        self._greeted, self._asked_at = True, now

    def _asked(self, first: bool) -> None:
        if first:
            self._asked_at = time.monotonic()

    def stop(self, seconds: float = 60) -> None:
        """Stop once all requests in flight are answered."""
        self._stop.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.problems.append(f"{type(self).__name__} did not end")


class Producer(Client):
    """Sends numbered records to the partitions of a topic."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, number: int, *, idempotent: bool, pause: float = 0.01
    ) -> None:
        super().__init__(bootstrap, number)
        self.history = History(number, idempotent)
        self.errors: dict[int, int] = {}
        self.topic, self._partitions, self._pause = topic, partitions, pause
        self._identity: tuple[int, int] | None = None
        self._flying: deque[tuple[int, Request]] = deque()
        self._again: deque[Request] = deque()
        self._correlation = 0
        self._move_in = self.rng.randint(*MOVE_AFTER)

    def _run(self) -> None:
        while not self._stop.is_set() or (self.patient and (self._flying or self._again)):
            frames = self._connected()
            if frames is None:
                continue
            try:
                if self._ready(frames):
                    self._turn(frames)
            except (OSError, EOFError):
                self._lost()
        self._drop()

    def _ready(self, frames: Frames) -> bool:
        """Whether this producer has its id."""
        if self.history.idempotent and self._identity is None:
            frames.send(wires.init_producer_id(0))
            for frame in frames.take(PATIENCE_S):
                self._identity = wires.producer_identity(frame)
        return not self.history.idempotent or self._identity is not None

    def _turn(self, frames: Frames) -> None:
        if not self._flying:
            time.sleep(self._pause)
            if self._moved():
                return
            self._fill(frames)
        for frame in frames.take(0.1):
            self._answered()
            self._take(wires.produced(frame))
        if self._flying and time.monotonic() - self._asked_at > PATIENCE_S:
            raise OSError("no answer")

    def _moved(self) -> bool:
        """Whether it is time to use another connection; closes the present one."""
        if self._move_in > 0:
            return False
        self._move_in = self.rng.randint(*MOVE_AFTER)
        self._drop()
        return True

    def _fill(self, frames: Frames) -> None:
        """Send a burst; failed requests are resent first, without new ones."""
        self._again.extend([] if self._again else self._burst())
        while self._again:  # one at a time: the connection may break in between
            self._send(frames, self._again.popleft())

    def _burst(self) -> list[Request]:
        if self._stop.is_set():
            return []
        return [self._next() for _ in range(self.rng.randint(1, IN_FLIGHT))]

    def _next(self) -> Request:
        partition, count = self.rng.randrange(self._partitions), self.rng.randint(1, 3)
        first = self.history.sent.get(partition, 0)
        self.history.sent[partition] = first + count
        records = wires.record_batch(self.history.producer, first, count, self._identity)
        return Request(partition, first, count, records)

    def _send(self, frames: Frames, request: Request) -> None:
        self._correlation += 1
        self._move_in -= 1
        self._asked(not self._flying)
        self._flying.append((self._correlation, request))
        frames.send(wires.produce(self.topic, request.partition, request.records, self._correlation))

    def _take(self, answer: wires.Answer) -> None:
        correlation, request = self._flying.popleft()
        if correlation != answer.correlation:
            self.problems.append(f"answer {answer.correlation} came instead of {correlation}")
        elif not answer.error:
            acked = self.history.acked.setdefault(request.partition, {})
            acked.update({request.first + at: answer.base_offset + at for at in range(request.size)})
        else:
            self._refused(request, answer.error)

    def _refused(self, request: Request, error: int) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1
        follows = error == _OUT_OF_ORDER and bool(self._again)
        if error not in AWAY and not follows:
            self.problems.append(f"producer {self.history.producer}: error {error}")
        if self.history.idempotent:
            self._again.append(request)
        else:
            numbers = range(request.first, request.first + request.size)
            self.history.refused.setdefault(request.partition, set()).update(numbers)

    def _lost(self) -> None:
        self._drop()
        flying = [request for _, request in self._flying]
        self._flying.clear()
        if self.history.idempotent:
            self._again = deque(sorted([*self._again, *flying], key=lambda request: request.first))


class Hiccups(Client):
    """Measures how long this machine delays a thread that only writes a page; a broker cannot do better."""

    def __init__(self, path: Path) -> None:
        super().__init__("", 0)
        self.longest = 0.0
        self._path = path

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            time.sleep(RETRY_S)
            self._path.write_bytes(bytes(4096))
            self.longest = max(self.longest, time.monotonic() - began - RETRY_S)


@contextmanager
def running(clients: list[Client]) -> Iterator[None]:
    """Run the clients during the block, and stop them at its end."""
    for client in clients:
        client.start()
    try:
        yield
    except BaseException:
        for client in clients:  # the broker may have ended and cannot answer
            client.patient = False
        raise
    finally:
        for client in clients:
            client.stop()


def await_more(producers: list[Producer], more: int, seconds: float, why: Callable[[], str]) -> None:
    """Wait until each producer has `more` further records acknowledged."""
    goals = [producer.history.count + more for producer in producers]
    deadline = time.monotonic() + seconds
    while any(producer.history.count < goal for producer, goal in zip(producers, goals, strict=True)):
        problems = [problem for producer in producers for problem in producer.problems]
        if problems or time.monotonic() > deadline:
            raise AssertionError(f"no progress: {problems[:5]} {[producer.errors for producer in producers]}\n{why()}")
        time.sleep(0.02)
