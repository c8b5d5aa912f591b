"""The writes of an elected controller: each checks the controller epoch and the version of the node it changes.

This fences both a superseded controller and one with stale state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from odradek.cluster.decisions.controller_state import ControllerContext, StateChange
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import (
    BadVersion,
    Check,
    Create,
    NoNode,
    NotDone,
    Operation,
    Set,
    Tree,
    TreeError,
    TreeUnavailable,
)
from odradek.cluster.tree.znodes import Partition

log = logging.getLogger(__name__)

_TOGETHER = 1000  # writes in flight


class FencedWrites:
    """One controller term, bound to a version of /controller_epoch; `on_fenced()` is called when the term has ended,
    `on_unclean()` when a leader that was not in sync is elected.
    """

    def __init__(
        self, tree: Tree, epoch_version: int, on_fenced: Callable[[], None],
        on_unclean: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.epoch_check: Operation = Check(znodes.CONTROLLER_EPOCH, epoch_version)  # every transaction begins with it
        self._tree = tree
        self._on_fenced = on_fenced
        self._on_unclean = on_unclean

    def write(
        self, context: ControllerContext, changes: Sequence[StateChange]
    ) -> tuple[list[Partition], list[Partition]]:
        """(written, refused because the node has another version). TreeUnavailable."""
        self._make_parents(changes)
        done: list[Partition] = []
        refused: list[Partition] = []
        for start in range(0, len(changes), _TOGETHER):
            some = changes[start : start + _TOGETHER]
            for change, result in zip(some, self._tree.each([self._operations(one) for one in some]), strict=True):
                if isinstance(result, TreeError):
                    self.check_refusal(result)
                    refused.append(change.partition)
                else:
                    version = 0 if change.before is None else getattr(result[-1], "version", 0)
                    context.written(change, version)
                    done.append(change.partition)
                    if change.is_unclean:
                        self._unclean(change)
        return done, refused

    def _unclean(self, change: StateChange) -> None:
        assert change.before is not None
        log.warning(
            "%s-%d: elected broker %d, which is not in the ISR %s: records that it lacks are lost"
            " (unclean.leader.election.enable, or leader-election --election-type unclean)",
            *change.partition, change.after.leader, list(change.before.isr),
        )  # fmt: skip
        self._on_unclean()

    def put(self, path: str, data: bytes) -> None:
        """Set a node's data, creating the node if missing. TreeUnavailable."""
        try:
            self._multi(Set(path, data, -1))
        except NoNode:
            self._multi(Create(path, data))

    def _multi(self, operation: Operation) -> None:
        try:
            self._tree.multi([self.epoch_check, operation])
        except TreeError as error:
            self.check_refusal(error)
            raise

    def _operations(self, change: StateChange) -> list[Operation]:
        path, data = znodes.state_path(*change.partition), znodes.encode_state(change.after.state)
        if change.before is None:
            return [self.epoch_check, Create(znodes.partition_path(*change.partition)), Create(path, data)]
        return [self.epoch_check, Set(path, data, change.before.version)]

    def _make_parents(self, changes: Sequence[StateChange]) -> None:
        names = {change.partition[0] for change in changes if change.before is None}
        self._tree.each([[Create(znodes.partitions_path(name))] for name in sorted(names)])

    def check_refusal(self, error: TreeError) -> None:
        """Raise TreeUnavailable for an unavailable tree or a superseded term; return for a stale version."""
        if isinstance(error, TreeUnavailable):
            raise error
        if isinstance(error, (BadVersion, NoNode)) and str(error) == znodes.CONTROLLER_EPOCH:
            log.warning("controller epoch superseded: resigning")
            self._on_fenced()
            raise NotDone(str(error)) from error
