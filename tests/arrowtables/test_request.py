"""Arguments of reading: each wrong one is one line in the words of Python, before any broker is asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from odradek import arrow
from odradek.arrowtables import client, request
from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading.offsets import All, Exactly, Since, Spec
from odradek.pipeline.types import EARLIEST, LATEST

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
NOON_MS = 1_795_867_200_000


def options(topic: Any = "t", start: Any = "earliest", end: Any = "latest", **given: Any) -> Any:
    rest: dict[str, Any] = {
        "partitions": None,
        "isolation": "read_committed",
        "local": "auto",
        "compacted": None,
        "split_bytes": 1,
    }
    rest |= {name: given.pop(name) for name in list(given) if name in rest}
    return request.options(topic, start, end, servers=given.pop("servers", "h:1"), settings=given, **rest)


@pytest.mark.parametrize(
    ("start", "spec"),
    [
        ("earliest", All(EARLIEST)),
        ("latest", All(LATEST)),
        (7, All(7)),
        (NOON, Since(NOON_MS, or_latest=True)),
        (NOON.astimezone(timezone(timedelta(hours=5))), Since(NOON_MS, or_latest=True)),
        (NOON + timedelta(microseconds=1), Since(NOON_MS + 1, or_latest=True)),
        ({0: 7, 1: "latest"}, Exactly({("t", 0): 7, ("t", 1): LATEST})),
        ({0: NOON}, Since({("t", 0): NOON_MS}, or_latest=True)),
    ],
)
def test_position_becomes_that_of_the_reader(start: Any, spec: Spec) -> None:
    assert options(start=start).start == spec == options(end=start).end


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": ""}, "topic is ''"),
        ({"topic": 7}, "topic is 7"),
        ({"start": -1}, "start is -1: it must be 'earliest', 'latest', an offset, or a datetime with a zone"),
        ({"start": True}, "start is True"),
        ({"end": "now"}, "end is 'now'"),
        ({"start": datetime(2026, 1, 1)}, "start is 2026-01-01T00:00:00, without a zone"),
        ({"start": {0: 1, 1: NOON}}, "only times or no times"),
        ({"end": {}}, "end must have a position for each partition"),
        ({"partitions": []}, r"partitions is \[\]"),
        ({"partitions": ["0"]}, "partitions is "),
        ({"isolation": "committed"}, "isolation must be read_committed or read_uncommitted, not 'committed'"),
        ({"local": "yes"}, "local must be auto or off or only, not 'yes'"),
        ({"split_bytes": 0}, "split_bytes must be a number above 0, not 0"),
        ({"fetch_max_byte": 1}, "unknown setting fetch.max.byte; the settings are check.crcs, "),
        ({"group_id": "g"}, "group.id is not supported: reading uses no group"),
        ({"isolation_level": "read_committed"}, "isolation.level is not supported: use isolation="),
        ({"servers": ""}, "bootstrap.servers"),
        ({"servers": "nowhere"}, "bootstrap.servers has 'nowhere': it must be host:port"),
        ({"request_timeout_ms": "soon"}, "request.timeout.ms is 'soon'"),
        ({"security_protocol": "TLS"}, "security.protocol is 'TLS'"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not one of PLAIN, "),
    ],
)
def test_wrong_argument_is_told_in_one_line(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told) as raised, client.own_words():
        options(**given)
    _is_a_plain_line(str(raised.value))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["key", "key"], "columns must be a list out of key, value"),
        (["keys"], "columns must be a list"),
        ("key", "columns must be a list"),
        ([], "columns must be a list"),
    ],
)
def test_wrong_columns_are_told_in_one_line(columns: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        request.columns(columns)


@pytest.mark.parametrize(("name", "value"), [("threads", 0), ("memory", -1), ("threads", "2"), ("memory", True)])
def test_bounds_must_be_numbers_above_0(name: str, value: Any) -> None:
    functions: tuple[Any, ...] = (arrow.read, arrow.follow)
    for function in functions:
        with pytest.raises(OptionError, match=f"^{name} must be a number above 0, not {value!r}$"):
            function("t", bootstrap_servers="h:1", **{name: value})


def test_settings_take_the_names_of_kafka() -> None:
    kafka = options(servers=["a:1", "b:2"], ssl_truststore_type="PEM", check_crcs=False, fetch_max_bytes=9).kafka
    named = ("bootstrap.servers", "ssl.truststore.type", "check.crcs", "fetch.max.bytes", "client.id")
    assert [kafka[name] for name in named] == ["a:1,b:2", "PEM", "false", "9", "odradek-arrow"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("t-0: offsets 0 to 4 are gone (with failOnDataLoss=false the query continues without them)",
         "t-0: offsets 0 to 4 are gone"),
        ("startingOffsets must name every partition (-1 is latest, -2 earliest): t-1 is missing",
         "start must name every partition: t-1 is missing"),
        ("… lost, or damaged (odradek.compacted=true if it once was compacted; with failOnDataLoss=false the query "
         "continues without them)", "… lost, or damaged (compacted=True if it once was compacted)"),
        ("t-0: … (tried for 60 s: kafka.default.api.timeout.ms)", "t-0: … (tried for 60 s: default.api.timeout.ms)"),
        ("leave out odradek.local=only to read over the network", "leave out local='only' to read over the network"),
    ],
)  # fmt: skip
def test_errors_are_in_the_words_of_this_package(theirs: str, ours: str) -> None:
    assert client.translated(theirs) == ours


def _is_a_plain_line(text: str) -> None:
    assert "\n" not in text
    assert not [word for word in ("Spark", "failOnDataLoss", "kafka.", "odradek.", "startingOffsets") if word in text]


def test_views_are_refused_where_values_are_decoded() -> None:
    for given, told in ((1, "views is 1: it must be True or False"), (True, "views goes without schema")):
        with pytest.raises(OptionError, match=told):
            arrow.read("t", schema="text", views=given, bootstrap_servers="localhost:1")  # type: ignore[arg-type]
