"""Implements `odradek configs` for topics, brokers, loggers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from odradek.broker.commands._shared.client import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, Cluster, check
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands.consumer_groups.describe_groups import listed
from odradek.broker.errors import OdradekError
from odradek.cluster.configs.configtypes import NO_EFFECT

_TYPES = {
    "topics": TOPIC,
    "brokers": BROKER,
    "broker-loggers": BROKER_LOGGER,
    "client-metrics": CLIENT_METRICS,
    "groups": GROUP,
}
_SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
# The sources that `--describe` shows without `--all`: values set for this entity itself.
_OWN_SOURCE = {TOPIC: 1, BROKER: 2, CLIENT_METRICS: 7, GROUP: 8}
_BROKER_DEFAULT_SOURCE = 3
_SET, _DELETE = 0, 1


def describe(cluster: Cluster, types: list[str], names: list[str], options: Mapping[str, Any]) -> None:
    """Print the configurations of the named entities, or of all."""
    kind = types[0]
    documents: list[dict[str, Any]] = []
    for name in names or _all_names(cluster, kind):
        entries = _entries(cluster, _TYPES[kind], name, everything=options["all"])
        documents.append({"entityType": kind, "entityName": name or None, "configs": entries})
    if options["as_json"]:
        print_json(documents)
        return
    for document in documents:
        click.echo(_title(kind, document["entityName"], everything=options["all"]))
        for entry in document["configs"]:
            click.echo(_line(entry))


def _title(kind: str, name: str | None, *, everything: bool) -> str:
    if not name:
        return f"Default configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind.removesuffix('s')} {name} are:"


def _line(entry: Mapping[str, Any]) -> str:
    synonyms = ", ".join(f"{s['source']}:{s['name']}={_shown(s['value'])}" for s in entry["synonyms"])
    value, sensitive = _shown(entry["value"]), str(entry["sensitive"]).lower()
    mark = " (no effect in this broker)" if entry["noEffect"] else ""
    return f"  {entry['name']}={value} sensitive={sensitive} synonyms={{{synonyms}}}{mark}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _all_names(cluster: Cluster, kind: str) -> list[str]:
    if kind == "topics":
        return sorted(topic.name for topic in cluster.metadata().topics)
    if kind in ("brokers", "broker-loggers"):
        ids = sorted(broker.node_id for broker in cluster.metadata([]).brokers)
        return [*map(str, ids), *([""] if kind == "brokers" else [])]
    if kind == "groups":
        return [group.group_id for group in listed(cluster, [], [])]
    raise click.UsageError(f"--describe of {kind} needs a name")


def _entries(cluster: Cluster, kind: int, name: str, *, everything: bool) -> list[dict[str, Any]]:
    """Configurations sorted by name; all, or only those that are set for this entity."""
    own = _OWN_SOURCE.get(kind) if name else _BROKER_DEFAULT_SOURCE
    return [
        _entry(config)
        for config in sorted(cluster.configs(kind, [name], synonyms=True, docs=True)[name], key=lambda c: c.name)
        if everything or own is None or config.config_source == own
    ]


def _entry(config: Any) -> dict[str, Any]:
    synonyms = [
        {"source": _SOURCES.get(s.source, "UNKNOWN"), "name": s.name, "value": s.value} for s in config.synonyms or ()
    ]
    return {
        "name": config.name,
        "value": config.value,
        "source": _SOURCES.get(config.config_source, "UNKNOWN"),
        "readOnly": bool(config.read_only),
        "sensitive": bool(config.is_sensitive),
        "noEffect": (config.documentation or "").startswith(NO_EFFECT),
        "synonyms": synonyms,
    }


def alter(cluster: Cluster, types: list[str], names: list[str], added: Mapping[str, str], deleted: list[str]) -> None:
    """Set and unset configurations; raises OdradekError when one to unset is not set."""
    kind, name = _TYPES[types[0]], names[0]
    if deleted:
        there = {entry["name"] for entry in _entries(cluster, kind, name, everything=False)}
        if missing := [key for key in deleted if key not in there]:
            raise OdradekError(f"Invalid config(s): {','.join(missing)}")
    make = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [make.AlterableConfig(name=k, config_operation=_SET, value=v) for k, v in added.items()]
    changes += [make.AlterableConfig(name=k, config_operation=_DELETE, value=None) for k in deleted]
    request = IncrementalAlterConfigsRequest(
        resources=[make(resource_type=kind, resource_name=name, configs=changes)], validate_only=False
    )
    own = kind in (BROKER, BROKER_LOGGER) and name
    for result in cluster.send(request, int(name) if own else None).responses:
        check(result.error_code, result.error_message)
