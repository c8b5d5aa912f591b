"""Which broker configs go together, and how far one may change in one step, as Kafka has it."""

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
def test_values_that_do_not_go_together(given: dict[str, int], names: str) -> None:
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
def test_values_that_do(given: dict[str, int]) -> None:
    assert broken((), given) == []


@pytest.mark.parametrize("name", ["log.cleaner.threads", "num.replica.fetchers"])
@pytest.mark.parametrize(
    ("old", "new", "good"),
    [(1, 2, True), (1, 3, False), (8, 4, True), (8, 3, False), (9, 4, True), (8, 8, True)],
)
def test_threads_become_half_or_double_at_most(name: str, old: int, new: int, good: bool) -> None:
    """Kafka's DynamicThreadPool and LogCleaner: whole numbers, so that half of 9 is 4."""
    refused = broken_by_change(({}, {name: str(old)}), ({}, {name: str(new)}), {})
    assert (refused == []) == good
    assert good or name in refused[0]


@pytest.mark.parametrize("none", ["0", "-1"])
def test_there_is_one_fetcher_at_least(none: str) -> None:
    assert broken_by_change(({}, {}), ({}, {"num.replica.fetchers": none}), {}) != []


def test_what_a_removed_config_falls_back_to_counts_too() -> None:
    refused = broken_by_change(({"num.replica.fetchers": "8"}, {}), ({}, {}), {"num.replica.fetchers": 1})
    assert refused == ["num.replica.fetchers can change from 8 only to a value between 4 and 16 at once, not to 1"]


@pytest.mark.parametrize("name", ["max.connections", "listener.name.in.max.connection.creation.rate"])
def test_nobody_shuts_a_running_broker(name: str) -> None:
    assert name in broken_by_change(({}, {}), ({}, {name: "0"}), {})[0]
    assert broken_by_change(({}, {}), ({}, {name: "1"}), {}) == []


def test_what_was_wrong_before_is_not_the_fault_of_another_change() -> None:
    wrong = {"log.retention.ms": "0"}
    assert broken_by_change(({}, wrong), ({}, {**wrong, "log.segment.bytes": "100"}), {}) == []


def refusal(name: str, value: str, per_broker: bool) -> str:
    with pytest.raises(ApiError) as refused:
        alter.validate_broker({}, {name: value}, per_broker)
    assert refused.value.code == INVALID_REQUEST
    return str(refused.value.message)


@pytest.mark.parametrize(
    "name",
    ["num.io.threads", "num.network.threads", "background.threads", "metric.reporters", "listener.name.x.ssl.protocol"],
)
def test_what_would_do_nothing_is_refused(name: str) -> None:
    said = refusal(name, "8", per_broker=True)
    assert said.startswith(f"Cannot update these configs dynamically: Set({name})") and "has no effect" in said


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "listener.security.protocol.map"])
def test_what_only_a_start_reads_is_refused(name: str) -> None:
    said = refusal(name, "PLAINTEXT://:1", per_broker=True)
    assert said.startswith(f"Cannot update these configs dynamically: Set({name})") and "restart the broker" in said
    assert "broker id must be specified" in refusal(name, "PLAINTEXT://:1", per_broker=False), "as Kafka says"


@pytest.mark.parametrize("name", [name for name, key in configdef.BROKER.items() if key.mode == "read-only"])
def test_what_kafka_does_not_change_is_refused_as_there(name: str) -> None:
    assert refusal(name, "1", per_broker=True) == f"Cannot update these configs dynamically: Set({name})"


def test_what_others_left_stays_and_does_not_count() -> None:
    """A Kafka of that ZooKeeper, or our former release, could set them: a change of something else keeps them."""
    left = {"num.io.threads": "16", "listeners": "PLAINTEXT://:1", "log.retention.ms": "5", "my.own": "x"}
    alter.validate_broker(left, {**left, "log.retention.ms": "6"}, per_broker=True)
    assert configdef.in_force(left) == {name: text for name, text in left.items() if name != "listeners"}


def test_a_listener_has_its_own_connection_limits_for_one_broker_or_all() -> None:
    for per_broker in (True, False):
        alter.validate_broker({}, {"listener.name.x.max.connections": "5"}, per_broker)
    assert "no effect" in refusal("listener.name.x.message.max.bytes", "5", per_broker=True)


@pytest.mark.parametrize("bad", ["a", "a:", ":1", "a:x", "a:-1", "a:2147483648", "ä:1", "a b:1"])
def test_overrides_that_nobody_can_read_are_refused(bad: str) -> None:
    assert "host:number" in refusal("max.connections.per.ip.overrides", bad, per_broker=False)
