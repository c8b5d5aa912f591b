"""Schemas by id, as each task asks for them: a process keeps the last ones, which never change."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.registry import client
from odradek.pipeline.registry.settings import Registry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

KEPT = 1000  # schemas, and as many ids without one
_SECONDS = 60.0  # until an id that had no schema is asked for again
_REGISTRIES = 4
Value = TypeVar("Value")


class ById:
    """Of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._client: SchemaRegistryClient | None = None
        self._asked = 0
        self._schemas: OrderedDict[int, str] = OrderedDict()
        self._unknown: OrderedDict[int, float] = OrderedDict()  # until when

    def __call__(self, number: int) -> str | None:
        """The Avro schema of that id, None where there is none. PipelineError where the registry does not say."""
        if number in self._schemas:
            self._schemas.move_to_end(number)
            return self._schemas[number]
        if number < 0 or self._unknown.get(number, 0.0) > time.monotonic():
            return None
        with client.told(self._registry):
            found = client.schema(self._asking(), number)
        if found is None:
            _keep(self._unknown, number, time.monotonic() + _SECONDS)
        else:
            _keep(self._schemas, number, found)
        return found

    def _asking(self) -> SchemaRegistryClient:
        """Another client now and then, for one keeps all schemas that it ever got."""
        if self._client is None or self._asked % KEPT == 0:
            if self._client is not None:
                self._client.close()
            self._client = client.opened(self._registry)
        self._asked += 1
        return self._client


@functools.lru_cache(_REGISTRIES)
def of(registry: Registry) -> ById:
    """The one of this process."""
    return ById(registry)


def _keep(found: OrderedDict[int, Value], number: int, value: Value) -> None:
    found[number] = value
    found.move_to_end(number)
    if len(found) > KEPT:
        found.popitem(last=False)
