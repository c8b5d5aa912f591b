"""The security metadata: ACLs, users, quotas and delegation tokens at one version, as every process reads them.

It is the data of the nodes in the tree, by path, so that what Apache Kafka writes there and what this broker obeys are
one and the same. The controller publishes it as JSON in a region of its own (ipc.metadata), before the snapshot that
names its version; each process parses a kind of node when it first asks for it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cached_property, lru_cache

from odradek.security.acls import acl_nodes
from odradek.security.acls.acl_types import Acls, Entries

log = logging.getLogger(__name__)


class SecurityMetadata:
    """The security metadata at one version; immutable. `nodes`: the text of each node by its path."""

    def __init__(self, version: int, nodes: Mapping[str, str]) -> None:
        self.version = version
        self.nodes = nodes

    @classmethod
    def parse(cls, version: int, blob: bytes) -> SecurityMetadata:
        """The metadata in a published blob; an empty one before the first."""
        return cls(version, json.loads(blob) if blob else {})

    def encode(self) -> bytes:
        """The blob to publish."""
        return json.dumps(self.nodes, separators=(",", ":")).encode()

    def below(self, path: str) -> dict[str, str]:
        """The nodes below `path`, by the rest of their paths."""
        prefix = f"{path}/"
        return {name.removeprefix(prefix): text for name, text in self.nodes.items() if name.startswith(prefix)}

    @cached_property
    def acls(self) -> Acls:
        """The ACLs; a malformed node is logged and has none."""
        found = {}
        for path, text in self.nodes.items():
            pattern = acl_nodes.pattern_of(path)
            if pattern is None:
                continue
            try:
                found[pattern] = _decoded(text)
            except ValueError as error:
                log.error("ignoring %s: %s", path, error)
        return found


@lru_cache(maxsize=1 << 16)  # one changes, thousands stay
def _decoded(text: str) -> Entries:
    return acl_nodes.decode_acls(text.encode())


NO_SECURITY_METADATA = SecurityMetadata(0, {})
"""Before the first publication."""
