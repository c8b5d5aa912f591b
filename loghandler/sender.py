"""The thread of a handler in one process: takes parts of the backlog, sends them, and says what goes wrong.

Layout: a Backlog and Reports. Owner: the process that made it; after a fork the child makes its own and leaves this one
unused, whatever its lock's state. Writers: every thread that logs, and the sender's own. Lock: `_changed`, held for
changes of memory only, never while the thread sends, prints or formats; it is reentrant because signal handlers and
finalizers may log or flush while their thread holds it. Crash rule: the records that wait are lost with the process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from odradek.loghandler.backlog import Backlog, Entry, Part
from odradek.loghandler.handler_settings import HandlerSettings
from odradek.loghandler.reports import Reports
from odradek.loghandler.topic_producer import PartitionGone, Refused, TooLarge, TopicProducer
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.wire.retries import RetryLater
from odradek.pipeline.wire.settings import as_settings

_JOIN_SECONDS = 1.0
# The threads of all senders of this process. What their clients log goes to no KafkaHandler: two handlers would send
# each other's records for ever.
_own_threads: set[int] = set()


def is_sending() -> bool:
    """Whether the calling thread is a sender's."""
    return threading.get_ident() in _own_threads


class Sender:
    """One for a handler and a process. Its methods are for the threads that log; none waits, but flush and close."""

    def __init__(
        self, settings: HandlerSettings, interval: float, make_report: Callable[[Counter[str]], Entry], closing: float
    ) -> None:
        """interval: seconds between two reports. make_report: makes the record about these drops, by reason.
        closing: how many seconds `close` waits."""
        self._changed = threading.Condition()
        self._holder = 0  # the thread that is within `offer`
        self._late: deque[Entry] = deque()  # offered by a signal handler or finalizer within `offer`
        self._backlog = Backlog(settings.limits)
        self._reports = Reports(settings.topic, interval)
        self._reported: Counter[str] = Counter()  # drops in records that have arrived
        self._last_report: Counter[str] = Counter()  # drops in these and in the last record, which may not have
        self._make_report = make_report
        self._closing = closing
        self._settings = settings
        self._producer: TopicProducer | None = None  # the thread's
        self._thread: threading.Thread | None = None
        self._ended = False
        self._in_vain = 0.0  # seconds that flushes waited without success since the last acknowledgement

    # -- threads that log

    @property
    def ended(self) -> bool:
        """Whether it was closed."""
        return self._ended

    def offer(self, entry: Entry) -> None:
        """Put a record into the queue, or drop and count it; starts the thread at the first one."""
        if self._holder == threading.get_ident():
            self._late.append(entry)
            return
        self._offer(entry)
        while self._late:
            with suppress(IndexError):  # another thread was first
                self._offer(self._late.popleft())
        if self._thread is None:
            self._start()

    def _offer(self, entry: Entry) -> None:
        with self._changed:
            self._holder = threading.get_ident()
            try:
                self._wake(self._backlog.offer(entry))
            finally:
                self._holder = 0

    def drop(self, reason: str) -> None:
        """Count a record that could not be offered."""
        with self._changed:
            self._backlog.drop(reason)
            self._wake(False)
        if self._thread is None:
            self._start()

    def _wake(self, due: bool) -> None:
        """Wake the thread when a batch is due, or at the first drop after a line."""
        if due or self._backlog.drops == self._reports.said_drops + 1:
            self._changed.notify_all()

    def counters(self) -> dict[str, int]:
        """Records `accepted`, `sent`, `waiting` and `dropped`."""
        with self._changed:
            backlog = self._backlog
            numbers = backlog.accepted, backlog.sent, backlog.waiting, backlog.drops
        return dict(zip(("accepted", "sent", "waiting", "dropped"), numbers, strict=True))

    def dropped(self) -> Counter[str]:
        """Dropped records by reason."""
        with self._changed:
            return self._backlog.dropped.copy()

    def flush(self, seconds: float) -> bool:
        """Wait until all records offered before are acknowledged or dropped; False when time is over first."""
        if is_sending():
            return False
        began = time.monotonic()
        with self._changed:
            goal = self._backlog.hurry()
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._ended or self._backlog.settled >= goal, seconds)
            self._in_vain += 0.0 if done else time.monotonic() - began
            return done

    def close(self) -> None:
        """Send what waits; drop, count and say the rest; end the thread. Flushes that waited in vain shorten the time,
        because `logging.shutdown` flushes first."""
        if self._ended or is_sending():
            return
        ends = time.monotonic() + self._closing - self._in_vain
        done = self.flush(_left(ends)) and self._await_report(_left(ends))
        with self._changed:
            self._ended = True
            self._backlog.close()
            line = self._reports.last_line(self._backlog.dropped)
            self._changed.notify_all()
        say(line)
        if self._thread is not None and done:
            self._thread.join(_JOIN_SECONDS)

    def _await_report(self, seconds: float) -> bool:
        """Wait for the record about the last drops, which needs a broker that answers."""
        with self._changed:
            self._reports.hurry()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._backlog.idle and not self._report_due(), seconds)

    def leave(self) -> None:
        """In a forked child: close the copies of the parent's sockets."""
        _own_threads.clear()
        if self._producer is not None:
            with suppress(Exception):  # the parent's thread may have been anywhere
                self._producer.close()

    # -- the thread

    def _start(self) -> None:
        with self._changed:
            if self._thread is not None or self._ended:
                return
            self._thread = threading.Thread(target=self._run, name="odradek-logging", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends, or the process has too many threads
            self._thread = None
        else:
            _close_at_the_end_of_a_worker(self)

    def _run(self) -> None:
        _own_threads.add(threading.get_ident())
        try:
            while not self._ended:
                part = self._next()
                if part is not None:
                    self._deliver(part)
                self._report()
            self._disconnect()
        finally:
            _own_threads.discard(threading.get_ident())

    def _next(self) -> Part | None:
        """The part to send now; None after a wait in which something has changed, or something may be due."""
        with self._changed:
            now, settled = time.monotonic(), self._backlog.settled
            part = self._backlog.take(now)
            if self._backlog.settled > settled:  # some were too old
                self._changed.notify_all()
            if part is None and not self._ended:
                self._changed.wait(self._seconds(now))
            return part

    def _seconds(self, now: float) -> float | None:
        due = [self._backlog.seconds(now), self._reports.seconds(self._backlog.dropped, now)]
        if not self._backlog.report_waits:
            due.append(self._reports.report_seconds(self._unreported(), now))
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _deliver(self, part: Part) -> None:
        outcome = self._attempt(part)
        with self._changed:
            if not self._ended:
                outcome()
            self._changed.notify_all()

    def _attempt(self, part: Part) -> Callable[[], None]:
        """Divide the part by partitions, or send it; returns the change of the backlog that follows."""
        try:
            if part.partition is None:
                return partial(self._backlog.divide, self._connected().divide(part.entries))
            self._connected().send(part.partition, part.entries)
            return self._acknowledged
        except RetryLater as error:
            return partial(self._failed, str(error))
        except PartitionGone:
            return self._backlog.join
        except TooLarge:
            return self._too_large
        except Refused as error:
            return partial(self._refused, f"refused by the broker with {error.name}", str(error), error.indexes)
        except (PipelineError, UnicodeError) as error:  # the latter for a name that cannot be a host's
            self._disconnect()  # some connection may be in the middle of an answer
            return partial(self._failed, as_settings(str(error)))
        except Exception as error:  # a fault of this package must end neither the thread nor the program
            self._disconnect()
            self._producer = None
            return partial(self._refused, "sending raised an error", f"{type(error).__name__}: {error}")

    def _connected(self) -> TopicProducer:
        if self._producer is None:
            self._producer = TopicProducer(self._settings)
        return self._producer

    def _disconnect(self) -> None:
        """Close the connections. The producer keeps its id: what was sent may have arrived, and is sent again."""
        if self._producer is not None:
            self._producer.close()

    # -- outcomes, under the lock

    def _acknowledged(self) -> None:
        self._backlog.acknowledge()
        self._reports.answered()
        self._in_vain = 0.0

    def _failed(self, why: str) -> None:
        now = time.monotonic()
        self._reports.failed(why, now)
        if not self._backlog.fail(now) and self._producer is not None:
            self._producer.forget()

    def _too_large(self) -> None:
        self._backlog.halve()
        self._reports.answered()

    def _refused(self, reason: str, why: str, indexes: Collection[int] = ()) -> None:
        self._backlog.refuse(reason, indexes)
        self._reports.refused(why)

    # -- what it says

    def _report(self) -> None:
        """Print the line that is due, and queue the record about drops that is due."""
        now = time.monotonic()
        with self._changed:
            line = self._reports.line(self._backlog.dropped, self._backlog.waiting, now)
            dropped = self._backlog.dropped.copy() if self._report_due() else None
        say(line)
        if dropped is not None:
            self._queue_report(dropped, now)

    def _report_due(self) -> bool:
        return not self._backlog.report_waits and self._reports.report_due(self._unreported(), time.monotonic())

    def _unreported(self) -> int:
        return self._backlog.drops - self._backlog.reported

    def _queue_report(self, dropped: Counter[str], now: float) -> None:
        if self._backlog.reported == self._last_report.total():
            self._reported = self._last_report  # it has arrived
        self._last_report = dropped
        entry = self._make_report(dropped - self._reported)._replace(report=dropped.total())
        with self._changed:
            if not self._ended:
                self._backlog.offer_report(entry)
                self._reports.report_made(now)


def _left(ends: float) -> float:
    return max(0.0, ends - time.monotonic())


def say(line: str | None) -> None:
    """Print a line on stderr, if there is one. A program may have closed it, or put anything in its place."""
    if line:
        with suppress(Exception):
            sys.stderr.write(" ".join(line.split()) + "\n")  # a broker's message may have several lines
            sys.stderr.flush()


def _close_at_the_end_of_a_worker(sender: Sender) -> None:
    """Forked processes of `multiprocessing` end without the calls that `atexit` makes, and so without
    `logging.shutdown`: they have a list of their own. Not imported here: in such a process it is."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, sender.close, exitpriority=-100)  # after other finalizers, which may log
