"""Translates Java client configurations (`linger.ms=5`) to keyword arguments of kafka-python (`linger_ms=5`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from odradek.broker.commands._shared.client_security import is_security, security_config

# Configurations with other names or values in kafka-python.
_RENAMED = {
    "max.in.flight.requests.per.connection": "max_in_flight_requests_per_connection",
    # 0.8's names
    "compression.codec": "compression_type",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
    "auto.commit.enable": "enable_auto_commit",
}
# Configurations of Java's clients only; ignored without a warning, so that files written for them work.
_IGNORED = {
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "buffer.memory",
    "default.api.timeout.ms",
    "auto.include.jmx.reporter",
    "group.protocol",
    # of 0.8's clients; options of our commands replace them
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "metadata.broker.list",
    "producer.type",
    "serializer.class",
    "key.serializer.class",
}


def client_config(properties: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Translate `properties` for a client whose `DEFAULT_CONFIG` is `known`.

    A property that kafka-python does not have causes a warning on stderr, as in Java's clients; a value that does
    not parse raises UsageError.
    """
    from odradek.broker.commands._shared import bootstrap

    bootstrap.install()
    config: dict[str, Any] = {}
    if any(map(is_security, properties)):
        config = security_config(properties)
    for name, value in properties.items():
        if is_security(name):
            continue
        if (key := _RENAMED.get(name, name.replace(".", "_"))) in known:
            config[key] = _convert(name, value, known[key])
        elif name not in _IGNORED:
            click.echo(f"WARN {name} was given but is not a configuration of this client", err=True)
    return config


def meant_for(known: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, str]:
    """The `properties` of another client that are in this `DEFAULT_CONFIG` too: mostly connection settings."""
    return {
        name: value
        for name, value in properties.items()
        if is_security(name) or _RENAMED.get(name, name.replace(".", "_")) in known
    }


def _convert(name: str, value: str, default: Any) -> Any:
    special = _SPECIAL.get(name)
    try:
        if special:
            return special(value)
        if isinstance(default, bool):
            return _boolean(value)
        if isinstance(default, int | float) or name.endswith((".ms", ".bytes")):
            return int(value)
        return value
    except ValueError:
        raise click.UsageError(f"{name}={value}: invalid value") from None


def _boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError
    return value.strip().lower() == "true"


def acks(value: str) -> int:
    """`all`, -1, 0 or 1. Raises ValueError."""
    number = -1 if value.strip().lower() == "all" else int(value)
    if number not in (-1, 0, 1):
        raise ValueError
    return number


def codec(value: str) -> str | None:
    """A compression type with kafka-python's name. Raises ValueError."""
    name = value.strip().lower()
    if name not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise ValueError
    return None if name == "none" else name


def offset_reset(value: str) -> str:
    """`auto.offset.reset` with the value names of today's consumers."""
    return {"smallest": "earliest", "largest": "latest"}.get(value, value)


def _version(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split("."))


_SPECIAL: dict[str, Callable[[str], Any]] = {
    "acks": acks,
    "compression.type": codec,
    "request.required.acks": acks,
    "compression.codec": codec,
    "auto.offset.reset": offset_reset,
    "api.version": _version,
}
