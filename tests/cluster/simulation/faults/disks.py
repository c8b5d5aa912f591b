"""Faults of disks: they fail, they are other ones, they lack what was not flushed."""

from __future__ import annotations

from typing import Any

from .kinds import Kinds

_BOOT_S = 1.2  # more than a second, for which its last fetch may let a follower join an ISR (broker.isr)


class DiskFaults(Kinds):
    """A broken disk is mended at some later start of its broker."""

    def do_wipe(self) -> None:
        """A start with an empty disk, where all is well and nothing else goes wrong."""
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
        """One host is gone, or some at once, and ends of logs that were in memory only. It takes a while to boot."""
        random, brokers = self.world.random, list(self.cluster.brokers.values())
        for broker in random.sample(brokers, random.choice((1, 1, 2, len(brokers)))):
            if broker.up:
                broker.die("loses power", vanish=True)
                self.cluster.invariants.lost_power(broker.number, broker.disk.lose_unsynced(random.randint))
                broker.boots_at = self.world.now + _BOOT_S
                self._soon(5.0, lambda one=broker: self._start(one))

    def do_fail_dir(self) -> None:
        """One or two log directories of a broker fail: somebody notices, or who writes there next. A later start may
        find them mended, with what was in them, or empty where no ISR counts on it.
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
