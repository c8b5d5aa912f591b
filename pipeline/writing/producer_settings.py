"""Translate `kafka.*` of a writer, named as for the Java producer, to settings of librdkafka.

Names that both have mean the same; the tables here have the others. A setting without a counterpart is refused by name,
so that it cannot seem to work. Security settings that `security` supports for reading work for writing; other `ssl.`
and `sasl.` names are passed on unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import KafkaException, Producer

from odradek.pipeline.errors import OptionError
from odradek.pipeline.parsing import positive
from odradek.pipeline.wire.security import Security

# Java's defaults where librdkafka's differ and it matters; `batch.size` and `linger.ms` keep librdkafka's, which
# make larger batches than Java's 16 KiB. Only bytes bound the queue, as Java's `buffer.memory` does.
DEFAULTS = {
    "acks": "all",
    "client.id": "odradek-pipeline",
    "delivery.timeout.ms": "120000",
    "message.max.bytes": "1048576",
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": "32768",
    "queue.buffering.max.messages": "0",
    "transaction.timeout.ms": "900000",  # the brokers' maximum: tasks take longer than Java's minute
}
SAME = {
    "acks",
    "batch.size",
    "bootstrap.servers",
    "client.dns.lookup",
    "client.id",
    "compression.type",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "enable.idempotence",
    "enable.metrics.push",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "transaction.timeout.ms",
}
RENAMED: dict[str, tuple[str, ...]] = {
    "max.request.size": ("message.max.bytes",),
    "metadata.max.age.ms": ("topic.metadata.refresh.interval.ms",),
    "request.timeout.ms": ("request.timeout.ms", "socket.timeout.ms"),  # how long the broker, and the client, may wait
    "sasl.jaas.config": (),
    "sasl.mechanism": (),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.type": (),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.type": (),
}
CONVERTED: dict[str, tuple[str, Callable[[str], str]]] = {
    "buffer.memory": (
        "queue.buffering.max.kbytes",
        lambda size: str(-(-positive("kafka.buffer.memory", size) // 1024)),
    ),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", lambda size: "0" if size == "-1" else size),
    "send.buffer.bytes": ("socket.send.buffer.bytes", lambda size: "0" if size == "-1" else size),
    "ssl.endpoint.identification.algorithm": ("ssl.endpoint.identification.algorithm", lambda word: word or "none"),
}
SECURITY = ("security.", "ssl.", "sasl.")
LEVELS = tuple(f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd"))
SILENT = logging.Logger("unused")  # for a producer that only makes requests
SILENT.addHandler(logging.NullHandler())


def librdkafka(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer for `kafka` (without the prefix). OptionError, one line, for an invalid one."""
    unknown = sorted(f"kafka.{name}" for name in kafka if not known(name))
    if unknown:
        raise OptionError(f"unknown producer setting {', '.join(unknown)}")
    found = DEFAULTS | {name: value for given in kafka.items() for name, value in _translated(*given, kafka)}
    found |= _login(Security.of(kafka))
    found.setdefault("enable.idempotence", str(found["acks"] in ("all", "-1")).lower())  # Java's rule
    if "delivery.timeout.ms" not in kafka:
        found["delivery.timeout.ms"] = str(_delivery_ms(found))
    return found


def checked(settings: dict[str, str], transactional: bool = False) -> dict[str, str]:
    """`settings` if librdkafka accepts them, as a transactional producer's if so; else OptionError with its reason."""
    try:
        Producer({**settings, **({"transactional.id": "checked"} if transactional else {})}, logger=SILENT)
    except KafkaException as error:
        raise OptionError(f"kafka.*: {error.args[0].str()}") from None
    return settings


def known(name: str) -> bool:
    """Whether a setting of the Java producer has a counterpart here."""
    return name in SAME or name in RENAMED or name in CONVERTED or name in LEVELS or name.startswith(SECURITY)


def _delivery_ms(found: Mapping[str, str]) -> int:
    """A record must not wait in the queue for longer than its transaction may be open."""
    limit = positive("kafka.transaction.timeout.ms", found["transaction.timeout.ms"])
    return min(int(DEFAULTS["delivery.timeout.ms"]), limit)


def _translated(name: str, value: str, kafka: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if name in CONVERTED:
        theirs, convert = CONVERTED[name]
        yield theirs, convert(value)
    elif name not in LEVELS:
        yield from ((theirs, value) for theirs in RENAMED.get(name, (name,)))
    elif name == f"compression.{kafka.get('compression.type')}.level":
        yield "compression.level", value


def _login(security: Security) -> dict[str, str]:
    if security.mechanism is None:
        return {}
    who = {"sasl.username": security.username, "sasl.password": security.password}
    return {"sasl.mechanisms": security.mechanism, **who}
