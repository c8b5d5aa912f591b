"""`KafkaHandler`: formats a record in the thread that logs, and puts it into the queue of this process's Sender.

A record is formatted at once, because its arguments may change later. Nothing waits: the handler has no lock of its own
(`logging` holds a handler's lock while it flushes it at the end of a program), and the Sender's is held for moments.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.loghandler.backlog import NOT_FORMATTED, Entry
from odradek.loghandler.handler_settings import parse
from odradek.loghandler.json_formatter import JsonFormatter
from odradek.loghandler.reports import drops_text
from odradek.loghandler.sender import Sender, is_sending

# A %-format of a record's attributes, or what computes it.
Template = str | Callable[[logging.LogRecord], str | bytes | None]

_REPORTER = "odradek.logging"  # the logger that the record about drops names


class KafkaHandler(logging.Handler):
    """Sends log records to a topic: as JSON objects, or as the formatter makes them that `setFormatter` sets.

    What its own client logs, in the thread that sends, is left out.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str,
        *,
        level: int | str = logging.NOTSET,
        key: Template | None = None,
        headers: Mapping[str, Template] | None = None,
        properties: Mapping[str, Any] | None = None,
        report_interval: float = 60.0,
        close_timeout: float = 5.0,
    ) -> None:
        """Connects to nothing yet. ValueError for a wrong setting, in one line that says what to change.

        key, headers: `%(name)s` and the like, or functions of a record; a function may return None for none.
        properties: settings of a producer under Kafka's names, such as `compression.type` (docs/logging.md).
        report_interval: seconds between two reports about drops.
        close_timeout: how many seconds `close` and `flush`, and so the end of the program, wait for a broker.
        """
        if report_interval <= 0:
            raise ValueError(f"report_interval is {report_interval}: it must be above 0 seconds")
        self._settings = parse(bootstrap_servers, topic, properties or {})
        super().__init__(level)  # not before an error: `logging` keeps the handlers that it knows, to close them
        self._key = key
        self._headers = dict(headers or {})
        self.formatter = JsonFormatter()  # at once: logging.basicConfig gives its own to handlers without one
        self._report_interval = report_interval
        self._close_timeout = close_timeout
        self._sender = self._new_sender()
        _handlers.add(self)

    def _new_sender(self) -> Sender:
        return Sender(self._settings, self._report_interval, self._about_drops, self._close_timeout)

    # -- what `logging` calls

    def createLock(self) -> None:
        """None: each thread formats for itself, and the queue has a lock."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """As the base class does, without a lock."""
        passed = self.filter(record)
        if isinstance(passed, logging.LogRecord):  # Python 3.12: a filter may replace the record
            record = passed
        if passed:
            self.emit(record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Put the record into the queue; never waits for a broker. A full queue drops it, which is counted."""
        if is_sending():
            return
        try:
            entry = self._entry(record)
        except RecursionError:  # as in Python's own handlers
            raise
        except Exception:
            self._sender.drop(NOT_FORMATTED)
            self.handleError(record)
        else:
            self._sender.offer(entry)

    def flush(self, timeout: float | None = None) -> bool:  # type: ignore[override]  # the base class returns None
        """Wait until all records logged before are acknowledged or dropped, at most `timeout` seconds, or the handler's
        close_timeout. False when the time is over."""
        return self._sender.flush(self._close_timeout if timeout is None else timeout)

    def close(self) -> None:
        """Send what waits for at most close_timeout seconds; drop the rest, and say so on stderr."""
        self._sender.close()
        super().close()

    # -- what users ask

    def counters(self) -> dict[str, int]:
        """Records of this process that were `accepted`, and of these `sent` and `waiting`; and all `dropped` ones."""
        return self._sender.counters()

    def dropped(self) -> dict[str, int]:
        """Dropped records of this process by reason."""
        return dict(self._sender.dropped())

    # -- entries

    def _entry(self, record: logging.LogRecord) -> Entry:
        value = _bytes(self.format(record))
        headers = [(name, _rendered(template, record)) for name, template in self._headers.items()]
        return Entry(
            value=value,
            key=_rendered(self._key, record),
            headers=tuple((_bytes(name), text) for name, text in headers if text is not None),
            timestamp=int(record.created * 1000),
            since=time.monotonic(),
        )

    def _about_drops(self, dropped: Counter[str]) -> Entry:
        """A record for the topic about dropped records, without key and headers; plain text if the formatter raises."""
        text = drops_text(dropped)
        made = {"name": _REPORTER, "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
        record = logging.makeLogRecord(made | {"pathname": __file__, "dropped": dict(dropped)})
        try:
            text = self.format(record)
        except Exception:
            pass
        return Entry(_bytes(text), None, (), int(record.created * 1000), time.monotonic())

    # -- forks

    def after_fork(self) -> None:
        """In a child: what waits is the parent's to send, and the thread and connections are the parent's."""
        parents = self._sender
        if not parents.ended:
            self._sender = self._new_sender()
        parents.leave()


def _rendered(template: Template | None, record: logging.LogRecord) -> bytes | None:
    if template is None:
        return None
    found = template(record) if callable(template) else template % vars(record) if "%(" in template else template
    return found if found is None or isinstance(found, bytes) else _bytes(found)


def _bytes(text: str) -> bytes:
    """UTF-8. A surrogate without its partner, which UTF-8 does not have, becomes `\\udc80`: in JSON the same text."""
    return text.encode(errors="backslashreplace")


_handlers: weakref.WeakSet[KafkaHandler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
