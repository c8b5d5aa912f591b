"""Kafka's rules between broker configs, at the start and for dynamic changes. Pure functions.

Layers are dynamic configs as text, the most specific first; `static` has the broker's typed values by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.cluster.configs import admitted, configdef, dynamic_passwords

Layers = tuple[Mapping[str, str], ...]

_MIB = 1 << 20
_THREADS = (
    "log.cleaner.threads",
    "num.replica.fetchers",
)  # the thread counts that take effect here
_NEVER_ZERO = ("max.connections", "max.connection.creation.rate")  # while running: no client could connect to reset it
_BOUNDED = (
    ("group.consumer", "session.timeout.ms"),
    ("group.consumer", "heartbeat.interval.ms"),
    ("group.share", "session.timeout.ms"),
    ("group.share", "heartbeat.interval.ms"),
    ("group.share", "record.lock.duration.ms"),
)  # settings whose minimum and maximum are settings too
_OF_A_LISTENER = tuple("." + name for name in _NEVER_ZERO)


def broken(dynamic: Layers, static: Mapping[str, Any]) -> list[str]:
    """A line for each broken rule between values (`KafkaConfig.validateValues`)."""
    topic = configdef.resolve_topic({}, dynamic, static)

    def value(name: str) -> Any:
        return configdef.broker_value(name, dynamic, static)

    buffer, threads = value("log.cleaner.dedupe.buffer.size"), value("log.cleaner.threads")
    wait = value("replica.fetch.wait.max.ms")
    rules = (
        (topic["retention.ms"] == 0, "log.retention.ms must be -1 (no limit) or at least 1"),
        (topic["segment.ms"] < 1, "log.roll.ms must be at least 1"),
        (topic["segment.jitter.ms"] < 0, "log.roll.jitter.ms must not be negative"),
        (
            buffer // threads <= _MIB,
            f"log.cleaner.dedupe.buffer.size must be more than 1 MiB for each of {threads} log.cleaner.threads",
        ),
        (
            wait > value("replica.socket.timeout.ms"),
            f"replica.socket.timeout.ms must be at least replica.fetch.wait.max.ms, {wait}",
        ),
        (
            wait > value("replica.lag.time.max.ms"),
            f"replica.lag.time.max.ms must be at least replica.fetch.wait.max.ms, {wait}",
        ),
        (
            value("max.connections.per.ip") == 0 and not value("max.connections.per.ip.overrides"),
            "max.connections.per.ip may be 0 only if max.connections.per.ip.overrides allows some address",
        ),
        (
            0 <= value("connections.max.idle.ms") <= value("connection.failed.authentication.delay.ms"),
            "connections.max.idle.ms must be more than connection.failed.authentication.delay.ms, or negative for no "
            "limit",
        ),
    )
    return [line for is_broken, line in rules if is_broken]


def broken_at_start(static: Mapping[str, Any]) -> list[str]:
    """A line for each broken rule that Kafka checks only at the start, mostly between read-only settings."""
    low, high = (configdef.resolve_one(name, {}, (), static) for name in configdef.LAGS)
    acks, most = static["offsets.commit.required.acks"], static["offsets.topic.replication.factor"]
    queued, request = static["queued.max.request.bytes"], static["socket.request.max.bytes"]
    rules = (
        (low > high, f"log.cleaner.max.compaction.lag.ms must be at least log.cleaner.min.compaction.lag.ms, {low}"),
        (
            not -1 <= acks <= most,
            f"offsets.commit.required.acks must be -1 to offsets.topic.replication.factor, {most}",
        ),
        (
            0 < queued < request,
            f"queued.max.request.bytes must be at least socket.request.max.bytes, {request}, or -1 for no limit",
        ),
        (
            static["zookeeper.set.acl"] and not _authenticates(static),
            "zookeeper.set.acl needs a user: set odradek.zookeeper.login.config, odradek.zookeeper.auth, or "
            "zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location",
        ),
        (
            _shows_all(static),
            "odradek.console.security.protocol=PLAINTEXT needs a loopback address in odradek.console.listener, for "
            "example 127.0.0.1:9405: passwords and records would be readable on the network; set SASL_SSL",
        ),
    )
    lines = [line for is_broken, line in rules if is_broken]
    lines += dynamic_passwords.faults(static)
    return lines + [line for group, what in _BOUNDED if (line := _out_of_bounds(group, what, static))]


def _shows_all(static: Mapping[str, Any]) -> bool:
    """Whether the console would be served without TLS and users to other machines."""
    address, protocol = static["odradek.console.listener"], static["odradek.console.security.protocol"]
    return bool(address) and protocol == "PLAINTEXT" and not admitted.is_loopback_listener(address)


def _authenticates(static: Mapping[str, Any]) -> bool:
    """Whether ZooKeeper knows this broker by more than its address."""
    by_certificate = static["zookeeper.ssl.client.enable"] and static["zookeeper.ssl.keystore.location"]
    return bool(static["odradek.zookeeper.login.config"] or static["odradek.zookeeper.auth"] or by_certificate)


def _out_of_bounds(group: str, what: str, static: Mapping[str, Any]) -> str | None:
    low, value, high = (static[f"{group}.{bound}{what}"] for bound in ("min.", "", "max."))
    if low <= value <= high:
        return None
    return f"{group}.{what} must be {group}.min.{what} to {group}.max.{what}, {low} to {high}, not {value}"


def broken_by_change(before: Layers, after: Layers, static: Mapping[str, Any]) -> list[str]:
    """A line for each rule that a change from `before` to `after` breaks; rules already broken do not count."""
    already = broken(before, static)
    lines = [line for line in broken(after, static) if line not in already]
    lines += [line for name in _THREADS if (line := _leap(name, before, after, static))]
    return lines + [line for layer in after for name, text in layer.items() if (line := _shuts_out(name, text))]


def _leap(name: str, before: Layers, after: Layers, static: Mapping[str, Any]) -> str | None:
    """One change may at most halve or double a thread count."""
    old, new = (configdef.broker_value(name, layers, static) for layers in (before, after))
    if old == new or max(1, old // 2) <= new <= 2 * old:
        return None
    return (
        f"{name} can change from {old} only to a value between {max(1, old // 2)} and {max(1, 2 * old)} at once, not "
        f"to {new}"
    )


def _shuts_out(name: str, text: str) -> str | None:
    if not (name in _NEVER_ZERO or (name.startswith("listener.name.") and name.endswith(_OF_A_LISTENER))):
        return None
    return f"{name} must be at least 1 while the broker runs: no client could connect" if int(text) < 1 else None
