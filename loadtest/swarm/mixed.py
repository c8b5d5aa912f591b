"""A service between two topics: it reads events with its group and writes results."""

from __future__ import annotations

from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.options import EVENTS, MIXED, RESULTS


class Mixed(KafkaUser):
    """Writes one result for each handful of events that it reads together."""

    weight = 1

    def on_start(self) -> None:
        """Connect both ways."""
        self.open_sender()
        self.open_reader(MIXED, EVENTS)

    @task
    def serve(self) -> None:
        """Read the available records, write one result."""
        if self.read():
            self.send(RESULTS)
