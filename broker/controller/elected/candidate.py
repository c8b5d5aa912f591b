"""This broker as a candidate for controller: it runs for election, is the controller, or watches the controller.

It also watches the controller's broker by a connection, which the kernel closes when that broker dies: if the broker
then refuses connections, it is challenged at once, not when its ZooKeeper session ends
(broker.controller.elected.controller_node).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from odradek.broker.controller.elected.controller_node import NOBODY, ControllerLease
from odradek.broker.controller.elected.elected import Elected, Setting
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.broker.interbroker import zookeeper_session
from odradek.broker.interbroker.peers import REFUSED, Peer, PeerPool
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import MalformedNode

log = logging.getLogger(__name__)


class Candidate:
    """`elected` is this broker's controller term, None without one. Methods raise TreeUnavailable."""

    def __init__(
        self, config: Any, tree: Tree, controller_requests: ControllerRequests, peer_pool: PeerPool, setting: Setting,
        guarded: Callable[[Callable[[], Any]], None], on_unclean: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`guarded(action)` runs an action that may find ZooKeeper unavailable, from an event without a caller.
        `on_unclean()` counts an unclean leader election."""
        self.elected: Elected | None = None
        self.holder_peer: Peer | None = None
        self._config = config
        self._tree = tree
        self._controller_requests = controller_requests
        self._peer_pool = peer_pool
        self._setting = setting
        self._guarded = guarded
        self._on_unclean = on_unclean
        self._lease = ControllerLease(tree, config["broker.id"])
        self._eligible = True

    @property
    def undecided(self) -> bool:
        """Whether no controller is known, or this broker was elected but has not started: ZooKeeper was unavailable."""
        return self._lease.holder == NOBODY or (self._lease.held and self.elected is None)

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds)."""
        retry = math.inf if self.holder_peer is None else self.holder_peer.due
        return min(retry, math.inf if self.elected is None else self.elected.due())

    def tick(self, now: float) -> None:
        """Reconnect to lost peers; as controller, retry what failed before."""
        if self.holder_peer is not None:
            self.holder_peer.tick(now)
        if self.elected is not None:
            self.elected.tick(now)

    def run(self) -> None:
        """Become controller if there is none, unless this broker has withdrawn; else watch the controller."""
        taken = self._lease.run(self._eligible)
        if not self._lease.held:
            self.resign()
            self._watch_holder()
        elif taken or self.elected is None:
            self._start_term()

    def reconnected(self) -> None:
        """Restore lost watches. A controller reloads everything first, then sets the watch on /controller."""
        if self.elected is not None:
            self.elected.reconnected()
        if self._lease.held:
            self._lease.watch()
        else:
            self._lease.holder = NOBODY

    def resign(self) -> None:
        """Stop being controller, if this broker is; the next election raises the epoch."""
        if self.elected is not None:
            self.elected.close()
            self.elected = None
        if self._lease.held:
            self._lease.resign()

    def withdraw(self) -> None:
        """Stop running for election, because the broker is to stop; keep watching the controller."""
        self._eligible = False

    def resume(self) -> None:
        """Run for election again: there is no other candidate."""
        self._eligible = True
        self.run()

    def release(self) -> None:
        """Resign and delete /controller, if this broker is controller, so that another broker is elected."""
        if self._lease.held:
            self._lease.release()
        self.resign()

    def close(self) -> None:
        """Close all connections and resign."""
        self._watch(None)
        self.resign()

    def _start_term(self) -> None:
        self._watch(None)
        if self.elected is not None:
            self.elected.close()
        self.elected = Elected(
            self._config,
            self._tree,
            self._lease,
            self._controller_requests,
            self._peer_pool,
            self._setting,
            self.resign,
            self._on_unclean,
        )

    def _watch_holder(self) -> None:
        holder = self._lease.holder
        if self.holder_peer is not None and self.holder_peer.broker == holder:
            return
        data = self._tree.find(f"{znodes.BROKER_IDS}/{holder}")
        if data is None:
            self._watch(None)
            return
        try:
            address = zookeeper_session.address_of(znodes.decode_broker(data), self._config)
        except MalformedNode as error:
            log.error("registration of broker %d, the controller, is invalid: %s", holder, error)
            self._watch(None)
            return
        self._watch(self._peer_pool.connect(holder, address, self._holder_changed))

    def _watch(self, peer: Peer | None) -> None:
        if self.holder_peer is not None:
            self.holder_peer.close()
        self.holder_peer = peer

    def _holder_changed(self, broker: int, reachability: str) -> None:
        if reachability == REFUSED and broker == self._lease.holder:
            self._guarded(self._challenge)

    def _challenge(self) -> None:
        self._watch(None)
        self._lease.challenge()
        self.run()
