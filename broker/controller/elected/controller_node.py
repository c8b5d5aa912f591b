"""Who is the elected controller: the node `/controller`, its epoch, and the contest for it.

Every member of the cluster that does not stop runs for it when nobody has it. Taking it raises `/controller_epoch` in
the same transaction (Kafka's registerControllerAndIncrementControllerEpoch), and every later write of the controller
checks that epoch's version: a controller that was deposed without knowing it writes nothing any more.

A holder whose broker refuses connections is deposed at once (`challenge`), not when its session ends. If it lives all
the same, it sees the node go, and its writes are refused; whoever was elected instead starts from the tree.
"""

from __future__ import annotations

import logging
import time

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Set,
    Stat,
    Tree,
    TreeError,
    TreeUnavailable,
)
from odradek.cluster.tree.znodes import Malformed

log = logging.getLogger(__name__)

NOBODY = -1
SOMEBODY = -3  # the node is there and makes no sense: it is waited for until it goes
_NEVER = -2  # a version that no node has; -1 would be any


class ControllerLease:
    """The node as this broker sees it. TreeUnavailable from every method: look again when there is a connection."""

    def __init__(self, tree: Tree, broker: int) -> None:
        self._tree = tree
        self._broker = broker
        self.holder = NOBODY
        self.epoch = 0  # of our own time in office
        self.epoch_version = _NEVER  # of the node that says it: what our writes check
        self._seen_version = _NEVER  # of that node when we last saw somebody in office

    @property
    def ours(self) -> bool:
        """Whether this broker is in office, for all it knows."""
        return self.holder == self._broker

    def run(self, wanted: bool = True) -> bool:
        """Take the office if it is vacant and `wanted`, and watch who has it; whether we have just taken it."""
        while True:
            holder = self._look()
            if holder != NOBODY or not wanted:
                self.holder = holder
                return False
            if self._take():
                self.holder = self._broker
                self.watch()
                return self.ours

    def _look(self) -> int:
        self._seen_version = self._epoch_node()[1].version  # first: one that is too old deposes nobody
        stat = self._tree.exists(znodes.CONTROLLER, watch=True)
        data = self._tree.find(znodes.CONTROLLER) if stat is not None else None
        if stat is None or data is None:
            return NOBODY
        if stat.owner == self._tree.session and not self.ours:  # of a process before this one: its time is over
            self._vacate(self._seen_version)
            return NOBODY
        try:
            holder = znodes.decode_controller(data)
            return holder if holder != self._broker or stat.owner == self._tree.session else SOMEBODY
        except Malformed as error:
            log.error("%s: %s", znodes.CONTROLLER, error)
            return SOMEBODY

    def _epoch_node(self) -> tuple[bytes, Stat]:
        try:
            return self._tree.get(znodes.CONTROLLER_EPOCH)
        except NoNode:
            pass
        try:
            self._tree.create(znodes.CONTROLLER_EPOCH, b"0")
        except NodeExists:
            pass
        return self._tree.get(znodes.CONTROLLER_EPOCH)

    def _take(self) -> bool:
        data, stat = self._epoch_node()
        if not data.isdigit():
            raise TreeUnavailable(f"{znodes.CONTROLLER_EPOCH} is {data[:50]!r}: nobody can be elected")
        epoch = int(data) + 1
        node = znodes.encode_controller(self._broker, time.time_ns() // 1_000_000)
        try:
            self._tree.multi(
                [
                    Create(znodes.CONTROLLER, node, ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, str(epoch).encode(), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return False
        self.epoch, self.epoch_version = epoch, stat.version + 1
        log.info("elected as controller, epoch %d", epoch)
        return True

    def watch(self) -> None:
        """Watch the node anew, after a lost connection; one that is not ours any more ends our time."""
        stat = self._tree.exists(znodes.CONTROLLER, watch=True)
        if stat is None or stat.owner != self._tree.session:
            self.resign()

    def resign(self) -> None:
        """Somebody else is, or shall be, in office; another epoch begins with the next election."""
        if self.ours:
            log.info("resigning as controller, epoch %d", self.epoch)
        self.holder, self.epoch_version = NOBODY, _NEVER

    def give_up(self) -> None:
        """Vacate the office that is ours, so that another broker takes it."""
        version = self.epoch_version
        self.resign()
        self._vacate(version)

    def challenge(self) -> None:
        """Depose the holder last seen, unless another has been elected since."""
        log.warning("broker %d, the controller, refuses connections: deleting its /controller node", self.holder)
        self.holder = NOBODY
        self._vacate(self._seen_version)

    def _vacate(self, epoch_version: int) -> None:
        try:
            self._tree.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER)])
        except (NoNode, BadVersion):
            pass
        except TreeError as error:
            log.warning("cannot delete %s: %r", znodes.CONTROLLER, error)
