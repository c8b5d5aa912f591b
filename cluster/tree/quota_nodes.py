"""Client quotas in the metadata tree.

In the tree a quota is among the configs of a user, a client id of a user, a client id or an address (Kafka's
`/config/users/U`, `/config/users/U/clients/C`, `/config/clients/C`, `/config/ips/A`). Snapshots have the quotas of
each of these nodes by its path below `/config`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Create, Delete, NoNode, Operation, Set, Tree, parent
from odradek.cluster.tree.znodes import MalformedNode
from odradek.security.quotas import keys
from odradek.security.quotas.entities import Entity, parse_path, path_of
from odradek.security.quotas.keys import values_of

log = logging.getLogger(__name__)

_CONFIG = "/config"
_ROOTS = ("users", "clients", "ips")
Found = dict[str, dict[str, float]]


def read_all(tree: Tree) -> Found:
    """The quotas of all nodes, by path. Ignores what is malformed."""
    found: Found = {}
    for root in _ROOTS:
        parents = _read(tree, found, [f"{root}/{name}" for name in _children(tree, root)])
        if root == "users":
            paths = [f"{user}/clients" for user in parents]
            _read(tree, found, [f"{path}/{name}" for path in paths for name in _children(tree, path)])
    return found


def _children(tree: Tree, path: str) -> list[str]:
    try:
        return tree.children(f"{_CONFIG}/{path}")
    except NoNode:
        return []


def _read(tree: Tree, found: Found, paths: list[str]) -> list[str]:
    """Add the quotas of these nodes to `found`; returns those of them that have children."""
    parents = []
    for path, node in zip(paths, tree.get_many([f"{_CONFIG}/{path}" for path in paths]), strict=True):
        if node is not None:
            if quotas := _quotas(path, node[0]):
                found[path] = quotas
            if node[1].children:
                parents.append(path)
    return parents


def _quotas(path: str, data: bytes) -> dict[str, float]:
    try:
        return values_of(parse_path(path), znodes.decode_config(data))
    except (MalformedNode, ValueError) as error:
        log.error("ignoring %s/%s: %s", _CONFIG, path, error)
        return {}


def by_entity(found: Mapping[str, Mapping[str, float]]) -> dict[Entity, Mapping[str, float]]:
    """The quotas of a snapshot by entity."""
    return {parse_path(path): quotas for path, quotas in found.items()}


def writes(tree: Tree, entity: Entity, quotas: Mapping[str, float]) -> list[Operation]:
    """The operations that replace the quotas among the configs of an entity's node.

    A node that is left without configs and children is deleted, and so are the nodes above that only had this one.
    """
    path = path_of(entity)
    texts = {key: keys.to_text(key, value) for key, value in quotas.items()}
    missing = tree.missing(path)
    if missing:
        above: list[Operation] = [Create(one) for one in missing[:-1]]
        return [*above, Create(path, znodes.encode_config(texts))] if texts else []
    data, stat = tree.get(path)
    configs = texts | _others(znodes.decode_config(data))
    if configs or stat.children:
        return [Set(path, znodes.encode_config(configs), stat.version)]
    return [Delete(path, stat.version), *_emptied(tree, path)]


def _emptied(tree: Tree, path: str) -> list[Operation]:
    """Delete the user and its folder of client ids, if there is nothing left in them without the node at `path`."""
    deletions: list[Operation] = []
    while parent(path) not in (znodes.USER_CONFIGS, znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS):
        path = parent(path)
        data, stat = tree.get(path)
        if stat.children > 1 or znodes.decode_config(data):
            break
        deletions.append(Delete(path, stat.version))
    return deletions


def _others(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a node but its quotas: the credentials of a user, for example."""
    return {key: text for key, text in configs.items() if key not in keys.KINDS}
