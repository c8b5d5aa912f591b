"""DescribeConfigs (KIP-133, KIP-226, KIP-524, KIP-569): value, source and synonyms of each config.

Pure functions over the snapshot and the broker's static configuration. A value's source is the first place that sets
it: topic, dynamic for the broker, dynamic for the cluster, static (server.properties), default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from odradek.cluster.configs import configdef
from odradek.cluster.configs.configdef import BROKER, TOPIC, ConfigKey, to_text
from odradek.cluster.configs.configtypes import READ_ONLY, STRING
from odradek.cluster.metadata.snapshot import Snapshot

TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, BROKER_LOGGER = range(1, 7)


class ConfigSynonym(NamedTuple):
    """One place that sets a value, and the name there."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One described config; `type` is the wire's ConfigType."""

    name: str
    value: str | None
    read_only: bool
    source: int
    sensitive: bool
    type: int
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


class StaticConfig(NamedTuple):
    """The broker's own configuration: typed values by name, and the originals text by name."""

    values: Mapping[str, Any]
    originals: Mapping[str, str]


def topic_entries(name: str, snapshot: Snapshot, broker: int, static: StaticConfig) -> list[ConfigEntry]:
    """All configs of a topic; KeyError when there is none."""
    return topic_config_entries(snapshot.topics[name].config, snapshot, broker, static)


def topic_config_entries(
    overrides: Mapping[str, str], snapshot: Snapshot, broker: int, static: StaticConfig
) -> list[ConfigEntry]:
    """All configs of a topic with these overrides."""
    values = configdef.resolve_topic(overrides, snapshot.dynamic_layers(broker), static.values)
    return [_topic_entry(key, overrides, values[key.name], snapshot, broker, static) for key in TOPIC.values()]


def _topic_entry(
    key: ConfigKey, overrides: Mapping[str, str], value: Any, snapshot: Snapshot, broker: int, static: StaticConfig
) -> ConfigEntry:
    text = to_text(key.type, value)
    synonyms: list[ConfigSynonym] = []
    if key.name in overrides:
        synonyms.append(ConfigSynonym(key.name, text, TOPIC_CONFIG))
    below = configdef.topic_synonyms(key.name)
    if below:
        synonyms += _synonyms(below[0][0], snapshot, broker, static, sensitive=False)
    source = synonyms[0].source if synonyms else DEFAULT
    return ConfigEntry(key.name, text, False, source, False, key.type, key.documentation, tuple(synonyms))


def broker_entries(snapshot: Snapshot, broker: int, static: StaticConfig) -> list[ConfigEntry]:
    """All configs of one broker; unknown names that are set appear as sensitive, as in Kafka."""
    names = [name for name, key in BROKER.items() if not key.internal]
    dynamic = [name for layer in snapshot.dynamic_layers(broker) for name in layer]
    return [
        _broker_entry(name, snapshot, broker, static) for name in dict.fromkeys((*names, *static.originals, *dynamic))
    ]


def cluster_entries(snapshot: Snapshot) -> list[ConfigEntry]:
    """The cluster-wide dynamic configs."""
    entries = []
    for name, text in snapshot.dynamic_config(None).items():
        key, sensitive = _key(name)
        value = None if sensitive else text
        synonyms = (ConfigSynonym(name, value, DYNAMIC_DEFAULT),)
        read_only = key is None or key.change == READ_ONLY
        kind = key.type if key else 0
        doc = key.documentation if key else ""
        entries.append(ConfigEntry(name, value, read_only, DYNAMIC_DEFAULT, sensitive, kind, doc, synonyms))
    return entries


def _key(name: str) -> tuple[ConfigKey | None, bool]:
    """A broker config's row, and whether its value is hidden; the value of an unknown config is."""
    key = configdef.broker_key(name)
    return key, key is None or key.sensitive


def _broker_entry(name: str, snapshot: Snapshot, broker: int, static: StaticConfig) -> ConfigEntry:
    key, sensitive = _key(name)
    synonyms = _synonyms(name, snapshot, broker, static, sensitive)
    source = synonyms[0].source if synonyms else DEFAULT
    read_only = key is None or key.change == READ_ONLY
    value = None if sensitive else _broker_text(name, key, snapshot, broker, static)
    kind = key.type if key else 0
    return ConfigEntry(
        name, value, read_only, source, sensitive, kind, key.documentation if key else "", tuple(synonyms)
    )


def _broker_text(name: str, key: ConfigKey | None, snapshot: Snapshot, broker: int, static: StaticConfig) -> str | None:
    for layer in snapshot.dynamic_layers(broker):
        if name in layer:
            return layer[name]
    value = static.values.get(name)
    if value is None and name in BROKER:
        value = configdef.broker_default(name)
    return to_text(key.type if key else STRING, value)


def _synonyms(name: str, snapshot: Snapshot, broker: int, static: StaticConfig, sensitive: bool) -> list[ConfigSynonym]:
    """All places that set the same value as `name`, in order of precedence, from the first one under `name` itself."""
    names = configdef.broker_synonyms(name)
    layers: list[tuple[int, Mapping[str, str]]] = [
        *zip((DYNAMIC_BROKER, DYNAMIC_DEFAULT), snapshot.dynamic_layers(broker), strict=True),
        (STATIC_BROKER, static.originals),
        (DEFAULT, _Defaults()),
    ]
    found = [
        ConfigSynonym(synonym, None if sensitive else layer[synonym], source)
        for source, layer in layers
        for synonym in names
        if synonym in layer
    ]
    first = next((i for i, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


class _Defaults(dict[str, str]):
    """Defaults as text, for configs that have one."""

    def __contains__(self, name: object) -> bool:
        return name in BROKER and BROKER[str(name)].default is not None

    def __getitem__(self, name: str) -> str:
        return str(BROKER[name].default)


def chosen(entries: Iterable[ConfigEntry], names: Iterable[str] | None) -> list[ConfigEntry]:
    """The requested entries; None or no names requests all."""
    selected = set(names or ())
    return [entry for entry in entries if not selected or entry.name in selected]
