"""Keys and values in Confluent's wire format: a prefix with the id of a schema, and Avro of that schema. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.exporter.console import avro_text
from odradek.broker.exporter.console.avro_schema import Type
from odradek.broker.exporter.console.avro_text import ValueFault
from odradek.broker.exporter.console.errors import NotAvro
from odradek.protocol import schema_prefix

Schemas = Callable[[int], Type]
"""The type of an id. NotAvro."""


class Read(NamedTuple):
    """Compact JSON; with `is_cut` its first tokens. `schema` says which one it is."""

    text: str
    is_cut: bool
    schema: str


def read(data: bytes, schemas: Schemas, most: int) -> Read:
    """With little more than `most` characters. NotAvro."""
    number, body = schema_prefix.split(data)
    if number is None or body is None:
        raise NotAvro("not Avro of a registry: it does not begin with 0 and the id of a schema")
    schema = schemas(number)
    try:
        text, is_cut = avro_text.text_of(body, schema, most)
    except ValueFault as error:
        raise NotAvro(f"not Avro of schema {number}: {error}") from None
    return Read(text, is_cut, f"schema {number}, {schema.name[:most]}")
