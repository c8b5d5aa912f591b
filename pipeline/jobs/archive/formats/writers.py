"""Convert message bodies from their writers' schemas to the archive's: `avro_columns`, in a task."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

from odradek.pipeline.jobs.archive.formats.avro import tried
from odradek.pipeline.jobs.archive.formats.avro_resolution import resolution
from odradek.pipeline.registry import by_id
from odradek.pipeline.registry.settings import Registry


class Writers:
    """Schemas of writers, by their ids in a registry; `schema` is the reader's."""

    def __init__(self, registry: Registry, schema: str) -> None:
        self._registry, self._schema, self._whole = registry, schema, json.loads(schema)

    def resolved(self, ids: pa.Array, bodies: pa.Array) -> pa.Array:
        """Null where the registry does not have the id, or the value does not resolve to the reader's schema.

        PipelineError where the registry does not answer.
        """
        numbers = ids.to_pylist()
        steps = {number: self._step(number) for number in set(numbers) if number is not None}
        pairs = zip(numbers, bodies.to_pylist(), strict=True)
        return pa.array([_taken(steps.get(number), body) for number, body in pairs], pa.binary())

    def knows(self, number: int) -> bool:
        """Whether the registry has an Avro schema of that id."""
        return by_id.of(self._registry)(number) is not None

    def _step(self, number: int) -> Callable[[bytes], bytes] | None:
        writer = by_id.of(self._registry)(number)
        if writer is None:
            return None
        return _as_it_is if json.loads(writer) == self._whole else resolution(writer, self._schema)


def _taken(step: Callable[[bytes], bytes] | None, body: bytes | None) -> bytes | None:
    """The resolved body; None for an invalid one, or none."""
    made: bytes | None = None if step is None or body is None else tried(step, body)
    return made


def _as_it_is(body: bytes) -> bytes:
    return body
