"""The settings of this broker and where each comes from. Secrets are left out, as in DescribeConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.console import paging
from odradek.broker.exporter.console.paging import Query
from odradek.cluster.decisions import describe
from odradek.cluster.decisions.describe import ConfigEntry, ConfigSynonym, StaticConfig
from odradek.cluster.metadata.snapshot import Snapshot

SOURCES = {
    describe.DYNAMIC_BROKER: "dynamic, this broker",
    describe.DYNAMIC_DEFAULT: "dynamic, all brokers",
    describe.STATIC_BROKER: "server.properties",
    describe.DEFAULT: "default",
}


def settings(config: BrokerConfig, snapshot: Snapshot, query: Query) -> dict[str, Any]:
    """A page of settings, those that are set first."""
    entries = describe.broker_entries(snapshot, config["broker.id"], StaticConfig(config, config.originals))
    entries.sort(key=lambda entry: (entry.source == describe.DEFAULT, entry.name))
    names = [one.name for one in entries]
    columns: dict[str, Sequence[Any]] = {"name": names, "source": [one.source for one in entries]}
    about, rows = paging.page(query, paging.chosen(query, names, columns))
    return {**about, "rows": [_row(entries[row]) for row in rows]}


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "[hidden]" if entry.sensitive and entry.source != describe.DEFAULT else entry.value,
        "source": SOURCES.get(entry.source, ""),
        "is_default": entry.source == describe.DEFAULT,
        "others": [_other(entry, one) for one in entry.synonyms[1:]],
        "doc": entry.doc,
    }


def _other(entry: ConfigEntry, one: ConfigSynonym) -> str:
    """A place that also sets it and does not count."""
    return f"{SOURCES.get(one.source, '')}: {one.name}={'[hidden]' if entry.sensitive else one.value}"
