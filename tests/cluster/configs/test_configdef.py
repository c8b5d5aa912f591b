"""The configuration tables compared with Apache Kafka's, and the checks of their values."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.configs import configdef as c
from odradek.cluster.configs.authorizer_configs import AUTHORIZER_CONFIGS
from odradek.cluster.configs.configtypes import DOUBLE, TYPE_NAMES, parse_value

from ...harness.needs import jars
from ...tools.config_reference import KAFKAS_DEFAULTS

OURS = "odradek."


@pytest.fixture(scope="module")
def kafkas() -> dict[str, dict[str, list[str]]]:
    """Kafka's definitions: kind → name → type, default, importance, mode, internal."""
    source = Path(__file__).with_name("ConfigFacts.java")
    words = ["java", "-cp", f"{jars('3.9.1')}/*", str(source)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows: dict[str, dict[str, list[str]]] = {"broker": {}, "topic": {}}
    for line in done.stdout.splitlines():
        kind, name, *facts = line.split("\t")
        rows[kind][name] = facts
    return rows


def facts(key: c.ConfigKey, topic: bool) -> list[str]:
    mode = "read-only" if topic else key.mode
    default = r"\N" if key.default is None else key.default
    return [TYPE_NAMES[key.type], default, key.importance, mode, str(key.internal).lower()]


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_every_config_equals_kafkas(kafkas: dict[str, dict[str, list[str]]], kind: str) -> None:
    table = c.BROKER if kind == "broker" else c.TOPIC
    others = {key.name for key in AUTHORIZER_CONFIGS}  # Kafka's AclAuthorizer reads them without a definition
    mine = {
        name: facts(key, kind == "topic")
        for name, key in table.items()
        if not name.startswith(OURS) and name not in others
    }
    for name in KAFKAS_DEFAULTS.keys() & mine.keys():
        mine[name][1] = KAFKAS_DEFAULTS[name]
    assert mine == kafkas[kind]


@pytest.mark.parametrize("table", [c.BROKER, c.TOPIC])
def test_every_default_passes_its_own_check_and_keeps_its_text(table: dict[str, c.ConfigKey]) -> None:
    for key in table.values():
        if key.default is not None:
            value = parse_value(key, key.default)
            assert c.to_text(key.type, value) == key.default, key.name


def test_every_config_has_a_description() -> None:
    for key in (*c.BROKER.values(), *c.TOPIC.values()):
        assert len(key.doc) > 10 and key.doc.endswith("."), key.name


def test_topic_configs_have_broker_synonyms_that_exist() -> None:
    without = {name for name in c.TOPIC if not c.topic_synonyms(name)}
    assert without == {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "odradek.retention.unknown",
    }
    for name in c.TOPIC:
        assert all(synonym in c.BROKER for synonym, _ in c.topic_synonyms(name))


@pytest.mark.parametrize(
    ("name", "bad", "says"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("segment.bytes", "13", "at least 14"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("cleanup.policy", "compact,remove", "compact, delete"),
        ("compression.type", "brotli", "one of"),
        ("compression.gzip.level", "0", "-1"),
        ("preallocate", "yes", "true or false"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("message.format.version", "banana", "such as"),
    ],
)
def test_error_of_bad_value_names_valid_ones(name: str, bad: str, says: str) -> None:
    with pytest.raises(c.ConfigError) as refused:
        c.parse_topic(name, bad)
    assert f"Invalid value {bad} for configuration {name}" in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("retention.ms", "\u00a07"), ("retention.ms", "7\u2003"), ("cleanup.policy", "compact,\u00a0delete"),
        ("min.cleanable.dirty.ratio", "0.0_1"), ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "\u0661"), ("min.cleanable.dirty.ratio", "Infinityf"),
        ("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "true"),
    ],
)  # fmt: skip
def test_values_that_kafka_refuses_are_refused(name: str, bad: str) -> None:
    with pytest.raises(c.ConfigError):
        c.parse_topic(name, bad)


@pytest.mark.parametrize(
    ("text", "value"), [(" 0.5 ", 0.5), ("+1.", 1.0), (".5", 0.5), ("5E-1", 0.5), ("1f", 1.0), ("\t1d", 1.0)]
)
def test_doubles_are_read_as_java_does(text: str, value: float) -> None:
    assert c.parse_topic("min.cleanable.dirty.ratio", text) == value


@pytest.mark.parametrize("good", ["2.8", "3.0-IV1", "0.8.2", "0.10.2-IV0", "0.9.0.1", "1.1"])
def test_releases_of_kafka_are_valid_message_formats(good: str) -> None:
    assert c.parse_topic("message.format.version", good) == good


def test_error_of_unknown_name_suggests_nearest() -> None:
    with pytest.raises(c.ConfigError, match=r"Unknown topic config name: retention.sm.*retention.ms"):
        c.parse_topic("retention.sm", "1")
    assert c.nearest("log.retention.hour") == "log.retention.hours"
    assert c.nearest("odradek.worker") == "odradek.workers"
    assert c.nearest("entirely different") is None


def test_listener_prefixes_and_sasl_mechanisms_are_known() -> None:
    for name in ("listener.name.external.ssl.keystore.password", "listener.name.x.plain.sasl.jaas.config"):
        key = c.broker_key(name)
        assert key is not None and key.sensitive
    assert c.broker_key("listener.name.x.nonsense") is None
    assert c.broker_synonyms("listener.name.x.plain.sasl.jaas.config")[1] == "sasl.jaas.config"


def test_precedence_is_topic_then_dynamic_then_static_then_default() -> None:
    static = {"log.retention.hours": 2, "log.retention.ms": None, "log.retention.minutes": None}
    resolve = c.resolve_topic
    assert resolve({})["retention.ms"] == 168 * 3600_000
    assert resolve({}, (), static)["retention.ms"] == 2 * 3600_000
    assert resolve({}, (), {**static, "log.retention.minutes": 3})["retention.ms"] == 3 * 60_000
    cluster = {"log.retention.ms": "7"}
    assert resolve({}, ({}, cluster), static)["retention.ms"] == 7
    assert resolve({}, ({"log.retention.ms": "8"}, cluster), static)["retention.ms"] == 8
    assert resolve({"retention.ms": "9"}, ({}, cluster), static)["retention.ms"] == 9


def test_dynamic_changes_obey_the_mode() -> None:
    c.validate_dynamic({"log.segment.bytes": "1000", "my.own": "x"}, per_broker=False)
    with pytest.raises(c.ConfigError, match=r"Cannot update these configs dynamically: Set\(num.partitions\)"):
        c.validate_dynamic({"num.partitions": "3"}, per_broker=True)
    with pytest.raises(c.ConfigError, match="broker id must be specified"):
        c.validate_dynamic({"listeners": "PLAINTEXT://:1"}, per_broker=False)
    with pytest.raises(c.ConfigError, match="at least 14"):
        c.validate_dynamic({"log.segment.bytes": "1"}, per_broker=False)


def test_conflicting_compaction_lags_are_refused() -> None:
    with pytest.raises(c.ConfigError, match="conflict"):
        c.validate_topic({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@given(st.floats(allow_nan=False))
def test_double_round_trip_through_text(value: float) -> None:
    text = c.to_text(DOUBLE, value)
    assert text is not None
    assert float(text.replace("Infinity", "inf")) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (1e-5, "1.0E-5"), (1.7976931348623157e308, "1.7976931348623157E308"), (12345678.0, "1.2345678E7")],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert c.to_text(DOUBLE, value) == text
