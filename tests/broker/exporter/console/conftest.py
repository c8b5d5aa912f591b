"""A broker with a console, with topics, records and groups full of markup."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from ....harness.broker import Broker
from ....harness.process import free_port, wait_until
from .registry_server import RegistryServer

MARKUP = "<img src=x onerror=\"document.body.dataset.pwned='1'\">"
GROUP = f"billing {MARKUP}"


class Console(NamedTuple):
    """A broker, and the address of its console as host:port."""

    broker: Broker
    address: str

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, bytes, Any]:
        """Status, body and headers of a page."""
        request = urllib.request.Request(f"http://{self.address}{path}", headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers

    def answers(self) -> bool:
        """Whether the exporter listens: a broker is ready before it does."""
        try:
            return self.get("/")[0] == 200
        except OSError:
            return False

    def ask(self, view: str, /, **parameters: object) -> Any:
        """The data of an address below /api/; of a refusal, its status and its line."""
        status, body, _ = self.get(f"/api/{view}?{urlencode(parameters)}")
        found = json.loads(body)
        return found if status == 200 else (status, found["error"])


def started(broker: Broker, address: str) -> Console:
    """Start it and wait until the console answers."""
    console = Console(broker, address)
    broker.start()
    wait_until(console.answers, 60, "the console answers")
    return console


def fill(broker: Broker) -> None:
    """Three topics; records of each format, with markup in key, value and header; a group that lags."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
        for number in range(120):
            value = json.dumps({"order": number, "note": MARKUP, "total": 12.5 * number}).encode()
            producer.send("orders", value, key=b"customer-%d" % number, headers=[("trace", MARKUP.encode())])
        producer.send("payments", bytes(range(40)), key=MARKUP.encode())
        producer.send("clicks", None, key=b"gone")
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=GROUP, enable_auto_commit=False)
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(20, "", -1)})
    consumer.close()


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    """The schema registry of the console, without schemas."""
    with RegistryServer() as running:
        yield running


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, registry: RegistryServer) -> Iterator[Console]:
    """For a module of tests."""
    address = f"127.0.0.1:{free_port()}"
    keep_free = 1  # so that a full disk of this machine is nothing that is wrong with the broker
    broker = Broker(
        tmp_path_factory.mktemp("console"), odradek_console_listener=address, odradek_retention_free_bytes=keep_free,
        odradek_console_schema_registry_url=registry.url, odradek_metrics_listener=f"127.0.0.1:{free_port()}",
    )  # fmt: skip
    try:
        running = started(broker, address)
        fill(broker)
        yield running
    finally:
        broker.close()
