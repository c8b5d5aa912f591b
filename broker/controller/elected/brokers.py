"""The registered brokers as the elected controller knows them: a connection to each, and which are alive.

A broker that refuses connections counts as dead at once, although its session lasts. If that is wrong, its partitions
have other leaders in later epochs: its followers leave, so that it acknowledges nothing (acks=all), its ISR changes are
refused, and it gets the full state as soon as it is reachable. acks=1 loses what it loses in any failover.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from odradek.broker.interbroker import zookeeper_session
from odradek.broker.interbroker.peers import REFUSED, Peer, PeerPool
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Stat, Tree
from odradek.cluster.tree.znodes import BrokerNode, MalformedNode

log = logging.getLogger(__name__)

Report = Callable[[int], None]  # broker


class Brokers:
    """By broker id: `nodes` and `epochs` of all registered brokers, `peers` of all but this one."""

    def __init__(self, config: Any, tree: Tree, peer_pool: PeerPool, lost: Report, found: Report) -> None:
        """`lost` is called for a broker that its connection shows as dead, `found` for one that was wrongly so."""
        self.nodes: dict[int, BrokerNode] = {}
        self.epochs: dict[int, int] = {}
        self.peers: dict[int, Peer] = {}
        self.suspected: set[int] = set()
        self._config = config
        self._tree = tree
        self._peer_pool = peer_pool
        self._lost, self._found = lost, found

    def alive(self) -> dict[int, int]:
        """The epochs of the brokers that are not suspected."""
        return {broker: epoch for broker, epoch in self.epochs.items() if broker not in self.suspected}

    def read(self) -> tuple[set[int], set[int], set[int]]:
        """The brokers that have gone, those that have come, those with other endpoints. TreeUnavailable.

        A restarted broker has gone and come. What changed in place while ZooKeeper was away is seen only here: its
        watch was lost.
        """
        registered = read_registered(self._tree, watch=True)
        epochs = {broker: stat.czxid for broker, (_, stat) in registered.items()}
        gone = {broker for broker, epoch in self.epochs.items() if epochs.get(broker) != epoch}
        come = {broker for broker, epoch in epochs.items() if self.epochs.get(broker) != epoch}
        for broker in gone:
            self._disconnect(broker)
        for broker in come:
            self._connect(broker, registered[broker][0])
        changed = {broker for broker in epochs.keys() - come if self._update(broker, registered[broker][0])}
        self.epochs = epochs
        return gone, come, changed

    def read_changed(self, broker: int) -> bool:
        """Read a registration that has changed in place; whether the broker has other endpoints. TreeUnavailable."""
        found = self._tree.get_many([f"{znodes.BROKER_IDS}/{broker}"], watch=True)[0]
        if found is None or self.epochs.get(broker) != found[1].czxid:
            return False  # the broker is gone, or has registered again: `read` handles that
        return self._update(broker, znodes.decode_broker(found[0]))

    def _update(self, broker: int, node: BrokerNode) -> bool:
        """Take the endpoints of a known registration; whether they are others."""
        former, self.nodes[broker] = self.nodes[broker], node
        addresses = [zookeeper_session.address_of(one, self._config) for one in (former, node)]
        if broker in self.peers and addresses[0] != addresses[1]:
            self.peers.pop(broker).close()
            self._connect(broker, node)
        return node != former

    def _connect(self, broker: int, node: BrokerNode) -> None:
        self.nodes[broker] = node
        if broker != self._config["broker.id"]:
            address = zookeeper_session.address_of(node, self._config)
            self.peers[broker] = self._peer_pool.connect(broker, address, self._reachability_changed)

    def _disconnect(self, broker: int) -> None:
        self.suspected.discard(broker)
        self.nodes.pop(broker, None)
        peer = self.peers.pop(broker, None)
        if peer is not None:
            peer.close()

    def _reachability_changed(self, broker: int, reachability: str) -> None:
        if reachability == REFUSED and broker in self.epochs and broker not in self.suspected:
            log.warning("broker %d refuses connections: treating it as failed before its session expires", broker)
            self.suspected.add(broker)
            self.peers[broker].forget()
            self._lost(broker)
        elif reachability != REFUSED and broker in self.suspected:
            self.suspected.discard(broker)
            log.info("broker %d is reachable again", broker)
            self._found(broker)

    # -- their connections

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds)."""
        return min((peer.due for peer in self.peers.values()), default=math.inf)

    def tick(self, now: float) -> None:
        """Reconnect to lost peers."""
        for peer in list(self.peers.values()):
            peer.tick(now)

    def close(self) -> None:
        """Close all connections."""
        for peer in self.peers.values():
            peer.close()
        self.peers.clear()


def read_registered(tree: Tree, watch: bool = False) -> dict[int, tuple[BrokerNode, Stat]]:
    """Registrations by broker; malformed ones are ignored. TreeUnavailable, NoNode."""
    names = tree.children(znodes.BROKER_IDS, watch)
    found = tree.get_many([f"{znodes.BROKER_IDS}/{name}" for name in names], watch)
    registered = {}
    for name, node in zip(names, found, strict=True):
        if node is None:
            continue
        try:
            registered[znodes.decode_broker_id(name)] = znodes.decode_broker(node[0]), node[1]
        except MalformedNode as error:
            log.error("ignoring %s/%s: %s", znodes.BROKER_IDS, name, error)
    return registered
