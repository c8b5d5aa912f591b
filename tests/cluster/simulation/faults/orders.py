"""Faults of the controller's requests: they are lost, late, or the last ones that it sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elections import Elections


class OrderFaults(Elections):
    """Another controller sends the full state."""

    def do_lose_under_way(self) -> None:
        """A connection is lost as soon as it carries a request of the controller."""
        self._while_telling(lambda connection: connection.reset())

    def do_kill_while_telling(self) -> None:
        """Kill the controller as soon as it sends a request, with its other requests unsent."""

        def kill(connection: Any) -> None:
            broker = self.cluster.brokers[connection.brokers[0]]
            if self.world.chance(0.5):
                broker.kill_controller()
            elif broker.up:
                broker.die("is killed while it tells")
                self._soon(1.0, lambda: self._start(broker))

        self._while_telling(kill)

    def _while_telling(self, action: Callable[[Any], object]) -> None:
        until = self.world.now + 0.5

        def look() -> None:
            busy = [one for one in self.cluster.network.busy() if self.world.chance(0.5)]
            for connection in busy:
                action(connection)
            if not busy and self.world.now < until:
                self.world.after(0.002, None, look)

        look()

    def do_lose_orders(self) -> None:
        """A broker receives no decisions while it serves, until another controller sends the full state."""
        chosen = [
            one for one in self.cluster.brokers.values() if one.up and one.controller and one.controller.owner.elected
        ]
        if not chosen:
            return
        teller, cuts = chosen[0], self.cluster.network.cuts
        deaf = self.world.random.choice([number for number in self.cluster.brokers if number != teller.number])
        self.world.say(f"broker {deaf} does not hear what {teller.number} decides")
        cuts.add((teller.number, deaf))
        self._soon(0.2, self.do_elect)

        def end() -> None:
            teller.kill_controller()
            cuts.discard((teller.number, deaf))
            self._soon(0.5, self.do_elect)

        self.world.after(self.world.between(0.2, 0.8), None, end)

    def do_late_orders(self) -> None:
        """Some requests of controllers arrive again, from buffers of lost connections."""
        orders = list(self.cluster.network.orders)
        for number, frame in self.world.random.sample(orders, min(8, len(orders))):
            workers = self.cluster.brokers[number].workers
            self.world.after(
                self.world.between(0, 0.5),
                workers.process,
                lambda one=workers, frame=frame: one.late(frame),  # type: ignore[misc]  # a default in a lambda
            )
