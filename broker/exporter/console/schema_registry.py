"""Schemas of a registry by id, as types that `avro_text` reads by.

Owner: the exporter process. Schemas never change, so the last ones are kept, in about KEPT bytes. An id without a
readable schema is asked for again after UNKNOWN_S, a registry that failed after DOWN_S.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from odradek.broker.exporter.console import avro_schema
from odradek.broker.exporter.console.avro_schema import Names, SchemaError, Type
from odradek.broker.exporter.console.errors import NotAvro
from odradek.broker.exporter.console.schema_requests import REQUESTS, Down, Page, Requests

KEPT = 32 << 20
UNKNOWN_S, DOWN_S = 60.0, 10.0
_CHARACTER, _TYPE = 16, 512  # bytes that each may take, at most
_IDS = 1000  # without a schema, that are kept


class SchemaRegistry:
    """The cache. Threads take turns."""

    def __init__(self, requests: Requests) -> None:
        self._requests, self._turn = requests, threading.Lock()
        self._types: OrderedDict[int, tuple[Type, int]] = OrderedDict()  # with the bytes that it may take
        self._size = 0  # the sum of those
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()  # until a time, and why
        self._down = (0.0, "")

    def find(self, number: int, page: Page) -> Type:
        """The type of that id. NotAvro."""
        with self._turn:
            if number in self._types:
                self._types.move_to_end(number)
                return self._types[number][0]
            until, why = self._unknown.get(number, (0.0, ""))
            if until > time.monotonic():
                raise NotAvro(why)
            return self._asked(number, page)

    def _asked(self, number: int, page: Page) -> Type:
        try:
            if self._down[0] > time.monotonic():
                raise Down(self._down[1])
            found, size = _loaded(self._requests, number, page)
        except Down as error:
            self._is_down(str(error), page)
            raise NotAvro("its schema is not known") from None
        except SchemaError as error:
            why = f"no schema {number}: {error}"
            self._forget(number, why)
            raise NotAvro(why) from None
        self._keep(number, found, size)
        return found

    def _is_down(self, why: str, page: Page) -> None:
        page.note(why)
        if self._down[0] <= time.monotonic():
            self._down = time.monotonic() + DOWN_S, why

    def _forget(self, number: int, why: str) -> None:
        self._unknown[number] = time.monotonic() + UNKNOWN_S, why
        self._unknown.move_to_end(number)
        if len(self._unknown) > _IDS:
            self._unknown.popitem(last=False)

    def _keep(self, number: int, found: Type, size: int) -> None:
        self._types[number] = found, size
        self._size += size
        while self._size > KEPT:
            self._size -= self._types.popitem(last=False)[1][1]


def _loaded(requests: Requests, number: int, page: Page) -> tuple[Type, int]:
    """The type of an id, and the bytes that it may take. First it parses the schemas that this one refers to."""
    named = Names()
    seen: set[str] = set()
    sizes: list[int] = []

    def load(path: str) -> Type:
        answer = requests.get(path, page)
        for there in _references(answer):
            if there not in seen:
                seen.add(there)
                if len(seen) >= REQUESTS:  # no page could ever ask for all of it
                    raise SchemaError(f"it refers to {REQUESTS} other schemas or more")
                load(there)
        sizes.append(len(answer["schema"]))
        return avro_schema.parse(answer["schema"], named)

    found = load(f"/schemas/ids/{number}")
    return found, _CHARACTER * sum(sizes) + _TYPE * named.made


def _references(answer: dict[str, Any]) -> Iterator[str]:
    """The paths of the schemas whose types it names. SchemaError."""
    found = answer.get("references") or []
    for each in found if isinstance(found, list) else [None]:
        subject, version = (each.get("subject"), each.get("version")) if isinstance(each, dict) else (None, None)
        if not isinstance(subject, str) or not isinstance(version, int):
            raise SchemaError("its references have no subject and version")
        yield f"/subjects/{quote(subject, safe='', errors='replace')}/versions/{version}"
