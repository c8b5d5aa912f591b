"""What administrators do to topics during the faults: create, move, alter and delete them."""

from __future__ import annotations

from typing import Any

from .kinds import Kinds


class Administrators(Kinds):
    """They use tools of their own, which may find ZooKeeper away."""

    def do_create(self) -> None:
        """Create a topic, perhaps with the name of a former one."""
        if len(self.cluster.topics) < 4:
            self.create(self.world.random.choice("abcd"))

    def create(self, name: str) -> None:
        """A topic of one or two partitions."""
        self.cluster.create_topic(name, self._assignment(self.world.random.randint(1, 2)))

    def do_remake(self) -> None:
        """Recreate a topic by hand, without the controller, while there are no other faults.

        Versions of nodes start again: a write with the state of the former topic may succeed on the new one.
        """
        self._calm_until = self.world.now + 4.0
        self.world.after(2.0, None, self._remake)

    def _remake(self) -> None:
        if self.over or not self.cluster.topics or not self._well():
            return
        name = self.world.random.choice(self.cluster.topics)
        if all(self.cluster.state(name, index) is not None for index in self.cluster.topic(name).replicas):
            self.cluster.remake_topic(name, self._assignment(self.world.random.randint(1, 2)))

    def do_move(self) -> None:
        """Move a topic's partitions to other brokers."""
        if self.cluster.topics:
            name = self.world.random.choice(self.cluster.topics)
            self.cluster.move(name, self._assignment(len(self.cluster.topic(name).replicas)))

    def do_delete(self) -> None:
        """Delete a topic, and perhaps create it again."""
        topics = self.cluster.topics
        if len(topics) > 1:
            name = self.world.random.choice(topics)
            self.cluster.delete_topic(name)
            if self.world.chance(0.5):
                self._soon(2.0, lambda: self.create(name))

    def do_delete_records(self) -> None:
        """Delete some or all committed records, at some broker."""
        random, cluster = self.world.random, self.cluster
        for name in cluster.topics:
            for index, replicas in cluster.topic(name).replicas.items():
                state = cluster.state(name, index)
                to = state.leader if state is not None and random.random() < 0.7 else random.choice(replicas)
                if to in cluster.brokers:
                    cluster.delete_records(name, index, to, random.choice((-1, -1, random.randint(0, 200))))

    def do_min_isr(self) -> None:
        """Change min.insync.replicas of a topic."""
        name = self._topic()
        if name:
            self.cluster.configure(name, "min.insync.replicas", str(self.world.random.randint(1, 3)))

    def do_fetchers(self) -> None:
        """Change num.replica.fetchers, most often during a truncation outside the loop: replicas are then fetched over
        other connections, in the same epochs.
        """
        random, until = self.world.random, self.world.now + self.world.random.choice((0.0, 2.0, 2.0))

        def look() -> None:
            if self.world.now >= until or any(
                one.up and one.replicator.cutting for one in self.cluster.brokers.values()
            ):
                self.cluster.configure_brokers("num.replica.fetchers", str(random.randint(1, 4)))
            else:
                self.world.after(0.01, None, look)

        look()

    def do_add_partitions(self) -> None:
        """Add a partition to a topic."""
        name = self._topic()
        if name and len(self.cluster.topic(name).replicas) < 4:
            last = len(self.cluster.topic(name).replicas)
            self.cluster.add_partitions(name, {last: self._assignment(1)[0]})

    def do_move_back(self) -> None:
        """Move a topic's replicas off a broker, which may be away, and back, perhaps after its disk was lost."""
        name, broker = self._topic(), self._any()
        if not name:
            return
        before = dict(self.cluster.topic(name).replicas)
        others = [number for number in self.cluster.brokers if number != broker.number]
        without = {
            index: [one for one in some if one != broker.number] or [self.world.random.choice(others)]
            for index, some in before.items()
        }
        if self.world.chance(0.6):
            broker.die("is killed while its replicas move")
            self._soon(4.0, lambda: self._return(broker))
        self.cluster.move(name, without)

        def back() -> None:
            if name in self.cluster.topics and len(self.cluster.topic(name).replicas) == len(before):
                self.cluster.move(name, before)

        self._soon(4.0, back)

    def _return(self, broker: Any) -> None:
        """Start it with its disk, or with an empty one, if no ISR depends on it."""
        counts = any(broker.number in state.isr for state in self.cluster.invariants.states.values())
        if not broker.up and not counts and self.world.chance(0.5):
            self.world.say(f"broker {broker.number} has lost its disk")
            broker.disk.wipe()
        self._start(broker)

    def do_remake_while_away(self) -> None:
        """Delete a topic and create it again under its name; a broker is away for some of that."""
        name, broker = self._topic(), self._any()
        if name:
            broker.die("is killed while a topic goes")
            self._soon(1.0, lambda: self.cluster.delete_topic(name))
            self._soon(4.0, lambda: self._start(broker))
            for _ in range(3):
                self._soon(5.0, lambda: self.create(name))
