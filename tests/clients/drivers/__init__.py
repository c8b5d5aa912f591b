"""One driver for each client, all with the same interface."""

from __future__ import annotations

from .aio import AioKafka
from .base import Driver
from .confluent import Confluent
from .java import Java
from .kafka_python import KafkaPython
from .kcat import Kcat

DRIVERS: dict[str, Driver] = {
    driver.name: driver for driver in (Confluent(), KafkaPython(), AioKafka(), Kcat(), Java("3.9.1"), Java("4.1.0"))
}
