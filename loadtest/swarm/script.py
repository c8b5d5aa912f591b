"""A script that writes with kafka-python and waits for each acknowledgement before the next record.

kafka-python is safe under gevent in another way than librdkafka: it is pure Python, so locust's monkey-patching turns
its threads into greenlets and lets its sockets, selectors and locks wait in the hub.
"""

from __future__ import annotations

import logging
import random
import time

import gevent
from kafka import KafkaProducer
from kafka.errors import KafkaError
from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.connection import kafka_python
from odradek.loadtest.swarm.options import EVENTS

MEAN_SECONDS = 0.2
ACK_SECONDS = 30
CLOSE_SECONDS = 5

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # errors show as failures in locust's table


class Script(KafkaUser):
    """One record in flight, about five a second: each costs a locust process a millisecond in kafka-python."""

    weight = 1

    def on_start(self) -> None:
        """Connect."""
        self.producer = KafkaProducer(**kafka_python(self.bootstrap), enable_idempotence=True, acks="all")

    @task
    def step(self) -> None:
        """Write one record, wait for its acknowledgement, do something else."""
        key, value = self.next_record()
        began = time.monotonic()
        try:
            at = self.producer.send(EVENTS, value, key).get(ACK_SECONDS)
        except KafkaError as error:
            self.failed(repr(error))
        else:
            self.stored(at.topic, at.partition, at.offset, value, time.monotonic() - began)
        gevent.sleep(random.expovariate(1 / MEAN_SECONDS))

    def on_stop(self) -> None:
        """A record still in flight may be stored or not: there was no acknowledgement."""
        self.producer.close(CLOSE_SECONDS)
        super().on_stop()
