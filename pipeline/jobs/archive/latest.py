"""The reader's schema of a topic in a registry: at first the subject's latest version, then the archive's first schema.

The subject is `<topic>-key` or `<topic>-value` (Confluent's TopicNameStrategy). The archive's files have the schema
that they were written with (`shapes`), so a topic keeps it whatever the registry gets later; a newer schema needs
another folder.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.jobs.archive.formats.formats import REGISTRY, Format, Formats, Shape
from odradek.pipeline.registry import client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.jobs.archive.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known(Formats):
    """Formats with known schemas, each from the first request for its topic on."""

    spark: SparkSession | None = None
    store: Store | None = None
    found: dict[str, Shape] = field(default_factory=dict)

    def of(self, topic: str) -> Shape:
        """Asks the registry at most once. OptionError where it has no schema for the topic, or Spark no types."""
        if topic not in self.found:
            given = super().of(topic)
            needed = REGISTRY in (given.key.kind, given.value.kind)
            self.found[topic] = self._asked(topic, given) if needed else given
        return self.found[topic]

    def _asked(self, topic: str, given: Shape) -> Shape:
        before = self._archived(topic)
        return Shape(
            _known(f"{topic}-key", given.key, before.key if before else None),
            _known(f"{topic}-value", given.value, before.value if before else None),
        )

    def _archived(self, topic: str) -> Shape | None:
        """The formats of the topic's files; all files have the same."""
        assert self.spark and self.store
        file = next(iter(self.store.state.of(topic)), None)
        return shapes.of(self.spark.read.parquet(self.store.files.uri(file.path))) if file else None


def of(formats: Formats, spark: SparkSession, store: Store) -> Known:
    """For an open archive."""
    return Known(formats.keys, formats.values, spark, store)


def _known(subject: str, form: Format, before: Format | None) -> Format:
    if form.kind != REGISTRY:
        return form
    assert form.registry is not None
    newest = client.latest(form.registry, subject)
    if before is not None and before.kind == REGISTRY:
        if newest is not None and json.loads(newest) != json.loads(before.schema):
            log.warning("%s: records are archived by an older schema; another folder gets the latest one", subject)
        return replace(form, schema=before.schema)
    if newest is None:
        raise OptionError(
            f"the schema registry {form.registry.url} has no subject {subject}: register its schema first"
        )
    try:
        Codec(newest)
    except OptionError as error:
        raise OptionError(f"{subject} of {form.registry.url}: {error}") from None
    return replace(form, schema=newest)
