"""Which lives of brokers controllers have settled (cluster.decisions.lives), noted for the controller that comes next.

Layout    : `/odradek/lives`, JSON: by broker the czxid of the registration whose former lives take it into no ISR any
            more. Kafka's controllers neither read nor write it.
Owner     : the cluster; the elected controller writes it, on condition of its epoch.
Crash rule: a life is noted once all is written that its beginning costs, so that a controller that dies before leaves
            it unsettled. The next one then takes it out of ISRs that it follows in, as others stay: it could come into
            them by a write about a former life, which landed when no controller looked. Who has truly caught up since
            comes back. A broker that has started under a controller of Kafka's pays the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from odradek.broker.controller.elected.fenced_writes import Fenced
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import Malformed

log = logging.getLogger(__name__)


class SettledLives:
    """One time in office. Methods raise TreeUnavailable."""

    def __init__(self, tree: Tree, fenced: Fenced) -> None:
        self._tree = tree
        self._fenced = fenced
        self._known: dict[int, int] | None = None  # None: no controller has noted any yet

    def read(self) -> None:
        """What is noted. What makes no sense is nothing, and written again."""
        data = self._tree.find(znodes.LIVES)
        try:
            self._known = None if data is None else znodes.decode_lives(data)
        except Malformed as error:
            log.error("%s is invalid, rewriting it: %s", znodes.LIVES, error)
            self._known = None

    def unsettled(self, live: Mapping[int, int]) -> set[int]:
        """Of brokers that are there, by their epochs, those of whose present lives no controller has seen to all.

        Before the first note nobody knows: all are believed, or each ISR would be left by all but its leader.
        """
        known = live if self._known is None else self._known
        return {broker for broker, epoch in live.items() if known.get(broker) != epoch}

    def note(self, live: Mapping[int, int], registered: Collection[int]) -> None:
        """These lives are settled; what was noted of others stays as long as their brokers are registered."""
        known = {broker: epoch for broker, epoch in ((self._known or {}) | dict(live)).items() if broker in registered}
        if known != self._known:
            self._fenced.put(znodes.LIVES, znodes.encode_lives(known))
            self._known = known
