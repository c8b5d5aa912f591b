"""Faults of disks: they fail, are replaced, or lack data that was not flushed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Operation, Set

from .kinds import Kinds

# More than a second, in which a follower's last fetch may let it join an ISR (broker.controller.member.isr_keeper).
_BOOT_S = 1.2


class DiskFaults(Kinds):
    """A failed disk is repaired at some later start of its broker."""

    def do_wipe(self) -> None:
        """A start with an empty disk, while there are no other faults."""
        self._calm_until = self.world.now + 5.0
        self.world.after(4.9, None, self._wipe)

    def _wipe(self) -> None:
        broker = self._any()
        if self._well() and self._elsewhere(broker.number):
            broker.die("is killed and loses its disk")
            broker.disk.wipe()
            self.cluster.invariants.wiped(broker.number)
            self._soon(self.world.random.choice((0.05, 3.0)), lambda: self._start(broker))

    def _elsewhere(self, broker: int) -> bool:
        cluster = self.cluster
        for topic in cluster.topics:
            for index, replicas in cluster.topic(topic).replicas.items():
                if broker not in replicas:
                    continue
                state = cluster.state(topic, index)
                if state is None or set(state.isr) != set(replicas) or len(replicas) == 1:
                    return False
                if any(cluster.registered_since(topic, index, one) for one in replicas):
                    return False
        return True

    def do_lose_power(self) -> None:
        """One host or several lose power, and the ends of logs that were in memory only. Booting takes a while."""
        random, brokers = self.world.random, list(self.cluster.brokers.values())
        for broker in random.sample(brokers, random.choice((1, 1, 2, len(brokers)))):
            if broker.up:
                self._lose_power(broker, _BOOT_S)
                self._soon(5.0, lambda one=broker: self._start(one))  # type: ignore[misc]  # a default in a lambda

    def _lose_power(self, broker: Any, boot_s: float) -> None:
        broker.die("loses power", vanish=True)
        self.cluster.invariants.lost_power(broker.number, broker.disk.lose_unsynced(self.world.random.randint))
        broker.boots_at = self.world.now + boot_s

    def do_lose_power_for_a_moment(self) -> None:
        """A host is back before its failure is detected; its session was lost before, or is about to end."""
        broker = self._any()
        if broker.up:
            self._lose_power_for_a_moment(broker, self.world.chance(0.5))

    def _lose_power_for_a_moment(self, broker: Any, forgotten: bool) -> None:
        """`forgotten`: whether ZooKeeper has dropped its session."""
        self._lose_power(broker, 0.01)
        if forgotten and broker.session is not None:
            self.cluster.zookeeper.expire(broker.session)
        self.world.after(self.world.between(0.01, 0.1), None, lambda: self._start(broker))

    def do_lose_power_joining(self) -> None:
        """A follower loses power while a write that adds it to an ISR is in flight, and is back soon, but does not
        reach its leader. The leader or the controller may die then.
        """
        self.cluster.zookeeper.under_way = self._under_way

    def _under_way(self, session: Any, operations: Sequence[Operation]) -> None:
        follower = self._joining(operations[-1])
        if follower is None or self.cluster.invariants.exempt or self.over:
            return
        self.cluster.zookeeper.under_way = lambda *_: None
        self._lose_power_for_a_moment(follower, True)
        ways = {(session.broker, follower.number), (follower.number, session.broker)}
        self.cluster.network.cuts.update(ways)
        self.world.after(2.0, None, lambda: self.cluster.network.cuts.difference_update(ways))
        if self.world.chance(0.5):
            dying = self.cluster.brokers[session.broker] if self.world.chance(0.5) else self._any()
            self._soon(2.0, lambda: self._killed(dying))
        self._wait_until_registered(follower, self.world.random.choice((0.01, 3.0, 3.0)))

    def _joining(self, operation: Operation) -> Any:
        """A live broker that the write of a state node adds to the ISR."""
        former = self.cluster.invariants.states.get(operation.path)
        if former is None or not isinstance(operation, Set):
            return None
        joining = sorted(set(znodes.decode_state(operation.data).isr) - set(former.isr))
        return next((self.cluster.brokers[one] for one in joining if self.cluster.brokers[one].up), None)

    def _wait_until_registered(self, broker: Any, most: float) -> None:
        for _ in range(int(most / 0.05)):  # where many processes wait already, no time passes
            if not broker.registered:
                self.world.elapse(0.05)
        self.world.elapse(self.world.random.choice((0.0, 0.01, 0.1)))

    def _killed(self, broker: Any) -> None:
        broker.die("is killed")
        self._soon(3.0, lambda: self._start(broker))

    def do_fail_dir(self) -> None:
        """One or two log directories of a broker fail: a check or the next write there detects it. A later start may
        find them repaired, with their contents, or empty where no ISR depends on them.
        """
        random, broker = self.world.random, self._any()
        if any(log_dir.broken for log_dir in broker.disk.log_dirs):
            if random.random() < 0.6:
                broker.die("is killed, and its disks are mended")
                self._mend(broker)
                self._soon(2.0, lambda: self._start(broker))
            return
        for log_dir in random.sample(broker.disk.log_dirs, random.choice((1, 1, 2, 3))):
            self.world.say(f"broker {broker.number}: {log_dir} fails")
            log_dir.broken = True
            if broker.up and random.random() < 0.5:
                broker.shared.fail_dir(log_dir.number)

    def _mend(self, broker: Any) -> None:
        states, keys = self.cluster.invariants.states, self.cluster.invariants.keys
        counted = {keys[path] for path, state in states.items() if broker.number in state.isr}
        for log_dir in broker.disk.log_dirs:
            spare = all(one.key not in counted for one in log_dir.directories.values())
            if log_dir.broken and spare and self.world.chance(0.3):
                broker.disk.wipe_dir(log_dir)
        broker.disk.mend()
