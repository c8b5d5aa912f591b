"""Quota keys: their types, the entities that may have them, and their text in a znode."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

from odradek.protocol.wire import INT32_MAX, INT64_MAX
from odradek.security.quotas.entities import IP, Entity

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes per second
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"  # of the time of one thread
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions created or deleted per second (KIP-599)
CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections of an address per second (KIP-612)


class Kind(enum.Enum):
    """The type of a value."""

    LONG = INT64_MAX
    INT = INT32_MAX
    DOUBLE = math.inf


OF_CLIENTS = {
    PRODUCER_BYTE_RATE: Kind.LONG,
    CONSUMER_BYTE_RATE: Kind.LONG,
    REQUEST_PERCENTAGE: Kind.DOUBLE,
    CONTROLLER_MUTATION_RATE: Kind.DOUBLE,
}
OF_ADDRESSES = {CONNECTION_CREATION_RATE: Kind.INT}
KINDS = OF_CLIENTS | OF_ADDRESSES


def keys_of(entity: Entity) -> Mapping[str, Kind]:
    """The keys that `entity` may have."""
    return OF_ADDRESSES if entity[0][0] == IP else OF_CLIENTS


def to_text(key: str, value: float) -> str:
    """The text of a value in a znode, which Java's parsers read: 1024 for a whole number, otherwise 12.5 or 1e+16."""
    kind = KINDS[key]
    return (
        repr(float(value)).replace("inf", "Infinity") if kind is Kind.DOUBLE else str(min(int(value), int(kind.value)))
    )


def values_of(entity: Entity, configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the configs of an entity's znode, which also has credentials. Ignores what is no number, as
    Kafka does, and no infinite one where the quota is a whole number."""
    found = {}
    for key, kind in keys_of(entity).items():
        try:
            value = float(configs[key])
        except (KeyError, ValueError):
            continue
        if math.isfinite(value) or (kind is Kind.DOUBLE and value == math.inf):
            found[key] = value
    return found
