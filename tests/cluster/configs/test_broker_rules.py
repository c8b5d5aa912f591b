"""Rules between broker configs, and limits on one change, as in Kafka."""

from __future__ import annotations

import pytest

from odradek.cluster.configs import configdef
from odradek.cluster.configs.broker_rules import broken, broken_by_change
from odradek.cluster.decisions import alter
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_REQUEST


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"log.retention.ms": 0}, "log.retention.ms"),
        ({"log.retention.hours": 0}, "log.retention.ms"),
        ({"log.cleaner.dedupe.buffer.size": 1 << 20}, "log.cleaner.dedupe.buffer.size"),
        ({"log.cleaner.dedupe.buffer.size": 16 << 20, "log.cleaner.threads": 16}, "log.cleaner.threads"),
        ({"replica.fetch.wait.max.ms": 30_001}, "replica.socket.timeout.ms"),
        ({"replica.lag.time.max.ms": 499}, "replica.lag.time.max.ms"),
        ({"max.connections.per.ip": 0}, "max.connections.per.ip.overrides"),
        ({"connections.max.idle.ms": 100}, "connections.max.idle.ms"),
    ],
)
def test_conflicting_values_are_refused(given: dict[str, int], names: str) -> None:
    assert names in "; ".join(broken((), given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"log.retention.ms": -1},
        {"log.retention.ms": 1, "log.retention.hours": 0},
        {"log.cleaner.dedupe.buffer.size": (1 << 20) + 1},
        {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {"connections.max.idle.ms": -1},
        {"connections.max.idle.ms": 101},
    ],
)
def test_consistent_values_are_accepted(given: dict[str, int]) -> None:
    assert broken((), given) == []


@pytest.mark.parametrize("name", ["log.cleaner.threads", "num.replica.fetchers"])
@pytest.mark.parametrize(
    ("old", "new", "good"),
    [(1, 2, True), (1, 3, False), (8, 4, True), (8, 3, False), (9, 4, True), (8, 8, True)],
)
def test_thread_count_may_at_most_halve_or_double(name: str, old: int, new: int, good: bool) -> None:
    """As in Kafka's DynamicThreadPool and LogCleaner; numbers are integers, so half of 9 is 4."""
    refused = broken_by_change(({}, {name: str(old)}), ({}, {name: str(new)}), {})
    assert (refused == []) == good
    assert good or name in refused[0]


@pytest.mark.parametrize("none", ["0", "-1"])
def test_fetcher_count_is_at_least_one(none: str) -> None:
    assert broken_by_change(({}, {}), ({}, {"num.replica.fetchers": none}), {}) != []


def test_default_of_removed_config_is_checked() -> None:
    refused = broken_by_change(({"num.replica.fetchers": "8"}, {}), ({}, {}), {"num.replica.fetchers": 1})
    assert refused == ["num.replica.fetchers can change from 8 only to a value between 4 and 16 at once, not to 1"]


@pytest.mark.parametrize("name", ["max.connections", "listener.name.in.max.connection.creation.rate"])
def test_change_cannot_stop_running_broker(name: str) -> None:
    assert name in broken_by_change(({}, {}), ({}, {name: "0"}), {})[0]
    assert broken_by_change(({}, {}), ({}, {name: "1"}), {}) == []


def test_former_conflict_does_not_fail_other_change() -> None:
    wrong = {"log.retention.ms": "0"}
    assert broken_by_change(({}, wrong), ({}, {**wrong, "log.segment.bytes": "100"}), {}) == []


def refusal(name: str, value: str, per_broker: bool) -> str:
    with pytest.raises(ApiError) as refused:
        alter.validate_broker({}, {name: value}, per_broker)
    assert refused.value.code == INVALID_REQUEST
    return str(refused.value.message)


@pytest.mark.parametrize(
    "name",
    ["num.io.threads", "num.network.threads", "background.threads", "metric.reporters", "listener.name.x.ssl.provider"],
)
def test_config_without_effect_is_refused(name: str) -> None:
    said = refusal(name, "8", per_broker=True)
    assert said.startswith(f"Cannot update these configs dynamically: Set({name})") and "has no effect" in said


def test_mechanism_between_brokers_is_refused_as_a_cluster_default() -> None:
    name = "sasl.mechanism.inter.broker.protocol"
    alter.validate_broker({}, {name: "PLAIN"}, per_broker=True)
    assert "broker id must be specified" in refusal(name, "PLAIN", per_broker=False), "as Kafka says"


@pytest.mark.parametrize("name", configdef.LISTENERS)
def test_listeners_are_refused_as_a_cluster_default(name: str) -> None:
    alter.validate_broker({}, {name: "PLAINTEXT://:1"}, per_broker=True)
    assert "broker id must be specified" in refusal(name, "PLAINTEXT://:1", per_broker=False), "as Kafka says"


@pytest.mark.parametrize("name", [name for name, key in configdef.BROKER.items() if key.mode == "read-only"])
def test_config_that_kafka_does_not_change_is_refused(name: str) -> None:
    assert refusal(name, "1", per_broker=True) == f"Cannot update these configs dynamically: Set({name})"


def test_invalid_config_in_the_tree_is_ignored_and_kept() -> None:
    """Apache Kafka or a former release could set such a config; a change of another config keeps it."""
    start = "offsets.topic.num.partitions"
    left = {"num.io.threads": "16", start: "9", "log.retention.ms": "5", "my.own": "x"}
    alter.validate_broker(left, {**left, "log.retention.ms": "6"}, per_broker=True)
    assert configdef.in_force(left) == {name: text for name, text in left.items() if name != start}


def test_listener_has_its_own_connection_limits_for_one_broker_or_all() -> None:
    for per_broker in (True, False):
        alter.validate_broker({}, {"listener.name.x.max.connections": "5"}, per_broker)
    assert "no effect" in refusal("listener.name.x.message.max.bytes", "5", per_broker=True)


@pytest.mark.parametrize("bad", ["a", "a:", ":1", "a:x", "a:-1", "a:2147483648", "ä:1", "a b:1"])
def test_undecodable_overrides_are_refused(bad: str) -> None:
    assert "host:number" in refusal("max.connections.per.ip.overrides", bad, per_broker=False)
