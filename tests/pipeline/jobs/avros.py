"""Orders as Avro with three schemas in Confluent's framing, as programs with changing schemas write them."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import fastavro
from confluent_kafka import Producer

from ..topics import WAIT

_ID = {"name": "id", "type": "long"}
_NAME = {"name": "name", "type": "string", "default": "?"}
_NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    """An Avro schema of an order."""
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


FIRST, WIDER, NARROWER = order(_ID, _NAME), order(_ID, _NAME, _NOTE), order(_ID, _NOTE)
"""One field more than FIRST, and one field less than that."""


def message(number: int, schema: Any, value: Any) -> bytes:
    """A value after a zero byte and the schema id."""
    out = BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def send(broker: Any, topic: str, values: Iterable[bytes | None], key: bytes | None = b"k") -> None:
    """Write to partition 0, in order."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, key, 0)
    assert not producer.flush(WAIT)
