"""Reads the dynamic configs of topics and brokers, and client quotas, from the tree into the view of a cluster member.

Every writer creates a node under /config/changes, which all brokers watch. A broker then reads all configs again, since
notices are deleted after a while and it may have missed some: reading is one round trip for any number of topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from odradek.cluster.configs import configdef
from odradek.cluster.configs.configtypes import ConfigError, ConfigKey, parse_value
from odradek.cluster.metadata.view import View
from odradek.cluster.tree import quota_nodes, znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import MalformedNode

log = logging.getLogger(__name__)


class DynamicConfigs:
    """Configs of the view's topics, updated by `read`. Methods raise TreeUnavailable."""

    def __init__(self, view: View, tree: Tree, changed: Callable[[Collection[str]], None]) -> None:
        """`changed(topics)` is called when the effective configs of some topics may have changed."""
        self._view = view
        self._tree = tree
        self._changed = changed
        self._known: set[str] = set()
        self._unread: set[str] = set()
        self._stale = True
        self.known = False  # they were read

    @property
    def waiting(self) -> bool:
        """Whether `read` has something to do."""
        return self._stale or bool(self._unread)

    def stale(self) -> None:
        """Any config may have changed."""
        self._stale = True

    def topic_changed(self, name: str) -> None:
        """A topic's config has changed."""
        self._unread.add(name)

    def follow(self) -> bool:
        """Note the view's new topics; whether there are any."""
        new = self._view.topics.keys() - self._known
        self._known = set(self._view.topics)
        self._unread |= new
        return bool(new)

    def read(self) -> None:
        """Read the configs that may be outdated."""
        all_read = self._stale
        if all_read:
            self._read_brokers()
            self._view.quotas = quota_nodes.read_all(self._tree)
            self._unread |= self._view.topics.keys()
        self._stale, self.known = False, True
        names = sorted(self._unread & self._view.topics.keys())
        found = self._tree.get_many([f"{znodes.TOPIC_CONFIGS}/{name}" for name in names])
        self._unread.clear()
        for name, node in zip(names, found, strict=True):
            self._view.topics[name]["config"] = topic_config(name, node[0] if node else None)
        if names or all_read:  # in a cluster without topics there are quotas and configs of brokers all the same
            self._changed(names)

    def _read_brokers(self) -> None:
        self._tree.children(znodes.CONFIG_CHANGES, watch=True)
        self._view.dynamic = broker_configs(self._tree)


def broker_configs(tree: Tree) -> dict[str, dict[str, str]]:
    """The valid dynamic configs of each broker, and the cluster-wide ones by an empty name."""
    names = tree.children(znodes.BROKER_CONFIGS)
    found = tree.get_many([f"{znodes.BROKER_CONFIGS}/{name}" for name in names])
    return {
        "" if name == znodes.CLUSTER_WIDE else name: broker_config(name, node[0] if node else None)
        for name, node in zip(names, found, strict=True)
    }


def topic_config(topic: str, data: bytes | None) -> dict[str, str]:
    """A topic's valid overrides; defaults apply in place of invalid ones."""
    return _usable(f"{znodes.TOPIC_CONFIGS}/{topic}", data, configdef.TOPIC.get)


def broker_config(broker: str, data: bytes | None) -> dict[str, str]:
    """The valid dynamic configs of a broker, or the cluster-wide ones."""
    return _usable(f"{znodes.BROKER_CONFIGS}/{broker}", data, configdef.broker_key)


def _usable(path: str, data: bytes | None, key_of: Callable[[str], ConfigKey | None]) -> dict[str, str]:
    try:
        configs = znodes.decode_config(data)
    except MalformedNode as error:
        log.error("ignoring %s: %s", path, error)
        return {}
    return {name: text for name, text in configs.items() if _is_usable(path, key_of(name), text)}


def _is_usable(path: str, key: ConfigKey | None, text: str) -> bool:
    """Unknown names are kept: another broker version may have written them."""
    try:
        if key is not None:
            parse_value(key, text)
    except ConfigError as error:
        log.error("%s: %s: not applied", path, error)
        return False
    return True
