"""The settings of a log handler: Kafka's names, and one clear error for a wrong value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from odradek.logging import KafkaHandler
from odradek.loghandler.handler_settings import DEFAULTS, parse
from odradek.pipeline.wire.settings import NUMBERS
from odradek.protocol.records import codecs

DOCUMENT = Path(__file__).parents[2] / "docs" / "logging.md"
SERVERS = "127.0.0.1:9"


def test_names_and_units_are_kafkas() -> None:
    found = parse(
        [SERVERS, "127.0.0.1:10"],
        "logs",
        {"linger.ms": 5, "batch.size": "16384", "compression.type": "lz4", "queue.buffering.max.messages": 7},
    )
    assert (found.limits.linger, found.limits.batch, found.limits.records) == (0.005, 16384, 7)
    assert (found.codec, found.acks, found.idempotent) == (codecs.LZ4, -1, True)
    assert found.kafka["bootstrap.servers"] == "127.0.0.1:9,127.0.0.1:10"


def test_document_has_every_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| `?([^`| ]*)`? \|", DOCUMENT.read_text(), re.MULTILINE))
    own = set(DEFAULTS) - set(NUMBERS) - {"metadata.max.age.ms"}
    assert {name: rows.get(name) for name in own} == {name: DEFAULTS[name] for name in own}
    assert all(f"`{name}`" in DOCUMENT.read_text() for name in DEFAULTS)


@pytest.mark.parametrize(
    ("properties", "idempotent"),
    [({"acks": 1}, False), ({"enable.idempotence": False}, False), ({"acks": -1}, True)],
    ids=str,
)
def test_idempotence_follows_acks_as_in_kafka(properties: dict[str, Any], idempotent: bool) -> None:
    assert parse(SERVERS, "logs", properties).idempotent == idempotent


@pytest.mark.parametrize(
    ("servers", "topic", "properties", "message"),
    [
        ("", "t", {}, "'bootstrap.servers' must be specified: host:port, several by commas"),
        ("localhost", "t", {}, "bootstrap.servers has 'localhost': it must be host:port"),
        (SERVERS, "a b", {}, "topic is 'a b': it must have 1 to 249 letters, digits, '.', '_' or '-'"),
        (SERVERS, "..", {}, "topic is '..': it must have 1 to 249 letters, digits, '.', '_' or '-'"),
        (SERVERS, "t", {"acks": 0}, "acks must be all, -1 or 1, not '0'"),
        (SERVERS, "t", {"acks": 1, "enable.idempotence": True}, "acks must be all with enable.idempotence=true"),
        (SERVERS, "t", {"linger.ms": "soon"}, "linger.ms must be a whole number from 0 to 2147483647, not 'soon'"),
        (SERVERS, "t", {"buffer.memory": 0}, "buffer.memory must be a whole number above 0, not '0'"),
        (
            SERVERS,
            "t",
            {"compression.type": "br"},
            "compression.type must be none, gzip, snappy, lz4 or zstd, not 'br'",
        ),
        (
            SERVERS,
            "t",
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism=GSSAPI is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_wrong_setting_is_one_line(servers: str, topic: str, properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        KafkaHandler(servers, topic, properties=properties)
    assert str(caught.value) == message


def test_report_interval_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="report_interval is 0: it must be above 0 seconds"):
        KafkaHandler(SERVERS, "t", report_interval=0)


def test_property_without_effect_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"group\.id is not a setting of KafkaHandler and has no effect"):
        parse(SERVERS, "t", {"group.id": "g", "key.serializer": "x"})
