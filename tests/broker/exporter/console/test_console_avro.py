"""The console of a real broker shows Avro by the schemas of a registry; a hostile one holds up nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from odradek.protocol import schema_prefix
from odradek.protocol.records import varint
from odradek.protocol.wire import INT64_MAX

from ....harness.broker import Broker
from ....harness.process import free_port, wait_until
from ....harness.registry import SchemaRegistry
from .conftest import MARKUP, Console, started
from .registry_server import RegistryServer, slow_head

pytestmark = pytest.mark.live

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def send(broker: Broker, topic: str, *values: bytes) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", max_request_size=1 << 21) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def order(number: int, note: str, schema: int) -> bytes:
    text = note.encode()
    return schema_prefix.pack(schema) + varint.encode(number) + b"\x02" + varint.encode(len(text)) + text


def values(console: Console, topic: str, **more: Any) -> list[dict[str, Any]]:
    return [row["value"] for row in console.ask("messages", topic=topic, offset=0, **more)["rows"]]


def test_values_are_shown_by_their_schema(console: Console, registry: RegistryServer) -> None:
    """Each schema is fetched once for all that look; other formats are as before."""
    registry.add(1, ORDER)
    data = order(5, MARKUP, 1)
    send(console.broker, "avro", data, b"text", order(6, "x", 2))
    for _ in range(2):
        avro, text, unknown = values(console, "avro")
        assert (avro["as"], avro["note"], avro["bytes"]) == ("avro", "schema 1, shop.Order", len(data))
        quoted = MARKUP.replace('"', '\\"')
        assert avro["text"] == f'{{\n  "id": 5,\n  "note": {{\n    "string": "{quoted}"\n  }}\n}}'
        assert text == {"as": "text", "text": "text", "bytes": 4, "cut": False}
        assert unknown["as"] == "hex" and unknown["note"].startswith("no schema 2: ")
    assert registry.asked == ["GET /v7/schemas/ids/1", "GET /v7/schemas/ids/2"]
    assert [one["as"] for one in values(console, "avro", format="hex")] == ["hex"] * 3
    plain = values(console, "avro", format="avro")[1]
    assert plain["note"] == "not Avro of a registry: it does not begin with 0 and the id of a schema"


@pytest.mark.smoke
def test_hostile_values_are_one_line(console: Console, registry: RegistryServer) -> None:
    registry.add(3, ORDER)
    registry.add(4, NODE)
    registry.add(5, {"type": "array", "items": "null"})
    claim = varint.encode(1) + b"\x02" + varint.encode(INT64_MAX)
    chain, many = b"\x02" * 900_000, varint.encode(INT64_MAX)
    bodies = zip((3, 4, 5), (claim, chain, many), strict=True)
    send(console.broker, "hostile", *(schema_prefix.pack(number) + body for number, body in bodies))
    large, deep, endless = values(console, "hostile")
    assert large["note"] == f"not Avro of schema 3: it claims {INT64_MAX} bytes where 0 are left"
    assert deep["note"] == "not Avro of schema 4: it nests more than 64 values" and deep["as"] == "hex"
    assert endless["as"] == "avro" and endless["cut"] and endless["text"].startswith("[\n  null,\n  null,")


def test_a_registry_that_never_ends_its_answer_holds_up_nothing_else(
    console: Console, registry: RegistryServer
) -> None:
    registry.answers["/v7/schemas/ids/9"] = slow_head
    send(console.broker, "slow", order(1, "x", 9))
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(console.ask("messages", topic="slow")))
    reader.start()
    wait_until(lambda: "GET /v7/schemas/ids/9" in registry.asked, 30, "the registry is asked")
    assert console.ask("topics")["total"] > 0
    metrics = Console(console.broker, str(console.broker.properties["odradek.metrics.listener"]))
    assert metrics.get("/metrics")[0] == 200
    assert reader.is_alive(), "the others are answered first"
    reader.join(60)
    (row,) = found[0]["rows"]
    assert row["value"]["as"] == "hex" and row["value"]["note"] == "its schema is not known"
    (line,) = found[0]["notes"]
    assert line.endswith("odradek.console.schema.registry.url has not answered in 5 s")
    again = console.ask("messages", topic="slow")
    assert again["notes"] == found[0]["notes"]  # at once, without a request
    assert registry.asked.count("GET /v7/schemas/ids/9") == 1


def test_without_a_registry_avro_says_what_to_set(fresh_broker: Any) -> None:
    broker = fresh_broker(start=False, odradek_console_listener=f"127.0.0.1:{free_port()}")
    console = started(broker, str(broker.properties["odradek.console.listener"]))
    status, line = console.ask("messages", topic="orders", format="avro")
    assert status == 400
    assert line.startswith("format=avro: set odradek.console.schema.registry.url to the address of a schema registry")


@pytest.mark.needs("schema-registry")
@pytest.mark.timeout(600)
def test_values_of_confluents_serializer_are_shown(tmp_path: Path, fresh_broker: Any) -> None:
    """From Apicurio, whose schemas are in a topic of this broker; the schema names a type of another subject."""
    broker = fresh_broker(start=False, odradek_console_listener=f"127.0.0.1:{free_port()}")
    broker.start()
    with SchemaRegistry(tmp_path, broker.bootstrap) as registry:
        _send_sale(broker, registry)
        broker.stop()
        broker.set(odradek_console_schema_registry_url=registry.url)
        console = started(broker, str(broker.properties["odradek.console.listener"]))
        (value,) = values(console, "sales")
        assert value["as"] == "avro" and value["note"].endswith(", shop.Sale")
        assert '"id": 7' in value["text"] and '"string": "seen"' in value["text"]


def _send_sale(broker: Broker, registry: SchemaRegistry) -> None:
    """By confluent-kafka's AvroSerializer."""
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry.register("orders", ORDER)
    field = '{"name": "order", "type": "shop.Order"}'
    text = f'{{"type": "record", "name": "Sale", "namespace": "shop", "fields": [{field}]}}'
    schema = Schema(text, "AVRO", [SchemaReference("shop.Order", "orders", 1)])
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = AvroSerializer(client, schema)
        sale = {"order": {"id": 7, "note": "seen"}}
        data = serializer(sale, SerializationContext("sales", MessageField.VALUE))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("sales", data)
    producer.flush()
