"""The election of the controller: the node `/controller` and its epoch.

Every member of the cluster that is not stopping tries to create the node when there is none. Creating it raises
`/controller_epoch` in the same transaction (Kafka's registerControllerAndIncrementControllerEpoch), and every later
write of the controller checks that epoch's version: a superseded controller is fenced even if it does not know yet.

A controller whose broker refuses connections loses the node at once (`challenge`), not when its session ends. If it is
still alive, it sees the node's deletion and its writes are refused; its successor starts from the tree.
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
from odradek.cluster.tree.znodes import MalformedNode

log = logging.getLogger(__name__)

NOBODY = -1
SOMEBODY = -3  # the node is malformed: wait until it is deleted
_NEVER = -2  # a version that no node has; -1 would be any


class ControllerLease:
    """The node as this broker sees it. Every method may raise TreeUnavailable: retry once connected."""

    def __init__(self, tree: Tree, broker: int) -> None:
        self._tree = tree
        self._broker = broker
        self.holder = NOBODY
        self.epoch = 0  # of our own term
        self.epoch_version = _NEVER  # of /controller_epoch: our writes check it
        self._seen_version = _NEVER  # of /controller_epoch when we last saw a controller

    @property
    def held(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.holder == self._broker

    def run(self, wanted: bool = True) -> bool:
        """Become controller if there is none and `wanted`, and watch the node; whether this call was elected."""
        while True:
            holder = self._read_holder()
            if holder != NOBODY or not wanted:
                self.holder = holder
                return False
            if self._acquire():
                self.holder = self._broker
                self.watch()
                return self.held

    def _read_holder(self) -> int:
        self._seen_version = self._epoch_node()[1].version  # first: a version that is too old deletes no node
        stat = self._tree.exists(znodes.CONTROLLER, watch=True)
        data = self._tree.find(znodes.CONTROLLER) if stat is not None else None
        if stat is None or data is None:
            return NOBODY
        if stat.owner == self._tree.session and not self.held:  # of a former process: its term is over
            self._delete_node(self._seen_version)
            return NOBODY
        try:
            holder = znodes.decode_controller(data)
            return holder if holder != self._broker or stat.owner == self._tree.session else SOMEBODY
        except MalformedNode as error:
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

    def _acquire(self) -> bool:
        data, stat = self._epoch_node()
        if not data.isdigit():
            raise TreeUnavailable(f"{znodes.CONTROLLER_EPOCH} is {data[:50]!r}: no controller can be elected")
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
        """Watch the node again after a lost connection; resign if it is no longer ours."""
        stat = self._tree.exists(znodes.CONTROLLER, watch=True)
        if stat is None or stat.owner != self._tree.session:
            self.resign()

    def resign(self) -> None:
        """Stop being controller, as another broker is or will be; the next election starts another epoch."""
        if self.held:
            log.info("resigning as controller, epoch %d", self.epoch)
        self.holder, self.epoch_version = NOBODY, _NEVER

    def release(self) -> None:
        """Resign and delete our node, so that another broker is elected."""
        version = self.epoch_version
        self.resign()
        self._delete_node(version)

    def challenge(self) -> None:
        """Delete the node of the controller last seen, unless another has been elected since."""
        log.warning("broker %d, the controller, refuses connections: deleting its /controller node", self.holder)
        self.holder = NOBODY
        self._delete_node(self._seen_version)

    def _delete_node(self, epoch_version: int) -> None:
        try:
            self._tree.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER)])
        except (NoNode, BadVersion):
            pass
        except TreeError as error:
            log.warning("cannot delete %s: %r", znodes.CONTROLLER, error)
