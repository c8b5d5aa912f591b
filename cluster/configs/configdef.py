"""All configuration keys by name: Kafka 3.9's topic and broker configs, and ours under `odradek.`.

The tables are in topic_configs, broker_configs (configs that this broker reads), security_configs, authorizer_configs,
known_configs (configs that it does not read) and own_configs; a test compares them with the configs that the source
reads. Precedence of a broker config, as in Kafka: dynamic for the broker, dynamic for the cluster, static
(server.properties), default. A
topic config falls back to its broker synonyms by the same precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from odradek.cluster.configs.authorizer_configs import AUTHORIZER_CONFIGS
from odradek.cluster.configs.broker_configs import BROKER_CONFIGS
from odradek.cluster.configs.configtypes import (
    CLUSTER_WIDE,
    PER_BROKER,
    READ_ONLY,
    ConfigError,
    ConfigKey,
    parse_value,
    to_text,
)
from odradek.cluster.configs.known_configs import KNOWN_CONFIGS
from odradek.cluster.configs.own_configs import OWN_CONFIGS
from odradek.cluster.configs.security_configs import SECURITY_CONFIGS
from odradek.cluster.configs.topic_configs import TOPIC_CONFIGS

__all__ = [
    "BROKER",
    "TOPIC",
    "ConfigError",
    "ConfigKey",
    "broker_key",
    "nearest",
    "parse",
    "parse_topic",
    "to_text",
]

BROKER: dict[str, ConfigKey] = {
    key.name: key for key in (*BROKER_CONFIGS, *SECURITY_CONFIGS, *AUTHORIZER_CONFIGS, *KNOWN_CONFIGS, *OWN_CONFIGS)
}
TOPIC: dict[str, ConfigKey] = {key.name: key for key in TOPIC_CONFIGS}

LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")  # the first must not exceed the second
_MINUTES, _HOURS = 60_000, 3_600_000

# Topic config -> (broker config, factor to the topic's unit), in order of precedence.
_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOURS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOURS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTES),
        ("log.retention.hours", _HOURS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
}
for _prefix, _names in {
    "": "unclean.leader.election.enable min.insync.replicas compression.type compression.gzip.level "
    "compression.lz4.level compression.zstd.level odradek.visible.after.flush odradek.producers.max "
    "odradek.producers.trusted",
    "log.": "segment.bytes retention.bytes index.interval.bytes cleanup.policy preallocate "
    "message.format.version message.timestamp.type message.timestamp.difference.max.ms "
    "message.timestamp.before.max.ms message.timestamp.after.max.ms message.downconversion.enable "
    "local.retention.ms local.retention.bytes",
    "log.cleaner.": "delete.retention.ms min.compaction.lag.ms max.compaction.lag.ms",
}.items():
    for _name in _names.split():
        _SYNONYMS[_name] = ((_prefix + _name, 1),)

# Broker configs for the same setting in several units, in order of precedence.
_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")  # the listeners come from these
_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_SECURITY = {key.name for key in SECURITY_CONFIGS}
_OF_A_LISTENER = ("max.connections", "max.connection.creation.rate")  # the configs that are read with that prefix


def broker_key(name: str) -> ConfigKey | None:
    """The row of a broker config, with or without a `listener.name.X.` prefix; None when there is none."""
    key = BROKER.get(name)
    if key is not None:
        return key
    prefixed = _LISTENER.fullmatch(name)
    base = _listener_base(prefixed[1]) if prefixed else None
    if not prefixed or not base:
        return None
    limit, secures = prefixed[1] in _OF_A_LISTENER, base in _SECURITY
    return BROKER[base]._replace(name=name, mode=CLUSTER_WIDE if limit else PER_BROKER, works=limit or secures)


def secures(name: str) -> bool:
    """Whether a config of TLS or SASL, with or without a `listener.name.X.` prefix, is read."""
    prefixed = _LISTENER.fullmatch(name)
    return (_listener_base(prefixed[1]) if prefixed else name) in _SECURITY


def _listener_base(name: str) -> str | None:
    """The config that `listener.name.X.<name>` sets; <name> may begin with a SASL mechanism."""
    return max((known for known in BROKER if f".{name}".endswith("." + known)), key=len, default=None)


def parse(name: str, text: str | None) -> Any:
    """The typed value of a broker config. ConfigError: unknown name (suggests the nearest), or invalid value."""
    key = broker_key(name)
    if key is None:
        raise ConfigError(_unknown("broker", name, BROKER))
    return parse_value(key, text)


def parse_topic(name: str, text: str | None) -> Any:
    """The typed value of a topic config. ConfigError: unknown name (suggests the nearest), or invalid value."""
    key = TOPIC.get(name)
    if key is None:
        raise ConfigError(_unknown("topic", name, TOPIC))
    if text is None:
        raise ConfigError(f"Null value not supported for topic configs: {name}")
    return parse_value(key, text)


def _unknown(what: str, name: str, table: Mapping[str, ConfigKey]) -> str:
    hint = nearest(name, table)
    return f"Unknown {what} config name: {name}" + (f" (did you mean {hint}?)" if hint else "")


def nearest(name: str, table: Mapping[str, ConfigKey] = BROKER) -> str | None:
    """The known name most similar to `name`, or None when none is similar."""
    import difflib

    found = difflib.get_close_matches(name, table, n=1, cutoff=0.6)
    return found[0] if found else None


def validate_topic(
    configs: Mapping[str, str], dynamic: tuple[Mapping[str, str], ...] = (), static: Mapping[str, Any] | None = None
) -> None:
    """Check a topic's overrides one by one, and together with the broker configs in force for the others.

    ConfigError names the wrong override. A conflict between broker configs alone does not reject the overrides.
    """
    for name, text in configs.items():
        parse_topic(name, text)
    low, high = (resolve_one(name, configs, dynamic, static or {}) for name in LAGS)
    if low > high and not configs.keys().isdisjoint(LAGS):
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )


def validate_dynamic(configs: Mapping[str, str | None], per_broker: bool) -> None:
    """Check a dynamic change of broker configs (unknown names pass, as in Kafka)."""
    keys = {name: key for name in configs if (key := broker_key(name)) is not None}
    _refuse("Cannot update these configs dynamically", [n for n, key in keys.items() if key.mode == READ_ONLY])
    for name, key in keys.items():
        parse_value(key, configs[name])
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name, key in keys.items() if key.mode == PER_BROKER],
        )
    fixed = [key for key in keys.values() if key.change == READ_ONLY]
    _refuse("Cannot update these configs dynamically", [key.name for key in fixed], "; ".join(map(_why_fixed, fixed)))


def _refuse(why: str, names: list[str], hint: str = "") -> None:
    if names:
        raise ConfigError(f"{why}: Set({', '.join(names)})" + (f". {hint}." if hint else ""))


def _why_fixed(key: ConfigKey) -> str:
    """Why this broker cannot change a config that Kafka can change, and what to do instead."""
    return f"{key.name} has no effect in this broker: leave it out"


def broker_synonyms(name: str) -> tuple[str, ...]:
    """All broker configs that set the same value as `name`, in order of precedence."""
    if name == "log.flush.interval.ms":
        return ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    for family in _FAMILIES:
        if name in family:
            return family
    prefixed = _LISTENER.fullmatch(name)
    if prefixed:
        return (name, _listener_base(prefixed[1]) or prefixed[1])
    return (name,)


def topic_synonyms(name: str) -> tuple[tuple[str, int], ...]:
    """(broker config, factor) for a topic config, in order of precedence; () when it has none."""
    return _SYNONYMS.get(name, ())


@cache
def broker_default(name: str) -> Any:
    """The typed default of a broker config."""
    key = BROKER[name]
    return None if key.default is None else parse_value(key._replace(check=None), key.default)


@cache
def topic_default(name: str) -> Any:
    """The typed default of a topic config."""
    return parse_value(TOPIC[name], TOPIC[name].default)


def resolve_topic(
    overrides: Mapping[str, str],
    dynamic: tuple[Mapping[str, str], ...] = (),
    static: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All topic configs as typed values.

    `overrides`: the topic's own, as text. `dynamic`: dynamic broker configs as text, the first wins. `static`: the
    broker's typed values by name (unset ones None or absent). ConfigError for an override that does not parse.
    """
    return {name: resolve_one(name, overrides, dynamic, static or {}) for name in TOPIC}


def resolve_one(
    name: str, overrides: Mapping[str, str], dynamic: tuple[Mapping[str, str], ...], static: Mapping[str, Any]
) -> Any:
    """One topic config, as `resolve_topic`."""
    if name in overrides:
        return parse_topic(name, overrides[name])
    for synonym, factor in _SYNONYMS.get(name, ()):
        value = broker_value(synonym, dynamic, static)
        if value is not None and name == "retention.ms":
            return max(value * factor, -1)  # any negative number means unlimited; it is shown as -1
        if value is not None:
            return value * factor if factor != 1 else value
    return topic_default(name)


def broker_value(name: str, dynamic: tuple[Mapping[str, str], ...], static: Mapping[str, Any]) -> Any:
    """The typed value of a broker config in force; None when it is unset and has no default."""
    for layer in dynamic:
        if name in layer:
            return parse(name, layer[name])
    value = static.get(name)
    return broker_default(name) if value is None else value


def in_force(layer: Mapping[str, str]) -> dict[str, str]:
    """Dynamic broker configs without those that Kafka reads only at a start.

    Another tool may have written those. Configs without effect stay visible, to be removed.
    """
    keys = {name: broker_key(name) for name in layer}
    return {name: layer[name] for name, key in keys.items() if key is None or not key.works or key.change != READ_ONLY}
