"""Which kinds of faults a history has, and when the next one comes."""

from __future__ import annotations

from typing import Any

from ..cluster import Cluster
from .administrators import Administrators
from .connections import ConnectionFaults
from .disks import DiskFaults
from .kinds import Fault
from .orders import OrderFaults
from .processes import ProcessFaults


class Faults(Administrators, DiskFaults, OrderFaults, ConnectionFaults, ProcessFaults):
    """A random kind from a list now and then, until `end`. Faults end by themselves, or by `heal`."""

    def __init__(self, cluster: Cluster, only: str = "", **_: Any) -> None:
        """`only`: the names of the kinds, with commas, or all; without it some are chosen, but no invalid nodes."""
        super().__init__(cluster)
        named = self._kinds()
        if only in ("", "all"):
            named = {name: kind for name, kind in named.items() if only or name != "nonsense"}
        else:
            named = {name: named[name] for name in only.split(",")}
        kinds = list(named.items())
        count = len(kinds) if only else self.world.random.randint(2, len(kinds))
        self.kinds = dict(self.world.random.sample(kinds, count))
        self.pace = self.world.random.choice((0.15, 0.4, 1.0))

    def _kinds(self) -> dict[str, Fault]:
        names = [name for name in dir(self) if name.startswith("do_")]
        return {name[3:]: getattr(self, name) for name in names}

    def begin(self) -> None:
        """The first fault comes soon."""
        self.world.say(f"faults: {', '.join(self.kinds)}; one in {self.pace} s")
        self.world.after(self.pace, None, self._next)

    def _next(self) -> None:
        if not self.over:
            if not self.cluster.invariants.exempt and self._calm_until <= self.world.now:
                self.world.random.choice(list(self.kinds.values()))()
            self.world.after(self.world.between(0, 2 * self.pace), None, self._next)

    def heal(self) -> None:
        """End all faults; start the brokers that are down."""
        self.over = True
        self.world.say("-- everything is mended")
        cluster = self.cluster
        self._zookeeper(True)
        cluster.network.cuts.clear()
        cluster.network.refusing.clear()
        cluster.network.slow = 0.0
        for path in cluster.spoilt():
            self._unspoil(path)
        for broker in cluster.brokers.values():
            cluster.cut_from_zookeeper(broker.number, False)
            self._start(broker)
            for log_dir in broker.disk.log_dirs:  # of whom no more writes there the janitor notices, now or later
                if log_dir.broken:
                    broker.shared.fail_dir(log_dir.number)

    def mend(self) -> None:
        """Restart the brokers whose log directories have failed, with other disks and the same data."""
        for broker in self.cluster.brokers.values():
            if any(log_dir.broken for log_dir in broker.disk.log_dirs):
                broker.die("is killed, and its disks are mended")
                broker.disk.mend()
            self._start(broker)
