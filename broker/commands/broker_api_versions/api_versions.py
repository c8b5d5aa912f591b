"""Implements `odradek broker-api-versions`; the output lines are those of Kafka's BrokerApiVersionsCommand."""

from __future__ import annotations

from collections.abc import Mapping

import click
from kafka.errors import KafkaError
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import ApiVersionsRequest

from odradek.broker.commands._shared.client import Cluster, RequestFailed, check
from odradek.protocol.library import message_class

# APIs between brokers and controllers: a broker that does not offer them to clients is not an old one
_INTERNAL = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}

Versions = Mapping[int, tuple[int, int]]


def show(cluster: Cluster) -> None:
    """Print a block of lines for each broker."""
    for broker in sorted(cluster.metadata([]).brokers, key=lambda broker: broker.node_id):
        rack = "null" if broker.rack is None else broker.rack
        name = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {rack})"
        click.echo(f"{name} -> {_described(cluster, broker.node_id)}")


def _described(cluster: Cluster, node: int) -> str:
    try:
        return _block(_versions(cluster, node))
    except (KafkaError, RequestFailed) as error:
        return f"ERROR: {error}"


def _versions(cluster: Cluster, node: int) -> Versions:
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
    response = cluster.send(request, node)
    check(response.error_code)
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _block(versions: Versions) -> str:
    keys = sorted({*versions, *(key.value for key in ApiKey if key.value not in _INTERNAL)})
    lines = (f"\t{_name(key)}({key}): {_text(key, versions.get(key))}" for key in keys)
    return "(\n" + ",\n".join(lines) + "\n)"


def _name(key: int) -> str:
    return ApiKey(key).name if key in ApiKey._value2member_map_ else "UNKNOWN"


def _text(key: int, offered: tuple[int, int] | None) -> str:
    if offered is None:
        return "UNSUPPORTED"
    first, last = offered
    return (str(first) if first == last else f"{first} to {last}") + _usable(key, first, last)


def _usable(key: int, first: int, last: int) -> str:
    """The newest version that both sides have; empty for an API that this client does not use."""
    try:
        request = message_class(f"{_name(key)}Request")
    except LookupError:
        return ""
    if request.max_version < first:
        return " [unusable: node too new]"
    if last < request.min_version:
        return " [unusable: node too old]"
    return f" [usable: {min(last, request.max_version)}]"
