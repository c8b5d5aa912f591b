"""Publishes the nodes that have ACLs, and with them users and tokens, to the other processes.

Owner     : the controller process.
Crash rule: the tree has it all; a new controller process reads it and publishes it under a new version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from odradek.broker.controller.security.followed_nodes import FollowedNodes
from odradek.broker.controller.security.node_kinds import NodeKind
from odradek.cluster.metadata.security_metadata import NO_SECURITY_METADATA, SecurityMetadata
from odradek.cluster.tree.tree import Tree
from odradek.ipc.metadata import MetadataRegion


class SecurityNodes(FollowedNodes):
    """The nodes of some kinds, by path, and their publication."""

    def __init__(self, tree: Tree, kinds: Sequence[NodeKind], changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when there is something new to publish."""
        super().__init__(tree, kinds, changed)
        self.version = 0  # of the last publication
        self._metadata = NO_SECURITY_METADATA
        self._unpublished = False
        self._others: Mapping[str, str] = {}  # published with them

    def _replace(self, paths: Sequence[str]) -> None:
        super()._replace(paths)
        if not self.version:  # the first publication may be of no nodes
            self._set_changed()

    def _set_changed(self) -> None:
        self._unpublished = True
        self._metadata = NO_SECURITY_METADATA
        super()._set_changed()

    @property
    def metadata(self) -> SecurityMetadata:
        """The nodes as processes get them, published or not."""
        if self._metadata is NO_SECURITY_METADATA:
            self._metadata = SecurityMetadata(self.version + 1, self.texts)
        return self._metadata

    def publish(self, region: MetadataRegion, others: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Publish what is new, before the snapshot that names its version; returns whether there was anything.

        `others`: the texts of nodes that are published with these, by path. OSError: it is not published.
        """
        if not self._unpublished and others == self._others:
            return False
        version = region.version + 1
        region.publish(version, SecurityMetadata(version, {**self.metadata.nodes, **others}).encode())
        self.version, self._unpublished, self._others = version, False, others
        return True
