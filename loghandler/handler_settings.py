"""The settings of a handler's producer, under Kafka's names and with Kafka's defaults where nothing else is said.

Two defaults differ: batch.size, because the handler has one request under way and Kafka's producer five, and linger.ms,
because a log may be read a tenth of a second later. `queue.buffering.max.messages` is 0.8's name for the bound of a
producer's queue, with 0.8's default.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek.loghandler.backlog import Limits
from odradek.pipeline.errors import OptionError
from odradek.pipeline.parsing import INT, flag, natural, one_of, positive
from odradek.pipeline.wire.settings import NUMBERS, Settings, as_settings
from odradek.protocol.records import codecs

DEFAULTS = {
    "acks": "all",
    "batch.size": str(128 << 10),
    "buffer.memory": str(32 << 20),
    "client.id": "odradek-logging",
    "compression.type": "none",
    "delivery.timeout.ms": "120000",
    "linger.ms": "100",
    "metadata.max.age.ms": "300000",
    "queue.buffering.max.messages": "10000",
    "request.timeout.ms": "30000",
    "retry.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
}
KNOWN = {*DEFAULTS, *NUMBERS, "enable.idempotence", "security.protocol"}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Of other clients, such as Java's: without a meaning here, but files have them.
_IGNORED = {"key.serializer", "value.serializer", "max.block.ms", "retries", "max.in.flight.requests.per.connection"}


class HandlerSettings(NamedTuple):
    """Parsed settings; times in seconds."""

    topic: str
    limits: Limits
    acks: int  # -1 or 1
    idempotent: bool
    codec: int
    request_timeout: float
    metadata_age: float
    kafka: dict[str, str]  # of the connections


def parse(servers: str | Sequence[str], topic: str, properties: Mapping[str, Any]) -> HandlerSettings:
    """ValueError, in one line that says what to change; a warning for a property that has no effect here."""
    given = {name: _text(value) for name, value in properties.items()}
    _warn_of_unknown(given)
    kafka = {**DEFAULTS, **given, "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers)}
    try:
        _check(topic, kafka)
        return _parsed(topic, kafka, given)
    except OptionError as error:
        raise ValueError(as_settings(str(error))) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(topic: str, kafka: Mapping[str, str]) -> None:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise OptionError(f"topic is {topic!r}: it must have 1 to 249 letters, digits, '.', '_' or '-'")
    Settings.of(kafka)


def _parsed(topic: str, kafka: Mapping[str, str], given: Mapping[str, str]) -> HandlerSettings:
    acks = 1 if one_of("acks", kafka["acks"], ("all", "-1", "1")) == "1" else -1
    return HandlerSettings(
        topic=topic,
        limits=_limits(kafka),
        acks=acks,
        idempotent=_idempotent(acks, given),
        codec=codecs.BY_NAME[one_of("compression.type", kafka["compression.type"], tuple(codecs.NAMES.values()))],
        request_timeout=_seconds(kafka, "request.timeout.ms"),
        metadata_age=_seconds(kafka, "metadata.max.age.ms"),
        kafka=dict(kafka),
    )


def _limits(kafka: Mapping[str, str]) -> Limits:
    def number(name: str) -> int:
        return positive(name, kafka[name], INT)

    return Limits(
        records=number("queue.buffering.max.messages"),
        memory=number("buffer.memory"),
        batch=number("batch.size"),
        linger=_seconds(kafka, "linger.ms"),
        delivery=_seconds(kafka, "delivery.timeout.ms"),
        backoff=_seconds(kafka, "retry.backoff.ms"),
        backoff_max=_seconds(kafka, "retry.backoff.max.ms"),
    )


def _seconds(kafka: Mapping[str, str], name: str) -> float:
    return natural(name, kafka[name], INT) / 1000


def _idempotent(acks: int, given: Mapping[str, str]) -> bool:
    """As in Kafka: on by default, off by default with acks=1, and an error if it is asked for with acks=1."""
    wanted = flag("enable.idempotence", given.get("enable.idempotence", "true" if acks == -1 else "false"))
    if wanted and acks != -1:
        raise OptionError("acks must be all with enable.idempotence=true")
    return wanted


def _warn_of_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name not in KNOWN | _IGNORED and not name.startswith(("ssl.", "sasl.")):
            warnings.warn(f"{name} is not a setting of KafkaHandler and has no effect", stacklevel=4)
