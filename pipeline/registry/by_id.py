"""Schemas by id, for tasks: each process caches the last ones, which never change."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.registry import client
from odradek.pipeline.registry.settings import Registry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

KEPT = 1000  # the most schemas in the cache, and as many ids without one
_SECONDS = 60.0  # before an id without a schema is requested again
_REGISTRIES = 4
Value = TypeVar("Value")


class ById:
    """The cache of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._client: SchemaRegistryClient | None = None
        self._asked = 0
        self._schemas: OrderedDict[int, str] = OrderedDict()
        self._unknown: OrderedDict[int, float] = OrderedDict()  # monotonic seconds of the next request

    def __call__(self, number: int) -> str | None:
        """The Avro schema of that id, None where there is none. PipelineError where the registry does not answer."""
        if number in self._schemas:
            self._schemas.move_to_end(number)
            return self._schemas[number]
        if number < 0 or self._unknown.get(number, 0.0) > time.monotonic():
            return None
        with client.one_line_errors(self._registry):
            found = client.schema(self._asking(), number)
        if found is None:
            _keep(self._unknown, number, time.monotonic() + _SECONDS)
        else:
            _keep(self._schemas, number, found)
        return found

    def _asking(self) -> SchemaRegistryClient:
        """A new client now and then, because a client keeps every schema it ever got."""
        if self._client is None or self._asked % KEPT == 0:
            if self._client is not None:
                self._client.close()
            self._client = client.opened(self._registry)
        self._asked += 1
        return self._client


@functools.lru_cache(_REGISTRIES)
def of(registry: Registry) -> ById:
    """This process's cache of the registry."""
    return ById(registry)


def _keep(found: OrderedDict[int, Value], number: int, value: Value) -> None:
    found[number] = value
    found.move_to_end(number)
    if len(found) > KEPT:
        found.popitem(last=False)
