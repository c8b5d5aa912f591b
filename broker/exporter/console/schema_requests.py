"""Requests to the schema registry at `odradek.console.schema.registry.url`: GET, and nothing else.

What a registry does not bound is bounded here: ANSWER bytes of an answer, REQUESTS and WHOLE_S of one page of the
console; redirects are not followed. Each request runs in a thread of its own, because no timeout ends the search for
a name: the page goes on without it, and no other request is sent before it has ended. Such a thread does not hold up
the end of the process either.

The user of odradek.console.schema.registry.basic.auth.user.info goes along with each request, over https or loopback,
and nowhere else: neither to another server nor into a line.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.broker.exporter.console.avro_schema import SchemaError
from odradek.broker.exporter.console.errors import NotAvro
from odradek.workers.net import bounded_http

if TYPE_CHECKING:
    from odradek.broker.interbroker.tls_client import TlsClient

URL = "odradek.console.schema.registry.url"
USER_INFO = "odradek.console.schema.registry.basic.auth.user.info"
_TRUST = {
    "ssl.truststore.location": "odradek.console.schema.registry.ssl.truststore.location",
    "ssl.truststore.type": "odradek.console.schema.registry.ssl.truststore.type",
    "ssl.truststore.password": "odradek.console.schema.registry.ssl.truststore.password",
}
ANSWER = 1 << 18  # bytes
REQUESTS = 20
WHOLE_S = 5.0
# No subject, version or schema: https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors
_MISSING = (40401, 40402, 40403)
_NO_USER = 401
_OF_ALL = (404, 407, 408, 429)  # other statuses that are not about one schema; 404: the URL is not a registry's
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

    def __init__(self, url: str, user_info: str = "", trust: TlsClient | None = None) -> None:
        """`user_info`: USER:PASSWORD. `trust`: how https is checked; None: as the system does."""
        self._url, self._trust = url.rstrip("/"), trust
        token = base64.b64encode(user_info.encode()).decode()
        self._headers = {**_ACCEPT, "Authorization": f"Basic {token}"} if user_info else _ACCEPT
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
        self._thread = threading.Thread(target=self._fetch, args=(self._url + path, seconds, found), daemon=True)
        self._thread.start()
        try:
            answer = found.get(timeout=seconds)
        except queue.Empty:
            raise _failed(f"has not answered in {WHOLE_S:.0f} s") from None
        self._thread.join()  # it has nothing left to do; alive, it would count as an answer that has not ended
        if isinstance(answer, Exception):
            raise _fault(answer)
        return answer

    def _fetch(self, url: str, seconds: float, found: queue.SimpleQueue[bytes | Exception]) -> None:
        """In a thread, which ends a second after the page has gone on."""
        late = seconds + 1
        try:
            context = self._trust.context() if self._trust is not None else None
            answer = bounded_http.fetch(
                url, context=context, headers=self._headers, most=ANSWER, redirects=False, whole_s=late,
                connect_s=late, read_s=late, proxies=url.startswith("https:"),  # a proxy would read the password
            )  # fmt: skip
            found.put(answer)
        except Exception as error:  # also what http.client does not expect of a server
            found.put(error)


def of(config: Mapping[str, Any]) -> Requests:
    """The requests that the settings describe; an earlier version has saved the URL only."""
    values = {name: config.get(name) for name in _TRUST.values()}
    trust = _trust_of(values) if values[_TRUST["ssl.truststore.location"]] else None
    return Requests(config[URL], config.get(USER_INFO, ""), trust)


def _trust_of(values: Mapping[str, Any]) -> TlsClient:
    from odradek.broker.interbroker.tls_client import TlsClient  # takes 0.1 s
    from odradek.security.tls.settings import named_settings

    return TlsClient(named_settings(values, _TRUST))


def _fault(error: Exception) -> Exception:
    """SchemaError for what is about one schema: others are asked for all the same."""
    if isinstance(error, bounded_http.TooLarge):
        return SchemaError(f"it has more than {ANSWER} bytes")
    if isinstance(error, bounded_http.HttpStatus):
        if _code(error.body) in _MISSING:
            return SchemaError("the registry has no such schema, or not all that it names")
        if error.status == _NO_USER:
            return _failed(f"answers 401: set {USER_INFO} to USER:PASSWORD of a user that may read schemas")
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
