"""Records which broker epochs are settled (cluster.decisions.broker_epochs), for the next controller.

Layout    : `/odradek/lives`, JSON: by broker the czxid of its settled registration: no write about a former one can add
            the broker to an ISR any more. Kafka's controllers neither read nor write it.
Owner     : the cluster; the elected controller writes it, fenced by its controller epoch.
Crash rule: an epoch is recorded after all state changes that the broker's start causes: a controller that dies before
            leaves it unsettled. The next controller then removes the broker from ISRs in which it is a follower: a
            write about a former registration may have added it while there was no controller. A broker that has really
            caught up rejoins. A broker that started under a Kafka controller is treated the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from odradek.broker.controller.elected.fenced_writes import FencedWrites
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import MalformedNode

log = logging.getLogger(__name__)


class SettledEpochs:
    """One controller term. Methods raise TreeUnavailable."""

    def __init__(self, tree: Tree, fenced: FencedWrites) -> None:
        self._tree = tree
        self._fenced = fenced
        self._known: dict[int, int] | None = None  # None: no controller has recorded any yet

    def read(self) -> None:
        """Read the node. A malformed one counts as missing and is rewritten."""
        data = self._tree.find(znodes.SETTLED_EPOCHS)
        try:
            self._known = None if data is None else znodes.decode_settled_epochs(data)
        except MalformedNode as error:
            log.error("%s is invalid, rewriting it: %s", znodes.SETTLED_EPOCHS, error)
            self._known = None

    def unsettled(self, live: Mapping[int, int]) -> set[int]:
        """The live brokers (with their epochs) whose registration no controller has settled.

        Before the first record all count as settled: otherwise every ISR would shrink to its leader.
        """
        known = live if self._known is None else self._known
        return {broker for broker, epoch in live.items() if known.get(broker) != epoch}

    def record(self, live: Mapping[int, int], registered: Collection[int]) -> None:
        """Record these epochs as settled; other records stay as long as their brokers are registered."""
        known = {broker: epoch for broker, epoch in ((self._known or {}) | dict(live)).items() if broker in registered}
        if known != self._known:
            self._fenced.put(znodes.SETTLED_EPOCHS, znodes.encode_settled_epochs(known))
            self._known = known
