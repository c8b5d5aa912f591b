"""Every client reads the records of every other client, byte for byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .admin import create_topic
from .drivers import DRIVERS
from .records import CODECS, text

pytestmark = pytest.mark.live

COUNT = 320
TOOLS = [driver.tool for driver in DRIVERS.values() if driver.tool]


@pytest.fixture(scope="module")
def written(broker: Any) -> dict[str, str]:
    """{writer: topic}; each writer takes the codecs in turn."""
    topics = {}
    for name, driver in DRIVERS.items():
        topics[name] = create_topic(broker, f"by-{name}")
        step = COUNT // len(CODECS)
        for at, codec in enumerate(CODECS):
            driver.write(broker.bootstrap, topics[name], 0, range(at * step, (at + 1) * step), text, codec)
    return topics


@pytest.mark.needs(*TOOLS)
@pytest.mark.parametrize("reader", DRIVERS)
def test_every_client_reads_records_of_every_other(broker: Any, written: dict[str, str], reader: str) -> None:
    def check(writer: str) -> None:
        found = list(DRIVERS[reader].read(broker.bootstrap, written[writer], 0, COUNT))
        assert [read.offset for read in found] == list(range(COUNT)), writer
        for number, read in enumerate(found):
            assert read.record == text(number), f"record {number} of {writer}"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(check, written))
