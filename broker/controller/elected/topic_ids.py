"""Assigns ids to topics whose nodes ZooKeeper-based tools wrote without one (Kafka's setTopicIds, KIP-516).

The elected controller adds the id before it sends any request about the topic. A tool that rewrites the node of a known
topic, to add partitions, omits the id: the topic keeps its old id, because the brokers' logs carry it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.broker.controller.elected.fenced_writes import FencedWrites
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Set, Tree, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import TopicNode

log = logging.getLogger(__name__)


class TopicIds:
    """One controller term. `known(topic)` is the topic id that this broker knows, None without one."""

    def __init__(self, tree: Tree, fenced: FencedWrites, known: Callable[[str], bytes | None]) -> None:
        self._tree = tree
        self._fenced = fenced
        self._known = known

    def identified(self, name: str, data: bytes, version: int) -> TopicNode:
        """A topic's node with an id. TreeUnavailable: no longer controller, or the node changed meanwhile."""
        node = znodes.decode_topic(data)
        return node if node.id is not None else self._write(name, node, version)

    def _write(self, name: str, node: TopicNode, version: int) -> TopicNode:
        node = node._replace(id=self._known(name) or znodes.random_uuid())
        path = znodes.topic_path(name)
        try:
            self._tree.multi([self._fenced.epoch_check, Set(path, znodes.encode_topic(node), version)])
        except TreeError as error:
            self._fenced.check_refusal(error)
            raise TreeUnavailable(f"{path} was changed while it got an id") from error
        assert node.id is not None
        log.info("assigned topic %s the id %s", name, znodes.uuid_text(node.id))
        return node
