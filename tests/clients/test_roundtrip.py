"""A client reads its own records back byte for byte: every codec, nulls, headers, large records, a restart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from . import records
from .admin import create_topic
from .drivers import DRIVERS
from .drivers.base import Driver
from .records import Plan

pytestmark = pytest.mark.live

FEW, MANY, MILLION = 1_500, 20_000, 1_000_000
EACH = [
    pytest.param(driver, id=name, marks=[pytest.mark.needs(driver.tool)] if driver.tool else [])
    for name, driver in DRIVERS.items()
]
ONE_OF_JAVA = [one for one in EACH if one.id != "java-3.9.1"]
FAST = {"kcat", "confluent-kafka"}  # the others also run in `make test-long`
BRIEFLY = [
    one if one.id in FAST else pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.long])
    for one in ONE_OF_JAVA
]


@pytest.mark.smoke
@pytest.mark.parametrize("driver", ONE_OF_JAVA)
def test_roundtrip(broker: Any, driver: Driver) -> None:
    plan, topic = write_all(broker, driver, FEW)
    read_all(broker, driver, topic, plan)


@pytest.mark.parametrize("driver", BRIEFLY)
def test_roundtrip_of_many(broker: Any, driver: Driver) -> None:
    plan, topic = write_all(broker, driver, MANY)
    read_all(broker, driver, topic, plan)


@pytest.mark.parametrize("driver", BRIEFLY)
def test_roundtrip_over_a_restart(fresh_broker: Any, driver: Driver) -> None:
    broker = fresh_broker()
    plan, topic = write_all(broker, driver, 2_000)
    broker.restart()
    read_all(broker, driver, topic, plan)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("driver", EACH)
def test_roundtrip_of_a_million(fresh_broker: Any, driver: Driver) -> None:
    broker = fresh_broker(log_segment_bytes=64 * 1024 * 1024)
    plan, topic = write_all(broker, driver, MILLION)
    read_all(broker, driver, topic, plan)
    broker.restart()
    read_all(broker, driver, topic, plan)


def write_all(broker: Any, driver: Driver, count: int) -> tuple[Plan, str]:
    """Write `count` records, a fifth with each codec; partitions at once, so over several connections."""
    plan = Plan(getattr(records, driver.flavour), count, _partitions(driver))
    topic = create_topic(broker, driver.name, plan.partitions)
    with ThreadPoolExecutor(plan.partitions) as pool:
        list(pool.map(lambda at: _write_partition(broker, driver, topic, plan, at), range(plan.partitions)))
    return plan, topic


def _partitions(driver: Driver) -> int:
    return 1 if driver.name.startswith("java") else 2


def _write_partition(broker: Any, driver: Driver, topic: str, plan: Plan, partition: int) -> None:
    for codec, run in plan.codec_runs():
        numbers = (number for number in run if number % plan.partitions == partition)
        driver.write(broker.bootstrap, topic, partition, numbers, plan.make, codec)


def read_all(broker: Any, driver: Driver, topic: str, plan: Plan) -> None:
    """Read every partition over a connection of its own, all at once, and compare record by record."""
    with ThreadPoolExecutor(plan.partitions) as pool:
        list(pool.map(lambda at: _read_partition(broker, driver, topic, plan, at), range(plan.partitions)))


def _read_partition(broker: Any, driver: Driver, topic: str, plan: Plan, partition: int) -> None:
    numbers = plan.numbers(partition)
    found = driver.read(broker.bootstrap, topic, partition, len(numbers))
    for at, (number, read) in enumerate(zip(numbers, found, strict=True)):
        assert read.offset == at, f"record {number} at offset {read.offset}"
        assert read.record == plan.make(number), f"record {number} at offset {at}"
