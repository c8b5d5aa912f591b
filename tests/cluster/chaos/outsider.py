"""A client without rights that sends requests continuously: brokers must refuse each one, whatever fault they have."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol.errors import TOPIC_AUTHORIZATION_FAILED
from odradek.security.sasl.client_exchange import AuthenticationError

from ...clients.raw.batches import batch
from ...clients.raw.calls import fetch, produce
from ...harness.wire import Wire
from .security import LOAD, OUTSIDER

if TYPE_CHECKING:
    from .chaos_cluster import ChaosCluster
    from .security import Security

_ANSWER_S = 2
_PAUSE_S = 0.2
_REFUSED = {TOPIC_AUTHORIZATION_FAILED}


class Outsider:
    """A thread. `problems` lists requests that were not refused, `refusals` counts the others."""

    def __init__(self, chaos_cluster: ChaosCluster, security: Security, topic: str, partitions: int) -> None:
        self.problems: list[str] = []
        self.refusals = 0
        self._cluster, self._security = chaos_cluster, security
        self._topic, self._partitions = topic, partitions
        self._rng = random.Random(0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop; at least one request must have been refused by then."""
        self._stop.set()
        self._thread.join(60)
        if not self.refusals:
            self.problems.append(
                "outsider: no broker received a request, so the run does not show that brokers refuse it"
            )

    def _run(self) -> None:
        attempts = (self._without_rights, self._without_a_name, self._with_a_wrong_password)
        while not self._stop.wait(_PAUSE_S):
            number = self._rng.choice(self._cluster.ids)
            try:
                self._rng.choice(attempts)(number)
            except (OSError, EOFError):  # the broker is away
                continue
            except Exception as error:
                self.problems.append(f"outsider: broker {number}: {time.strftime('%X')} {error!r}")

    def _without_rights(self, number: int) -> None:
        """Send requests as a known user without ACLs."""
        with self._security.wire(self._cluster.broker(number), _ANSWER_S, OUTSIDER) as wire:
            self._attempt(number, wire)

    def _without_a_name(self, number: int) -> None:
        """Send requests on the listener without authentication."""
        with Wire(self._cluster.broker(number).bootstrap, _ANSWER_S) as wire:
            self._attempt(number, wire)

    def _with_a_wrong_password(self, number: int) -> None:
        try:
            self._security.wire(self._cluster.broker(number), _ANSWER_S, LOAD, "guess").close()
        except AuthenticationError:
            self.refusals += 1
        else:
            self.problems.append(f"outsider: broker {number} accepted a wrong password")

    def _attempt(self, number: int, wire: Wire) -> None:
        partition = self._rng.randrange(self._partitions)
        attempts: dict[str, Callable[[], int]] = {
            "Produce": lambda: produce(wire, self._topic, batch([b"stranger"]), partition=partition).error_code,
            "Fetch": lambda: fetch(wire, self._topic, 0, partition=partition, wait_ms=0).error_code,
            "Metadata": lambda: wire.metadata(self._topic).topics[0].error_code,
        }
        for name, attempt in attempts.items():
            code = attempt()
            if code in _REFUSED:
                self.refusals += 1
            else:
                self.problems.append(
                    f"outsider: {time.strftime('%X')} broker {number} answered {name} with error code {code}, "
                    f"not {TOPIC_AUTHORIZATION_FAILED}"
                )
