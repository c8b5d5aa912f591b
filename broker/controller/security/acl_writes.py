"""Changes ACLs in the tree, as Apache Kafka's AclAuthorizer does: a node a resource pattern, and an announcement.

A node is written only if it still has the version that the decision was made from; if another broker was faster, the
node is read again, and its part of the request decided again. Each pattern is a change of its own: a failure leaves
those that were made before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from odradek.broker.controller.security.followed_nodes import Node
from odradek.broker.controller.security.security_nodes import SecurityNodes
from odradek.cluster.tree.tree import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Stat, TreeError
from odradek.security.acls import acl_nodes
from odradek.security.acls.acl_requests import Changes
from odradek.security.acls.acl_types import Acls, Entries, ResourcePattern

TRIES = 10
AT_ONCE = 128  # patterns that are written in one step

Decide = Callable[[Acls], tuple[Any, Changes]]
"""From the ACLs there are, the answer to a request, and the entries of each pattern as they come to be."""


def change(security: SecurityNodes, decide: Decide) -> Generator[None, None, Any]:
    """Make the changes of a request, in steps; returns its answer. Raises TreeError."""
    acls: dict[ResourcePattern, Entries] = dict(security.metadata.acls)
    left: set[ResourcePattern] | None = None  # the patterns that another broker was faster with; None: all
    for _ in range(TRIES):
        answer, changes = decide(acls)
        wanted = [pattern for pattern in changes if left is None or pattern in left]
        left = set()
        for start in range(0, len(wanted), AT_ONCE):
            some = {pattern: changes[pattern] for pattern in wanted[start : start + AT_ONCE]}
            left |= _write(security, some)
            yield
        if not left:
            return answer
        acls |= _read_again(security, left)
    raise BadVersion(acl_nodes.path(min(left or ())))


def _write(security: SecurityNodes, changes: Mapping[ResourcePattern, Entries]) -> set[ResourcePattern]:
    """Write the nodes of some patterns; returns those that have changed since they were read."""
    transactions = [_operations(security, pattern, entries) for pattern, entries in changes.items()]
    conflicts = set()
    for pattern, result in zip(changes, security.tree.each(transactions), strict=True):
        if isinstance(result, (BadVersion, NodeExists, NoNode)):
            conflicts.add(pattern)
        elif isinstance(result, TreeError):
            raise result
        else:
            security.set(acl_nodes.path(pattern), _written(changes[pattern], result[0]))
    return conflicts


def _operations(security: SecurityNodes, pattern: ResourcePattern, entries: Entries) -> list[Operation]:
    path, data = acl_nodes.path(pattern), acl_nodes.encode_acls(entries)
    known = security.nodes.get(path)
    prefix, announcement = acl_nodes.encode_change(pattern)
    write: Operation
    if known is None:
        write = Create(path, data)
    elif entries:
        write = Set(path, data, known.version)
    else:
        write = Delete(path, known.version)
    return [write, Create(prefix, announcement, sequence=True)]


def _written(entries: Entries, result: str | Stat | None) -> Node | None:
    """The node as it is after a write with this result."""
    if not entries:
        return None
    return Node(acl_nodes.encode_acls(entries), result.version if isinstance(result, Stat) else 0)


def _read_again(security: SecurityNodes, patterns: Iterable[ResourcePattern]) -> dict[ResourcePattern, Entries]:
    paths = {acl_nodes.path(pattern): pattern for pattern in patterns}
    security.refresh(list(paths))
    found = security.metadata.acls
    return {pattern: found.get(pattern, frozenset()) for pattern in paths.values()}
