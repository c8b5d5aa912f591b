"""Settings of a Kafka client under Java's names (`kafka.*` of the options, without the prefix), with Java's defaults.

One default differs: max.partition.fetch.bytes, 1 MiB in Java for one of many partitions in a fetch, is 8 MiB here for
the only one, because chunks of that size double the records of 200 bytes decoded per second.
Unknown names are ignored, as Kafka's own clients do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import OptionError
from odradek.pipeline.parsing import INT
from odradek.pipeline.wire.security import WAY_OUT, Security

Address = tuple[str, int]

NUMBERS = {
    "request.timeout.ms": 30_000,
    "default.api.timeout.ms": 60_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "fetch.max.wait.ms": 500,
    "fetch.max.bytes": 50 * 1024 * 1024,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}
_ABOVE_0 = ("request.timeout.ms", "socket.connection.setup.timeout.ms")  # a socket timeout of 0 would not wait at all
MOST_FETCHED = 1 << 27  # bytes; larger fetches are not faster


@dataclass(frozen=True)
class Settings:
    """Times are in seconds, except `fetch_wait_ms`."""

    servers: tuple[Address, ...]
    client_id: str
    request_timeout: float
    api_timeout: float  # how long to retry without progress
    connect_timeout: float
    backoff: float
    backoff_max: float
    fetch_wait_ms: int
    fetch_bytes: int  # the most records in one response, unless one batch is larger
    security: Security

    @classmethod
    def of(cls, kafka: Mapping[str, str]) -> Settings:
        """Parse the settings. OptionError for one that is missing, is no number, or needs Java."""
        number = {name: _number(kafka, name) for name in NUMBERS}
        return cls(
            servers=_servers(kafka.get("bootstrap.servers", "")),
            client_id=kafka.get("client.id", "odradek-pipeline"),
            request_timeout=number["request.timeout.ms"] / 1000,
            api_timeout=number["default.api.timeout.ms"] / 1000,
            connect_timeout=number["socket.connection.setup.timeout.ms"] / 1000,
            backoff=number["retry.backoff.ms"] / 1000,
            backoff_max=number["retry.backoff.max.ms"] / 1000,
            fetch_wait_ms=number["fetch.max.wait.ms"],
            fetch_bytes=min(number["fetch.max.bytes"], number["max.partition.fetch.bytes"], MOST_FETCHED),
            security=Security.of(kafka),
        )


def _number(kafka: Mapping[str, str], name: str) -> int:
    text, least = kafka.get(name, str(NUMBERS[name])), int(name in _ABOVE_0)
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not least <= value <= INT:
        raise OptionError(f"kafka.{name} is {text!r}: it must be a number from {least} to {INT}")
    return value


def _servers(text: str) -> tuple[Address, ...]:
    named = [server.strip() for server in text.split(",") if server.strip()]
    if not named:
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified: host:port, several by commas")
    return tuple(_address(server) for server in named)


def _address(server: str) -> Address:
    host, _, port = server.rpartition("://")[2].rpartition(":")  # Java allows a protocol before it
    if not host or not port.isdecimal():
        raise OptionError(f"kafka.bootstrap.servers has {server!r}: it must be host:port")
    return host.strip("[]"), int(port)


def as_settings(text: str) -> str:
    """An error of this client for a program that is none of Spark's: without the `kafka.` before names of settings."""
    text = re.sub(rf"(: |, or ){re.escape(WAY_OUT)}", "", text)
    return re.sub(r"\bkafka\.(?=[a-z])", "", text).removeprefix("Option ")
