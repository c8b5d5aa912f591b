"""The prefix of keys and values whose schema is in a registry: a byte 0, then the schema's id, 4 bytes big-endian.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from odradek.protocol.wire import I32

_MAGIC, LENGTH = 0, 5


def split(data: bytes | None) -> tuple[int | None, bytes | None]:
    """The schema's id, and the bytes behind the prefix; both None where there is no prefix."""
    if data is None or len(data) < LENGTH or data[0] != _MAGIC:
        return None, None
    return I32.unpack_from(data, 1)[0], data[LENGTH:]


def pack(schema_id: int) -> bytes:
    """The bytes in front of a body."""
    return bytes([_MAGIC]) + I32.pack(schema_id)
