"""A file's declarations of Avro with a schema registry; its table `kafka` has the registry client's settings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.stages.declaration.tables import Table
from odradek.pipeline.registry import settings
from odradek.pipeline.registry.settings import Registry, Settings

AVRO = "avro"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Write:
    """Results as Avro of a schema that becomes a version of `subject`; `name` is that of the record."""

    registry: Registry
    subject: str
    name: str


def registered(table: Table, topics: tuple[str, ...], client: Settings) -> tuple[Registry | None, str]:
    """The registry, and the subject that has the schema of the topics' values. None for an invalid URL."""
    several = len(topics) > 1
    what = "the subject of the reader schema" if several else "a subject of the registry"
    subject = table.text("subject", what, required=several)
    return _registry(table, client), subject or (f"{topics[0]}-value" if topics else "")


def write(table: Table | None, to: str, client: Settings) -> Write | None:
    """None for JSON, and where something is missing."""
    if table is None:
        return None
    if table.one_of("format", ("json", AVRO), required=True) != AVRO:
        table.left()
        return None
    registry = _registry(table, client)
    subject, name = table.text("subject") or f"{to}-value", _name(table, to)
    table.left()
    return Write(registry, subject, name) if registry else None


def _name(table: Table, to: str) -> str:
    """Derived from the topic, unless given."""
    name = table.text("name", "an Avro record name such as 'shop.Order'")
    if name is None:
        return re.sub(r"\W", "_", to if to[:1].isalpha() else f"_{to}", flags=re.ASCII)
    if not _NAME.fullmatch(name):
        table.wrong("name", f"is not an Avro record name: '{name}'")
    return name


def _registry(table: Table, client: Settings) -> Registry | None:
    url = table.text("registry", "the URL of a schema registry", required=True)
    try:
        return None if url is None else Registry(settings.url(url), client)
    except OptionError as error:
        table.wrong("registry", str(error))
        return None
