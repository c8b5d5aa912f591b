"""Elections on request of administrators, clean and unclean."""

from __future__ import annotations

from typing import Any

from .kinds import Fault, Kinds


class Elections(Kinds):
    """The controller carries them out, if there is one."""

    def do_prefer(self) -> None:
        """Elect the preferred leaders."""

        def prefer(elected: Any) -> None:
            self.world.say("preferred leaders are elected")
            elected.elections.elect(list(elected.context.partitions()), unclean=False)

        self._as_controller(prefer)

    def do_elect(self) -> None:
        """Elect other in-sync replicas, as after a new order of the assignment and a preferred election."""
        random = self.world.random

        def elect(elected: Any) -> None:
            state = elected.context
            for partition in state.partitions():
                now = state.partition_states.get(partition)
                able = sorted(state.online_replicas(partition) & set(now.isr)) if now is not None else []
                if len(able) > 1 and random.random() < 0.7:
                    leader = random.choice(able)
                    elected.settle(lambda one=partition, leader=leader: self._led_by(state, one, leader))

        self._as_controller(elect)

    @staticmethod
    def _led_by(state: Any, partition: Any, leader: int) -> list[Any]:
        now = state.partition_states.get(partition)
        if now is None or leader not in now.isr or leader not in state.online_replicas(partition):
            return []
        change = state.change(partition, leader, now.isr)
        return [] if change is None else [change]

    def do_elect_unclean(self) -> None:
        """An unclean election loses what only unavailable replicas have; most often without others in sync."""
        if self.world.chance(0.7):
            self._strand(lambda: self._as_controller(self._uncleanly))
        else:
            self._as_controller(self._uncleanly)

    def _uncleanly(self, elected: Any) -> None:
        partitions = list(elected.context.partitions())
        self.cluster.invariants.allowed.update(topic for topic, _ in partitions)
        self.world.say("leaders are elected, clean or not")
        elected.elections.elect(partitions, unclean=True)

    def do_allow_unclean(self) -> None:
        """Allow or forbid unclean elections of a topic; most often where an election waits for that."""
        name = self._topic()
        if name:
            self.cluster.invariants.allowed.add(name)
            value = self.world.random.choice(("true", "true", "false"))
            allow = lambda: self.cluster.configure(name, "unclean.leader.election.enable", value)  # noqa: E731
            self._strand(allow) if self.world.chance(0.5) else allow()

    def _strand(self, then: Fault) -> None:
        """A leader is cut off from its followers until it is alone in sync, then killed; `then` runs, and it returns.

        No other replica has the records that it has taken meanwhile.
        """
        up = [one for one in self.cluster.brokers.values() if one.up]
        if not up:
            return
        leader = self.world.random.choice(up)
        others = [number for number in self.cluster.brokers if number != leader.number]
        pairs = {(leader.number, other) for other in self.world.random.sample(others, len(others) - 1) or others}
        self.world.say(f"nothing comes through from one to the other of {pairs}")
        self.cluster.network.cuts.update(pairs)

        def end() -> None:
            leader.die("is killed, alone in sync")
            self.cluster.network.cuts.difference_update(pairs)
            self._soon(2.5, then)
            self._soon(4.0, lambda: self._start(leader))

        self.world.after(self.world.between(1.0, 2.5), None, end)
