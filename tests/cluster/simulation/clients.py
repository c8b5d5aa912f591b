"""Producers: they send to the leader, or to the broker that they believe is the leader, with acks=1 or all."""

from __future__ import annotations

from .cluster import Cluster


class Producers:
    """Sends one record now and then, to some partition."""

    def __init__(self, cluster: Cluster, pause: float) -> None:
        self.cluster = cluster
        self.pause = pause
        self.over = False
        self._stubborn = cluster.world.random.choice((0.0, 0.1, 0.3))  # how often they do not look up the leader

    def begin(self) -> None:
        """Send a record, and schedule the next one."""
        world = self.cluster.world
        if not self.over:
            self._send()
            world.after(world.between(0, 2 * self.pause), None, self.begin)

    def _send(self) -> None:
        cluster, random = self.cluster, self.cluster.world.random
        topics = cluster.topics
        if not topics:
            return
        topic = random.choice(topics)
        replicas = cluster.topic(topic).replicas
        index = random.choice(sorted(replicas))
        state = cluster.state(topic, index)
        known = state is not None and state.leader > 0 and not cluster.world.chance(self._stubborn)
        cluster.produce(topic, index, state.leader if known else random.choice(replicas[index]), random.random() < 0.7)
