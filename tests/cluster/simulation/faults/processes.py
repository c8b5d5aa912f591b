"""Faults of brokers and of their processes: they die, or are stopped for a while."""

from __future__ import annotations

from typing import Any

from .elections import Elections
from .zookeeper import ZooKeeperFaults


class ProcessFaults(Elections, ZooKeeperFaults):
    """Dead ones are started again."""

    def do_kill(self) -> None:
        """kill -9, and a start soon after, or later."""
        broker = self._any()
        broker.die("is killed")
        self._soon(self.world.random.choice((0.05, 1.0, 5.0)), lambda: self._start(broker))

    def do_vanish(self) -> None:
        """The host vanishes, without closing connections."""
        broker = self._any()
        broker.die("vanishes", vanish=True)
        self._soon(self.world.random.choice((0.5, 5.0)), lambda: self._start(broker))

    def do_bounce(self) -> None:
        """Controlled shutdown, and a start."""
        broker = self._any()
        broker.shut_down()
        self._soon(5.0, lambda: self._start(broker))

    def do_kill_controller_process(self) -> None:
        """Kill one process of a broker."""
        self._any().kill_controller()

    def do_die_at(self) -> None:
        """A process dies, alone or with its broker, between two lasting effects: words of shared memory, records,
        checkpoints, directories, requests to others, writes to ZooKeeper.
        """
        random, broker = self.world.random, self._any()
        process = broker.process(random.choice(("controller", "controller", "workers", "replicator", "janitor")))
        if process is None:
            return
        process.effects_left = random.randint(1, random.choice((4, 20, 100)))
        if random.random() < 0.3:
            process.end = lambda: self._die(broker)

    def _die(self, broker: Any) -> None:
        broker.die("dies in the midst of something")
        self._soon(1.0, lambda: self._start(broker))

    def do_kill_about_to_lead(self) -> None:
        """Kill the process that is about to lead: its epoch is recorded in the log, and no process knows it yet."""
        broker = self._any()
        broker.dies_noting = True
        self._soon(0.3, self.do_elect)
        self.world.after(1.0, None, lambda: setattr(broker, "dies_noting", False))

    def do_stop(self) -> None:
        """SIGSTOP, SIGCONT."""
        broker = self._any()
        seconds = self.world.random.choice((0.3, 1.0, 4.0))
        broker.stop(seconds)
        if seconds > 0.5:
            self._cut_from_zookeeper(broker.number, seconds)

    def do_stop_controller_process(self) -> None:
        """SIGSTOP, SIGCONT of one process: controller requests wait, workers serve, the session may expire."""
        broker = self._any()
        seconds = self.world.random.choice((0.3, 1.0, 1.8, 4.0))
        broker.stop_controller(seconds)
        if seconds > 0.5:
            self._cut_from_zookeeper(broker.number, seconds)

    def do_stop_workers(self) -> None:
        """SIGSTOP, SIGCONT of the workers of the controller's broker, which leads, follows and leads again."""
        chosen = [
            one for one in self.cluster.brokers.values() if one.up and one.controller and one.controller.owner.elected
        ]
        for broker in chosen:
            seconds = self.world.random.choice((0.5, 1.0, 2.0))
            self.world.say(f"broker {broker.number}: its workers are stopped for {seconds} s")
            broker.workers.process.stopped_until = self.world.now + seconds
            for _ in range(4):
                self._soon(seconds, self.do_elect)
