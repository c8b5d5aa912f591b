"""A job that writes many records at once and then rests: plain acks=1, many in flight, like most producers in use."""

from __future__ import annotations

import random

import gevent
from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.options import EVENTS

REST_SECONDS = (2, 6)


class Bursty(KafkaUser):
    """Bursts of 50 to 500 records; librdkafka decides on the batches."""

    weight = 1
    idempotent = False
    sender_config = {"linger.ms": 5}

    def on_start(self) -> None:
        """Connect."""
        self.open_sender()

    @task
    def burst(self) -> None:
        """One burst, then a rest."""
        for _ in range(random.randint(50, 500)):
            self.send(EVENTS)
        gevent.sleep(random.uniform(*REST_SECONDS))
