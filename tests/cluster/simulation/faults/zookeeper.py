"""Faults of ZooKeeper, of the connections to it, and of its nodes."""

from __future__ import annotations

from typing import Any

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Set

from ..cluster import NONSENSE
from .kinds import Kinds


class ZooKeeperFaults(Kinds):
    """All of them are ended by `heal`."""

    def do_nonsense(self) -> None:
        """An administrator makes a topic's node invalid, and repairs it soon after, or later."""
        path = znodes.topic_path(self._topic())
        if path not in self.cluster.zookeeper.nodes or path in self.cluster.spoilt():
            return

        def spoil(tree: Any) -> None:
            data, stat = tree.get(path)
            if data == NONSENSE:  # by another fault that was under way
                return
            self.world.say(f"{path} becomes nonsense")
            try:
                tree.multi([Set(path, NONSENSE, stat.version)])
            finally:  # the write may have succeeded
                self._soon(self.world.random.choice((0.3, 3.0)), lambda: self._unspoil(path))

        self.cluster.tool(spoil)

    def _unspoil(self, path: str) -> None:
        """Repair it, unless it was deleted and perhaps recreated meanwhile; retried until it is done."""

        def mend(tree: Any) -> None:
            data, stat = tree.latest(path)
            if data == NONSENSE:
                self.world.say(f"{path} makes sense again")
                tree.multi([Set(path, self.cluster.sense[path], stat.version)])

        if path in self.cluster.spoilt():
            self.cluster.tool(mend)
            self.world.after(1.0, None, lambda: self._unspoil(path))

    def do_expire(self) -> None:
        """A session ends although its broker lives."""
        session = self._any().session
        if session is not None and self.cluster.zookeeper.up:
            self.cluster.zookeeper.expire(session)

    def do_lose_zookeeper(self) -> None:
        """A connection to it breaks for a moment."""
        session = self._any().session
        if session is not None:
            session.disconnect()

    def do_cut_from_zookeeper(self) -> None:
        """One broker cannot reach it, for longer or shorter than its session lasts."""
        self._cut_from_zookeeper(self._any().number, self.world.between(0, 5))

    def _cut_from_zookeeper(self, broker: int, seconds: float) -> None:
        self.world.say(f"broker {broker} does not reach zookeeper")
        self.cluster.cut_from_zookeeper(broker, True)
        self.world.after(seconds, None, lambda: self.cluster.cut_from_zookeeper(broker, False))

    def do_zookeeper_down(self) -> None:
        """No broker can reach it."""
        self._zookeeper(False)
        self._soon(4.0, lambda: self._zookeeper(True))

    def _zookeeper(self, up: bool) -> None:
        self.world.say(f"zookeeper is {'up' if up else 'down'}")
        self.cluster.zookeeper.up = up
