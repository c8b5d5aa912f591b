"""Reports log directories that fail while this broker is a member to the elected controller, by a node in the tree.

The controller then resends LeaderAndIsr for this broker's replicas. A successor of a dead process therefore creates the
node too: a request that the former process answered but had not published yet would otherwise not be repeated.
"""

from __future__ import annotations

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Create, Tree
from odradek.ipc.shm import Shared


class LogDirEvents:
    """The failures that this process has reported. `successor`: it follows a process that died."""

    def __init__(self, shared: Shared, tree: Tree, broker: int, successor: bool) -> None:
        self._shared = shared
        self._tree = tree
        self._notice = notices.encode_log_dir_event(broker)
        self._announced: set[int] = set()
        self._due = successor

    def announce(self) -> None:
        """Report failed directories if there are new ones. Raises TreeUnavailable: retry."""
        failed = self._announced.union(self._shared.failed_dirs())
        if self._due or failed != self._announced:
            self._tree.multi([Create(znodes.LOG_DIR_EVENT, self._notice, sequence=True)])
            self._announced, self._due = failed, False
