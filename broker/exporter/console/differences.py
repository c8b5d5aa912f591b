"""The settings in which the brokers of the cluster differ, as each broker describes its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka.errors import KafkaError

from odradek.broker.commands._shared.client import BROKER, Cluster
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.exporter.console import broker_client
from odradek.broker.exporter.console.broker_settings import SOURCES
from odradek.cluster.metadata.snapshot import Snapshot

MOST = 32  # brokers that are compared
TOTAL_SECONDS = 20.0
Described = Mapping[str, tuple[str | None, str]]  # value and source, by setting


def ask(config: BrokerConfig, snapshot: Snapshot) -> dict[str, Any]:
    """The differences. Raises Refused."""
    what = "differences between brokers are not shown"
    with broker_client.connected(config, snapshot, what, "compare the brokers") as cluster:
        return _all(cluster, sorted(snapshot.brokers)[:MOST])


def _all(cluster: Cluster, brokers: list[int]) -> dict[str, Any]:
    until = time.monotonic() + TOTAL_SECONDS
    found: dict[int, Described] = {}
    failed: dict[str, str] = {}
    for broker in brokers:
        try:
            if time.monotonic() > until:
                raise OdradekError("the brokers before it took too long")
            found[broker] = _described(cluster, broker)
        except (OdradekError, KafkaError) as error:
            failed[str(broker)] = str(error)
    return {"brokers": sorted(found), "failed": failed, "rows": differing(found)}


def _described(cluster: Cluster, broker: int) -> Described:
    entries = cluster.configs(BROKER, [str(broker)])[str(broker)]
    return {one.name: (one.value, SOURCES.get(one.config_source, "")) for one in entries}


def differing(found: Mapping[int, Described]) -> list[dict[str, Any]]:
    """A row for each setting whose value is not the same everywhere, with the values in the order of the brokers.

    Values of secrets are None everywhere: no difference is seen.
    """
    names = sorted({name for described in found.values() for name in described})
    rows = []
    for name in names:
        values = [found[broker].get(name, (None, "not set")) for broker in sorted(found)]
        if len({value for value, _ in values}) > 1:
            rows.append({"name": name, "values": [{"value": value, "source": source} for value, source in values]})
    return rows
