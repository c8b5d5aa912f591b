"""Implements `odradek configs` for quotas (KIP-546) of users, clients and addresses, and lists SCRAM credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from odradek.broker.commands._shared.client import Cluster, check
from odradek.broker.commands._shared.scram_credentials import described
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.errors import OdradekError
from odradek.security.quotas import keys

_ENTITY = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2


def describe(cluster: Cluster, types: list[str], names: list[str], options: Mapping[str, Any]) -> None:
    """Print the quotas of the named entities, or of all entities of their types; of users also their credentials."""
    quotas = _quotas(cluster, types, names)
    credentials = described(cluster, names) if types == ["users"] and "" not in names else {}
    if options["as_json"]:
        print_json(_documents(quotas, credentials))
        return
    for document in quotas:
        entity = document["entity"]
        who = ", ".join(_who(kind, entity[kind]) for kind in _SHOWN if kind in entity)
        what = ", ".join(f"{key}={value}" for key, value in document["quotas"].items())
        click.echo(f"Quota configs for {who} are {what}")
    for user, held in credentials.items():
        what = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in held)
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {what}")


def _documents(quotas: list[dict[str, Any]], credentials: Mapping[str, list[tuple[str, int]]]) -> list[dict[str, Any]]:
    """One for each entity; `scram` has the iterations by mechanism."""
    found = {tuple(document["entity"].items()): document for document in quotas}
    for user, held in credentials.items():
        entity = {"user": user}
        document = found.setdefault(tuple(entity.items()), {"entity": entity, "quotas": {}})
        document["scram"] = dict(held)
    return list(found.values())


def _who(kind: str, name: str | None) -> str:
    return f"the default {_SHOWN[kind]}" if name is None else f"{_SHOWN[kind]} '{name}'"


def _quotas(cluster: Cluster, types: list[str], names: list[str]) -> list[dict[str, Any]]:
    component = DescribeClientQuotasRequest.ComponentData
    components = []
    for index, kind in enumerate(types):
        name = names[index] if index < len(names) else None
        match = _ANY if name is None else _EXACT if name else _DEFAULT
        components.append(component(entity_type=_ENTITY[kind], match_type=match, match=name or None))
    response = cluster.send(DescribeClientQuotasRequest(components=components, strict=True))
    check(response.error_code, response.error_message)
    return [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in entry.values},
        }
        for entry in response.entries or ()
    ]


def alter(cluster: Cluster, types: list[str], names: list[str], added: Mapping[str, str], deleted: list[str]) -> None:
    """Set and unset quotas of one entity."""
    _refuse_others(types, [*added, *deleted])
    if deleted:
        there = {key for document in _quotas(cluster, types, names) for key in document["quotas"]}
        if missing := [key for key in deleted if key not in there]:
            raise OdradekError(f"Invalid config(s): {','.join(missing)}")
    make = AlterClientQuotasRequest.EntryData
    operations = [make.OpData(key=k, value=_number(k, v), remove=False) for k, v in added.items()]
    operations += [make.OpData(key=k, value=0.0, remove=True) for k in deleted]
    entity = [
        make.EntityData(entity_type=_ENTITY[kind], entity_name=name or None)
        for kind, name in zip(types, names, strict=True)
    ]
    request = AlterClientQuotasRequest(entries=[make(entity=entity, ops=operations)], validate_only=False)
    for entry in cluster.send_to_controller(request, lambda r: [e.error_code for e in r.entries]).entries:
        check(entry.error_code, entry.error_message)


def _refuse_others(types: list[str], names: list[str]) -> None:
    """Raise OdradekError for names that are no quotas of these entities. `odradek users` changes credentials."""
    known = keys.OF_ADDRESSES if types == ["ips"] else keys.OF_CLIENTS
    others = [name for name in names if name not in known]
    scram = [name for name in others if name.startswith("SCRAM-")]
    if scram and types == ["users"]:
        raise OdradekError(f"{', '.join(scram)}: use `odradek users remove`")
    if others:
        raise OdradekError(f"only quotas can be set for {' and '.join(types)}, not {', '.join(others)}")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key}={text}: a quota must be a number") from None
