"""What a backup has, and its JSON: one object, readable and editable, with a version.

A section that is None could not be read when the backup was made; `missing` says why. The JSON has the names of
Kafka's protocol. Secrets: only SCRAM credentials from ZooKeeper, as its nodes have them; no password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from odradek.protocol.wire import INT16_MAX, INT32_MAX, INT64_MAX
from odradek.security.acls.acl_types import Code, Operation, PatternType, Permission, ResourceType
from odradek.security.sasl.scram_keys import ScramMechanism, parse_credential

VERSION = 1
ALL_BROKERS = ""  # in the place of an id: the dynamic default of the cluster
_END = "end"

T = TypeVar("T")
Partition = tuple[str, int]
Configs = dict[str, str | None]
"""None is a value that brokers do not return: it is sensitive."""
Entity = tuple[tuple[str, str | None], ...]
"""(type, name) of a quota's parts, sorted; the name None is the default of the type."""


@dataclass(frozen=True)
class Topic:
    """A topic; `id` is in hex, empty where the brokers have none (before Kafka 2.8)."""

    partitions: int
    replication_factor: int
    id: str = ""
    configs: Configs = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """A committed offset. `time`: of the record that is read next, in ms since 1970; None where it is not known.

    `at_end`: no record followed when the backup was made."""

    offset: int
    metadata: str = ""
    time: int | None = None
    at_end: bool = False


@dataclass(frozen=True)
class Credential:
    """A SCRAM credential of a user; `node` is its text in ZooKeeper, a secret, empty where a broker described it."""

    iterations: int
    node: str = field(default="", repr=False)


class Acl(NamedTuple):
    """One ACL, by Kafka's names."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str


@dataclass(frozen=True)
class SavedCluster:
    """The content of a backup."""

    created_ms: int
    cluster_id: str = ""
    topics: Mapping[str, Topic] | None = None
    brokers: Mapping[str, Configs] | None = None
    quotas: Mapping[Entity, Mapping[str, float]] | None = None
    users: Mapping[str, Mapping[str, Credential]] | None = None
    groups: Mapping[str, Mapping[Partition, Position]] | None = None
    acls: frozenset[Acl] | None = None
    missing: tuple[str, ...] = ()


# -- to JSON


def to_json(saved: SavedCluster) -> str:
    """The content of the file."""
    document = {
        "version": VERSION,
        "created_ms": saved.created_ms,
        "cluster_id": saved.cluster_id,
        "missing": list(saved.missing),
        "topics": _each(saved.topics, _plain),
        "brokers": _each(saved.brokers, dict),
        "quotas": _quotas_out(saved.quotas),
        "users": _each(saved.users, lambda held: _each(held, _plain)),
        "groups": _each(saved.groups, _positions_out),
        "acls": None if saved.acls is None else [one._asdict() for one in sorted(saved.acls)],
    }
    return json.dumps(document, indent=2) + "\n"


def _plain(one: Any) -> dict[str, Any]:
    return {each.name: getattr(one, each.name) for each in fields(one)}


def _each(section: Mapping[str, Any] | None, write: Callable[[Any], Any]) -> dict[str, Any] | None:
    return None if section is None else {name: write(one) for name, one in sorted(section.items())}


def _quotas_out(quotas: Mapping[Entity, Mapping[str, float]] | None) -> list[dict[str, Any]] | None:
    if quotas is None:
        return None
    entities = sorted(quotas, key=repr)
    return [{"entity": dict(entity), "quotas": dict(sorted(quotas[entity].items()))} for entity in entities]


def _positions_out(positions: Mapping[Partition, Position]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for (topic, index), one in sorted(positions.items()):
        time = _END if one.at_end else one.time
        topics.setdefault(topic, {})[str(index)] = {"offset": one.offset, "metadata": one.metadata, "time": time}
    return topics


# -- from JSON


class NotABackup(ValueError):
    """The text says what is wrong, and where."""


def from_json(text: str) -> SavedCluster:
    """The inverse of `to_json`; NotABackup for anything else."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NotABackup(f"it is damaged, or not a backup: {error}") from None
    found = _object(document, "the file")
    version = _number(found, "version", "the file", INT32_MAX)
    if version != VERSION:
        raise NotABackup(f"it has version {version}, and this release reads version {VERSION}: use a newer release")
    return SavedCluster(
        created_ms=_number(found, "created_ms", "the file", INT64_MAX),
        cluster_id=_text(found.get("cluster_id"), "cluster_id"),
        topics=_section(found, "topics", lambda value: _by_name(value, "topics", _topic)),
        brokers=_section(found, "brokers", lambda value: _by_name(value, "brokers", _broker)),
        quotas=_section(found, "quotas", _quotas),
        users=_section(found, "users", lambda value: _by_name(value, "users", _credentials)),
        groups=_section(found, "groups", lambda value: _by_name(value, "groups", _positions)),
        acls=_section(found, "acls", lambda value: frozenset(_acl(one) for one in _list(value, "acls"))),
        missing=tuple(_text(one, "missing") for one in _list(found.get("missing"), "missing")),
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _section(document: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T | None:
    if name not in document:
        raise NotABackup(f"it has no {name}")
    return None if document[name] is None else read(document[name])


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotABackup(f"{where} must be an object")
    for name in value:
        _text(name, f"a name in {where}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotABackup(f"{where} must be a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise NotABackup(f"{where} must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotABackup(f"{where} is not text: it has half a surrogate pair") from None
    return value


def _number(found: Mapping[str, Any], name: str, where: str, most: int, least: int = 0) -> int:
    value = found.get(name)
    if type(value) is not int or not least <= value <= most:
        raise NotABackup(f"{name} of {where} must be a whole number from {least} to {most}")
    return value


def _by_name(value: Any, where: str, read: Callable[[str, str, Any], T]) -> dict[str, T]:
    return {name: read(name, f"{where}, {name!r}", one) for name, one in _object(value, where).items()}


def _topic(_name: str, where: str, value: Any) -> Topic:
    found = _object(value, where)
    return Topic(
        partitions=_number(found, "partitions", where, INT32_MAX, 1),
        replication_factor=_number(found, "replication_factor", where, INT16_MAX, 1),
        id=_text(found.get("id"), f"id of {where}"),
        configs=_configs(where, found.get("configs")),
    )


def _broker(name: str, where: str, value: Any) -> Configs:
    if name != ALL_BROKERS and not _is_index(name):
        raise NotABackup(f"{where}: the name must be the id of a broker, or empty for the default")
    return _configs(where, value)


def _is_index(text: str) -> bool:
    """Whether it is a number as `str` writes one of 32 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= INT32_MAX and str(int(text)) == text


def _configs(where: str, value: Any) -> Configs:
    found = _object(value, f"configs of {where}")
    return {name: None if text is None else _text(text, f"{name!r} of {where}") for name, text in found.items()}


def _credentials(_name: str, where: str, value: Any) -> dict[str, Credential]:
    return _by_name(value, where, _credential)


def _credential(name: str, where: str, value: Any) -> Credential:
    found = _object(value, where)
    if name not in {one.value for one in ScramMechanism}:
        raise NotABackup(f"{where}: unknown mechanism")
    node = _text(found.get("node"), f"node of {where}")
    try:
        parse_credential(node) if node else None
    except ValueError as error:
        raise NotABackup(f"{where}: {error}") from None
    return Credential(_number(found, "iterations", where, INT32_MAX), node)


def _positions(_name: str, where: str, value: Any) -> dict[Partition, Position]:
    found = {}
    for topic, partitions in _object(value, where).items():
        for index, one in _object(partitions, f"{where}, {topic!r}").items():
            if not _is_index(index):
                raise NotABackup(f"{where}, {topic!r}: {index!r} is not the number of a partition")
            found[topic, int(index)] = _position(f"{where}, {topic!r}, {index}", one)
    return found


def _position(where: str, value: Any) -> Position:
    found = _object(value, where)
    offset, metadata = _number(found, "offset", where, INT64_MAX), _text(found.get("metadata"), f"metadata of {where}")
    if found.get("time") in (_END, None):
        return Position(offset, metadata, at_end=found.get("time") == _END)
    return Position(offset, metadata, _number(found, "time", where, INT64_MAX))


def _quotas(value: Any) -> dict[Entity, dict[str, float]]:
    found = {}
    for one in _list(value, "quotas"):
        row = _object(one, "an entry of quotas")
        entity = _configs("an entry of quotas", row.get("entity"))
        quotas = _object(row.get("quotas"), "quotas of an entry")
        found[tuple(sorted(entity.items()))] = {key: _float(key, number) for key, number in quotas.items()}
    return found


def _float(key: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise NotABackup(f"the quota {key!r} must be a number")
    return float(value)


_NAMED: dict[str, type[Code]] = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": Operation,
    "permission_type": Permission,
}


def _acl(value: Any) -> Acl:
    found = _object(value, "an entry of acls")
    acl = Acl(**{name: _text(found.get(name), f"{name} of an ACL") for name in Acl._fields})
    for name, kind in _NAMED.items():
        known = kind.__members__.get(getattr(acl, name))
        if known is None or not known.concrete:
            raise NotABackup(f"an ACL has the unknown {name} {getattr(acl, name)!r}")
    return acl
