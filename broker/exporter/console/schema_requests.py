"""Requests to the schema registry at `odradek.console.schema.registry.url`: GET, and nothing else.

What a registry does not bound is bounded here: ANSWER bytes of an answer, REQUESTS and WHOLE_S of one page of the
console; redirects are not followed. Each request runs in a thread of its own, because no timeout ends the search for
a name: the page goes on without it, and no other request is sent before it has ended. Such a thread does not hold up
the end of the process either.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

from odradek.broker.exporter.console.avro_schema import SchemaError
from odradek.broker.exporter.console.errors import NotAvro
from odradek.workers.net import bounded_http

URL = "odradek.console.schema.registry.url"
ANSWER = 1 << 18  # bytes
REQUESTS = 20
WHOLE_S = 5.0
# No subject, version or schema: https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors
_MISSING = (40401, 40402, 40403)
_OF_ALL = (401, 404, 407, 408, 429)  # statuses that are not about one schema; 404: the URL is not a registry's
_ACCEPT = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}


class Down(Exception):
    """The registry gives no schema for now; one line."""


class Page:
    """What one page of the console may ask, and `notes`, lines that it shows once."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._left, self._until = REQUESTS, time.monotonic() + WHOLE_S

    def next(self) -> float:
        """The seconds for another request. NotAvro where the page had enough."""
        left = self._until - time.monotonic()
        if self._left <= 0 or left <= 0:
            self.note(f"a page waits {WHOLE_S:.0f} s for {REQUESTS} schemas at most: read it again for the others")
            raise NotAvro("its schema was not asked for")
        self._left -= 1
        return left

    def note(self, line: str) -> None:
        """Show the line once."""
        if line not in self.notes:
            self.notes.append(line)


class Requests:
    """One at a time."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._thread: threading.Thread | None = None

    def get(self, path: str, page: Page) -> dict[str, Any]:
        """An answer with an Avro schema. Down; SchemaError where there is none; NotAvro where the page had enough."""
        answer = self._answer(path, page.next())
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise _failed("does not answer with JSON") from None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise _failed("does not answer with a schema")
        if (kind := found.get("schemaType") or "AVRO") != "AVRO":
            raise SchemaError(f"it is {str(kind)[:20]}, not AVRO")
        return found

    def _answer(self, path: str, seconds: float) -> bytes:
        if self._thread is not None and self._thread.is_alive():
            raise _failed("has not ended an earlier answer")
        found: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_fetch, args=(self._url + path, seconds, found), daemon=True)
        self._thread.start()
        try:
            answer = found.get(timeout=seconds)
        except queue.Empty:
            raise _failed(f"has not answered in {WHOLE_S:.0f} s") from None
        self._thread.join()  # it has nothing left to do; alive, it would count as an answer that has not ended
        if isinstance(answer, Exception):
            raise _fault(answer)
        return answer


def _fetch(url: str, seconds: float, found: queue.SimpleQueue[bytes | Exception]) -> None:
    """In a thread, which ends a second after the page has gone on."""
    late = seconds + 1
    try:
        answer = bounded_http.fetch(
            url, headers=_ACCEPT, most=ANSWER, redirects=False, whole_s=late, connect_s=late, read_s=late
        )
        found.put(answer)
    except Exception as error:  # also what http.client does not expect of a server
        found.put(error)


def _fault(error: Exception) -> Exception:
    """SchemaError for what is about one schema: others are asked for all the same."""
    if isinstance(error, bounded_http.TooLarge):
        return SchemaError(f"it has more than {ANSWER} bytes")
    if isinstance(error, bounded_http.HttpStatus):
        if _code(error.body) in _MISSING:
            return SchemaError("the registry has no such schema, or not all that it names")
        if 400 <= error.status < 500 and error.status not in _OF_ALL:
            return SchemaError(f"the registry answers {error.status}")
    return _failed(f"gives no schema: {' '.join(str(error).split())[:200] or type(error).__name__}")


def _code(body: bytes) -> object:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get("error_code") if isinstance(found, dict) else None


def _failed(why: str) -> Down:
    return Down(f"values are not shown as Avro: the schema registry of {URL} {why}")
