"""The kinds of nodes that a broker's security settings make it follow: where they are, and what announces a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import NoNode, Tree
from odradek.security.acls import acl_nodes
from odradek.security.sasl.delegation_tokens import CHANGES_PATH, TOKENS_PATH


class NodeKind(NamedTuple):
    """One kind of nodes.

    `roots`: the paths below which they are, each with the number of levels. `changes`: the parents of the sequence
    nodes that announce a change. `changed(parent, data)`: the path of the node that such a sequence node is about, None
    if it is one of another kind; ValueError if it is malformed. `check(path, data)` raises ValueError for a node to be
    ignored. `ensured`: the paths to create before anything is read.
    """

    roots: Mapping[str, int]
    changes: tuple[str, ...]
    changed: Callable[[str, bytes], str | None]
    check: Callable[[str, bytes], object] = lambda path, data: None
    ensured: tuple[str, ...] = ()

    def paths(self, tree: Tree) -> list[str]:
        """The paths of all nodes of this kind."""
        return [path for root, levels in self.roots.items() for path in _below(tree, root, levels)]


def _below(tree: Tree, path: str, levels: int) -> list[str]:
    """The paths `levels` levels below `path`."""
    try:
        names = tree.children(path)
    except NoNode:
        return []
    children = [f"{path}/{name}" for name in names]
    return children if levels == 1 else [below for child in children for below in _below(tree, child, levels - 1)]


def _changed_acl(parent: str, data: bytes) -> str:
    pattern = next(pattern for pattern, path in acl_nodes.CHANGES.items() if path == parent)
    return acl_nodes.path(acl_nodes.decode_change(pattern, data))


ACLS = NodeKind(
    roots=dict.fromkeys(acl_nodes.ACLS.values(), 2),
    changes=tuple(acl_nodes.CHANGES.values()),
    changed=_changed_acl,
    check=lambda path, data: acl_nodes.decode_acls(data),
    ensured=acl_nodes.PERSISTENT,
)


def _changed_user(parent: str, data: bytes) -> str | None:
    kind, _, name = (notices.decode_config_change(data) or "").partition("/")
    return f"{znodes.USER_CONFIGS}/{name}" if kind == "users" and is_name(name) else None


def _changed_token(parent: str, data: bytes) -> str | None:
    name = data.decode("utf-8", "replace")
    return f"{TOKENS_PATH}/{name}" if is_name(name) else None


def is_name(name: str) -> bool:
    """Whether a node can have this name: anyone may announce changes."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


USERS = NodeKind(roots={znodes.USER_CONFIGS: 1}, changes=(znodes.CONFIG_CHANGES,), changed=_changed_user)
TOKENS = NodeKind(
    roots={TOKENS_PATH: 1}, changes=(CHANGES_PATH,), changed=_changed_token, ensured=(TOKENS_PATH, CHANGES_PATH)
)


def kinds(config: Mapping[str, Any]) -> list[NodeKind]:
    """The kinds of nodes with ACLs that a broker with these settings follows."""
    return [ACLS] if config["authorizer.class.name"] else []
