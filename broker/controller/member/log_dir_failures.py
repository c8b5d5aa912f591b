"""Log directories that fail while this broker is a member: its cluster's controller is told, by a node in the tree.

It answers by telling this broker again what it replicates. So a process that follows one that died makes the node too:
an order that the former one answered, and had not published yet, would be repeated by nobody.
"""

from __future__ import annotations

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Create, Tree
from odradek.ipc.shm import Shared


class FailedDirs:
    """What this process has told of. `successor`: it follows one that died."""

    def __init__(self, shared: Shared, tree: Tree, broker: int, successor: bool) -> None:
        self._shared = shared
        self._tree = tree
        self._notice = notices.encode_log_dir_event(broker)
        self._told: set[int] = set()
        self._due = successor

    def tell(self) -> None:
        """If there are others than before. Raises TreeUnavailable: try again."""
        failed = self._told.union(self._shared.failed_dirs())
        if self._due or failed != self._told:
            self._tree.multi([Create(znodes.LOG_DIR_EVENT, self._notice, sequence=True)])
            self._told, self._due = failed, False
