"""A service that writes events as they happen: idempotent, a few a second."""

from __future__ import annotations

import random

import gevent
from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.options import EVENTS

MEAN_SECONDS = 0.05


class Producer(KafkaUser):
    """About 20 records a second, at random times (exponential gaps), in order under each key."""

    weight = 4

    def on_start(self) -> None:
        """Connect."""
        self.open_sender()

    @task
    def event(self) -> None:
        """Send one record, then wait for the next event."""
        self.send(EVENTS)
        gevent.sleep(random.expovariate(1 / MEAN_SECONDS))
