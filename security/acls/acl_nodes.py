"""ACLs in the metadata tree: Kafka's znodes (kafka.zk.ZkData), byte for byte as Apache Kafka 3.9 writes them.

Each resource pattern has one node with all its entries; conditional writes compare the node's version. After each
change a sequence node names the pattern, so that every broker reads that one node again; brokers delete old ones.
"""

from __future__ import annotations

import json
import re
from typing import Any

from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Entries,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    by_title,
)

ACLS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE = "acl_changes_"  # the prefix of sequence nodes

_VERSION = 1
_STORED_TYPES = [kind for kind in ResourceType if kind.concrete]
# Compiled with their first use: ranges of Unicode take milliseconds, and a broker without an authorizer has no use.
_ESCAPED = r'["\\\x00-\x1f\ud800-\udfff]|[^\x00-\uffff]'
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_NOT_IN_PATHS = "[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|[^\x00-\uffff]"


def type_path(pattern: PatternType, kind: ResourceType) -> str:
    """The node whose children are the names that have ACLs: `/kafka-acl/Topic`."""
    return f"{ACLS[pattern]}/{kind.title}"


def path(resource: ResourcePattern) -> str:
    """The node with the entries of one pattern."""
    return f"{type_path(resource.pattern, resource.type)}/{resource.name}"


def pattern_of(path: str) -> ResourcePattern | None:
    """The pattern whose entries are in the node at `path`; None for other nodes."""
    for pattern, root in ACLS.items():
        kind, slash, name = path.removeprefix(f"{root}/").partition("/")
        found = by_title(ResourceType, kind)
        if path.startswith(f"{root}/") and slash and found.concrete:
            return ResourcePattern(found, name, pattern)
    return None


# What a broker with an authorizer creates before it reads ACLs.
PERSISTENT = (*(type_path(pattern, kind) for pattern in ACLS for kind in _STORED_TYPES), *CHANGES.values())


def can_be_named(name: str) -> bool:
    """Whether a node can have this name: ZooKeeper refuses some, and a slash would begin another level."""
    return name not in ("", ".", "..") and not re.search(_NOT_IN_PATHS, name)


def encode_acls(entries: Entries) -> bytes:
    """A node's data; the entries are in order, though Kafka does not mind."""
    return f'{{"acls":[{",".join(map(_entry, sorted(entries)))}],"version":{_VERSION}}}'.encode()


def _entry(entry: AccessControlEntry) -> str:
    fields = {
        "principal": entry.principal,
        "permissionType": entry.permission.title,
        "host": entry.host,
        "operation": entry.operation.title,
    }
    return f"{{{','.join(f'{_text(key)}:{_text(value)}' for key, value in fields.items())}}}"


def _text(text: str) -> str:
    """A JSON string as Jackson writes it: what is outside the basic plane as a pair of escapes, the rest as it is."""
    return f'"{re.sub(_ESCAPED, _escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return _SHORT.get(char) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def decode_acls(data: bytes) -> Entries:
    """The entries in a node's data; an operation or permission that Kafka does not know stays, and affects nothing.

    Raises ValueError for other data. (Kafka takes data that is not JSON for an empty list, and stops at the rest.)
    """
    if not data:
        return frozenset()
    node = _object(data)
    if node.get("version") != _VERSION:
        raise ValueError(f"ACLs of version {node.get('version')} are not known, only {_VERSION}")
    try:
        return frozenset(map(_decode_entry, node["acls"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the ACLs of a resource: {error!r}") from error


def _decode_entry(fields: dict[str, str]) -> AccessControlEntry:
    operation = by_title(Operation, fields["operation"])
    permission = by_title(Permission, fields["permissionType"])
    if ":" not in fields["principal"] or "ANY" in (operation.name, permission.name):
        raise ValueError(f"not an ACL: {fields}")
    return AccessControlEntry(fields["principal"], str(fields["host"]), operation, permission)


def encode_change(resource: ResourcePattern) -> tuple[str, bytes]:
    """The prefix of the sequence node that announces a change, and its data."""
    prefix = f"{CHANGES[resource.pattern]}/{CHANGE}"
    if resource.pattern == PatternType.LITERAL:
        return prefix, f"{resource.type.name}:{resource.name}".encode()
    fields = f'"resourceType":"{resource.type.name}","name":{_text(resource.name)}'
    return prefix, f'{{"version":{_VERSION},{fields},"patternType":"{resource.pattern.name}"}}'.encode()


def decode_change(pattern: PatternType, data: bytes) -> ResourcePattern:
    """The pattern that a sequence node below `CHANGES[pattern]` names. Raises ValueError."""
    if pattern == PatternType.LITERAL:
        kind, colon, name = data.decode(errors="replace").partition(":")
        if not colon:
            raise ValueError(f"not a change of ACLs: {data!r}")
        return _pattern(kind, name, PatternType.LITERAL.name)
    fields = _object(data)
    version = fields.get("version")
    if not isinstance(version, int) or version > _VERSION:
        raise ValueError(f"changes of ACLs of version {version} are not known, only {_VERSION}")
    return _pattern(fields.get("resourceType"), fields.get("name"), fields.get("patternType"))


def _pattern(kind: Any, name: Any, pattern: Any) -> ResourcePattern:
    """A resource pattern of the names of its enums, the type in any case."""
    found, found_pattern = ResourceType.__members__.get(str(kind).upper()), PatternType.__members__.get(str(pattern))
    if found is None or found_pattern is None or not isinstance(name, str):
        raise ValueError(f"not a resource pattern: {kind}:{name}:{pattern}")
    if not (found.concrete and found_pattern.concrete):
        raise ValueError(f"no ACLs can be for {kind}:{name}:{pattern}")
    return ResourcePattern(found, name, found_pattern)


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"not an object: {found!r:.80}")
    return found
