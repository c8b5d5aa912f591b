"""Faults between brokers: connections are lost or refused, messages are lost or late."""

from __future__ import annotations

from .elections import Elections
from .zookeeper import ZooKeeperFaults


class ConnectionFaults(Elections, ZooKeeperFaults):
    """All of them end, or are ended by `heal`."""

    def do_refuse(self) -> None:
        """A false suspicion: a live broker loses its connections and refuses new ones."""
        broker, network = self._any(), self.cluster.network
        seconds = self.world.random.choice((0.05, 0.3, 2.0))
        self.world.say(f"broker {broker.number} refuses connections for {seconds} s, and lives")
        network.refusing[broker.number] = self.world.now + seconds
        for connection in network.of(broker.number):
            if connection.brokers[1] == broker.number and self.world.chance(0.8):
                connection.reset()

    def do_lose_connections(self) -> None:
        """A broker loses its connections for a moment."""
        broker = self._any().number
        self.world.say(f"broker {broker} loses connections")
        for connection in self.cluster.network.of(broker):
            if self.world.chance(0.5):
                connection.reset()

    def do_cut_link(self) -> None:
        """Two brokers cannot reach each other."""
        one, other = self.world.random.sample(list(self.cluster.brokers), 2)
        self._cut([(one, other), (other, one)])

    def do_cut_one_way(self) -> None:
        """A broker's messages do not reach another one, whose messages reach it."""
        one, other = self.world.random.sample(list(self.cluster.brokers), 2)
        self._cut([(one, other)])

    def do_isolate(self) -> None:
        """A broker reaches none of the others, and may or may not reach ZooKeeper."""
        one = self._any().number
        others = [other for other in self.cluster.brokers if other != one]
        self._cut([*((one, other) for other in others), *((other, one) for other in others)])
        if self.world.chance(0.5):
            self._cut_from_zookeeper(one, self.world.between(0, 5))

    def _cut(self, pairs: list[tuple[int, int]]) -> None:
        self.world.say(f"nothing comes through from one to the other of {pairs}")
        self.cluster.network.cuts.update(pairs)
        self._soon(5.0, lambda: self.cluster.network.cuts.difference_update(pairs))

    def do_fall_behind(self) -> None:
        """A follower is cut off until it is in no ISR, and reconnected when other leaders are elected, which do not
        know yet what was committed.
        """
        one, network = self._any().number, self.cluster.network
        pairs = {pair for other in self.cluster.brokers if other != one for pair in ((one, other), (other, one))}
        self.world.say(f"broker {one} falls behind")
        network.cuts.update(pairs)

        def back() -> None:
            network.cuts.difference_update(pairs)
            network.slow = self.world.random.choice((0.0, 0.1, 0.3))
            for _ in range(3):
                self._soon(0.6, self.do_elect)
            self._soon(1.0, lambda: setattr(network, "slow", 0.0))

        self.world.after(self.world.between(1.6, 3.0), None, back)

    def do_slow(self) -> None:
        """Messages are slow."""
        network = self.cluster.network
        network.slow = self.world.random.choice((0.01, 0.1, 0.6))
        self._soon(3.0, lambda: setattr(network, "slow", 0.0))
