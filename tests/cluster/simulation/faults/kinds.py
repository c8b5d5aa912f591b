"""Common to all kinds of faults: the targets they choose, and when they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..cluster import Cluster

Fault = Callable[[], None]


class Kinds:
    """Methods `do_…` of subclasses are the kinds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.over = False
        self._calm_until = 0.0

    def _any(self) -> Any:
        """A random broker, the controller more often."""
        brokers = list(self.cluster.brokers.values())
        chosen = [one for one in brokers if one.up and one.controller and one.controller.owner.elected]
        return self.world.random.choice(chosen if chosen and self.world.chance(0.3) else brokers)

    def _soon(self, longest: float, action: Fault) -> None:
        self.world.after(self.world.between(0, longest), None, action)

    def _start(self, broker: Any) -> None:
        if self.world.now < broker.boots_at or (broker.up and broker.shared.draining):
            self.world.after(0.5, None, lambda: self._start(broker))
        elif not broker.up:
            broker.start()

    def _well(self) -> bool:
        """Whether there is no other fault now."""
        cluster = self.cluster
        wrong = cluster.network.cuts or cluster.cut_off or cluster.going() or not cluster.led()
        return cluster.zookeeper.up and not wrong and all(
            one.up and one.registered and one.controller is not None and one.loop.stopped_until < self.world.now
            and one.number not in cluster.suspected() and not one.shared.draining
            and one.session is not None and one.session.connected
            for one in cluster.brokers.values()
        )  # fmt: skip

    def _as_controller(self, action: Callable[[Any], object]) -> None:
        for broker in self.cluster.brokers.values():
            if broker.up and broker.controller is not None and broker.controller.owner.elected is not None:
                self.world.after(0.0, broker.loop, lambda one=broker.controller: self._attempt(one, action))  # type: ignore[misc]  # a default in a lambda

    def _attempt(self, controller: Any, action: Callable[[Any], object]) -> None:
        elected = controller.owner.elected
        if elected is not None and not elected._stale:
            elected.attempt(lambda: action(elected))
            controller.loop.go_on()

    def _topic(self) -> str:
        """A random topic; "" when there is none."""
        topics = self.cluster.topics
        return self.world.random.choice(topics) if topics else ""

    def _assignment(self, partitions: int) -> dict[int, list[int]]:
        brokers = list(self.cluster.brokers)
        factor = self.world.random.choice((1, 2, 3, 3, 3))
        return {index: self.world.random.sample(brokers, min(factor, len(brokers))) for index in range(partitions)}
