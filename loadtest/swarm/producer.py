"""A service that writes events as they happen: idempotent, a few a second."""

from __future__ import annotations

import random

import gevent
from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.options import EVENTS

MEAN_SECONDS = 0.05


class Producer(KafkaUser):
    """About 20 records a second, at times of their own (exponential gaps), in order under each key."""

    weight = 4

    def on_start(self) -> None:
        """Connect."""
        self.open_sender()

    @task
    def event(self) -> None:
        """Send one, then wait for the next to happen."""
        self.send(EVENTS)
        gevent.sleep(random.expovariate(1 / MEAN_SECONDS))
