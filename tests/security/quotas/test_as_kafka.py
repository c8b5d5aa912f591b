"""Random quotas, rates and requests give the same answers as Apache Kafka 3.9.1's own classes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.security.quotas import requests
from odradek.security.quotas.connections import AddressRates
from odradek.security.quotas.entities import CLIENT_ID, USER, Entity, entity_of
from odradek.security.quotas.keys import KINDS, keys_of
from odradek.security.quotas.mutations import MutationQuota
from odradek.security.quotas.rates import Rate, TokenBucket, Window
from odradek.security.quotas.requests import Alteration, Component, QuotaError
from odradek.security.quotas.resolution import ClientQuotas
from odradek.security.sanitizer import desanitize, sanitize

from .oracle import NO_LIMIT, Oracle, Refused

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]
KEY = "producer_byte_rate"
NAMES = ("alice", "Bob C.", "x*y", "<default>", "é/~", "-_.")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    one = Oracle()
    yield one
    one.close()


def test_sanitized_names_equal_kafkas(oracle: Oracle) -> None:
    rng = random.Random(1)
    for _ in range(300):
        name = "".join(chr(rng.choice([*range(1, 0x180), 0x2603, 0x1F600, 0xFFFD])) for _ in range(rng.randrange(8)))
        node = oracle.ask("sanitize", name)
        assert sanitize(name) == node
        assert desanitize(node) == oracle.ask("desanitize", node) == name
    assert desanitize("a+b") == oracle.ask("desanitize", "a+b")


def test_quota_of_a_client_equals_kafkas(oracle: Oracle) -> None:
    """All levels are in use, since only then does Kafka consider all of them."""
    rng = random.Random(2)
    for _ in range(60):
        oracle.ask("new", "produce", 11, 1)
        quotas = _set_up(oracle, rng)
        ours = ClientQuotas(quotas, KEY)
        for _ in range(20):
            user, client = rng.choice(NAMES), rng.choice((*NAMES, ""))
            *tags, bound = oracle.ask("find", user, client)
            found = ours.find(user, client)
            assert list(ours.tags(user, client)) == tags
            assert bound == (NO_LIMIT if found is None else found.bound)


def _set_up(oracle: Oracle, rng: random.Random) -> dict[Entity, dict[str, float]]:
    for user, client in (
        ("u", None),
        (None, "c"),
        ("u", "c"),
    ):  # Kafka checks single levels only until all have been in use
        oracle.ask("quota", user, client, 1)
        oracle.ask("quota", user, client, None)
    quotas: dict[Entity, dict[str, float]] = {}
    for _ in range(rng.randrange(12)):
        entity = _client_entity(rng)
        quotas[entity] = {KEY: float(rng.randrange(1, 10**6))}
        names = {kind: name or _default(name) for kind, name in entity}
        oracle.ask("quota", names.get(USER), names.get(CLIENT_ID), quotas[entity][KEY])
    return quotas


def _default(name: str | None) -> str:
    return "<default>" if name is None else name


def _client_entity(rng: random.Random) -> Entity:
    """No client id is `<default>`, which is the oracle's notation for the default."""
    names = [*(name for name in NAMES if name != "<default>"), None]
    kinds = rng.choice([(USER,), (CLIENT_ID,), (USER, CLIENT_ID)])
    return tuple((kind, rng.choice(names)) for kind in kinds)


@pytest.mark.parametrize("kind", ["produce", "request"])
def test_throttle_times_of_rates_equal_kafkas(oracle: Oracle, kind: str) -> None:
    rng = random.Random(3)
    for _ in range(40):
        window = Window(rng.choice([1, 2, 3, 11]), rng.choice([1, 2, 5]) * 1000)
        bound = rng.choice([0.5, 7.25, 1000.0, 250_000.0])
        oracle.ask("new", kind, window.samples, window.width_ms // 1000)
        oracle.ask("quota", "alice", None, bound)
        rate, now_ms = Rate(window), rng.randrange(10**6)
        for _ in range(60):
            now_ms += rng.choice([0, 1, 30, 700, 1000, 2500, 20_000])
            value = float(rng.randrange(1, int(bound * 5) + 3))
            _compare_one(oracle, rate, window, kind, bound, value, now_ms)
            if rng.random() < 0.2:  # a throttled fetch takes its bytes back
                rate.record(-value, now_ms)
                oracle.ask("record", "alice", "c", -value, now_ms)


def _compare_one(
    oracle: Oracle, rate: Rate, window: Window, kind: str, bound: float, value: float, now_ms: int
) -> None:
    rate.record(value, now_ms)
    ours = rate.throttle_ms(bound, now_ms)
    if kind == "request":
        ours = min(ours, window.most_ms)
    assert ours == oracle.ask("record", "alice", "c", value, now_ms)


def test_mutation_quotas_equal_kafkas(oracle: Oracle) -> None:
    rng = random.Random(4)
    for _ in range(60):
        window, bound = Window(rng.choice([1, 2, 11]), rng.choice([1, 3]) * 1000), rng.choice([0.1, 1.0, 7.5, 100.0])
        oracle.ask("new", "mutation", window.samples, window.width_ms // 1000)
        oracle.ask("quota", "alice", None, bound)
        bucket, now_ms = TokenBucket(window, bound), 10**9
        for _ in range(15):
            strict = rng.random() < 0.5
            steps: list[tuple[int, int]] = []
            for _ in range(rng.randrange(4)):
                now_ms += rng.choice([0, 1, 90, 1000, 30_000])
                steps.append((rng.choice([0, 1, 5, 60]), now_ms))
            now_ms += rng.choice([0, 5, 2000])
            assert _mutate(bucket, strict, steps, now_ms) == oracle.ask("mutate", "alice", "c", strict, steps, now_ms)


def _mutate(bucket: TokenBucket, strict: bool, steps: list[tuple[int, int]], end_ms: int) -> list[Any]:
    clock = [0]
    quota, accepted = MutationQuota(bucket, lambda: clock[0], strict=strict), []
    for partitions, clock[0] in steps:
        accepted.append(quota.accept(partitions))
    clock[0] = end_ms
    return [accepted, quota.throttle_ms()]


def test_throttle_times_of_connections_equal_kafkas(oracle: Oracle) -> None:
    rng = random.Random(5)
    for _ in range(30):
        window, bounds = Window(rng.choice([1, 2, 11]), rng.choice([1, 2]) * 1000), {}
        oracle.ask("new", "produce", window.samples, window.width_ms // 1000)
        bounds = {f"10.0.0.{n}": rng.choice([1, 5, 50]) for n in range(3)}
        rates, now_ms = AddressRates(window, bounds.get), 1000
        for _ in range(150):
            now_ms += rng.choice([0, 0, 1, 20, 300, 3000])
            address = rng.choice(list(bounds))
            assert rates.connected(address, now_ms) == oracle.ask("connect", address, bounds[address], now_ms)


def _quotas(rng: random.Random) -> dict[Entity, dict[str, float]]:
    quotas = {}
    for _ in range(rng.randrange(8)):
        entity = _client_entity(rng) if rng.random() < 0.8 else (("ip", rng.choice(["10.0.0.1", "::1", None])),)
        keys = list(keys_of(entity))
        quotas[entity] = {key: float(rng.randrange(1, 999)) for key in rng.sample(keys, rng.randint(1, len(keys)))}
    return quotas


def _shown(quotas: Any) -> list[Any]:
    pairs = [[dict(entity), dict(values)] for entity, values in quotas if values]
    return sorted(pairs, key=repr)


def test_described_quotas_equal_kafkas(oracle: Oracle) -> None:
    rng, codes = random.Random(6), set()
    for _ in range(600):
        quotas = _quotas(rng)
        components = [_component(rng, quotas) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
        strict = rng.random() < 0.5
        words = ("describe", [[dict(entity), values] for entity, values in quotas.items()], components, strict)
        try:
            theirs: Any = _shown((sorted(names.items()), values) for names, values in oracle.ask(*words))
        except Refused as refused:
            theirs = refused.code
        try:
            found = requests.describe(quotas, components, strict).items()
            assert _shown((sorted(entity), values) for entity, values in found) == theirs
        except QuotaError as error:
            assert error.code == theirs
            codes.add(error.code)
    assert codes == {35, 42}


def _component(rng: random.Random, quotas: dict[Entity, dict[str, float]]) -> Component:
    pairs = [pair for entity in quotas for pair in entity] or [(USER, "alice")]
    kind, name = rng.choice(pairs)
    match_type = rng.choice([0, 0, 1, 2]) if rng.random() < 0.95 else 3
    right = name or "alice" if match_type == 0 else None
    odd = rng.random()
    return Component(rng.choice(["", "host"]) if odd < 0.03 else kind, match_type, name if odd > 0.95 else right)


def test_altered_quotas_equal_kafkas(oracle: Oracle) -> None:
    rng, codes = random.Random(7), set()
    for _ in range(600):
        quotas = _quotas(rng)
        entries = [_entry(rng, quotas) for _ in range(rng.choice([1, 1, 2, 3]))]
        stored = [[dict(entity), values] for entity, values in quotas.items()]
        their_codes, their_quotas = oracle.ask("alter", stored, entries)
        alterations = [Alteration(entity_of(pairs), ops) for pairs, ops in entries]
        results = requests.alter(quotas, alterations, lambda address: address != "no such host")
        ours = quotas | {one.entity: dict(one.quotas) for one in results if one.quotas is not None}
        assert sorted(([dict(one.entity), one.code] for one in results), key=_order) == sorted(their_codes, key=_order)
        assert sorted(_shown(ours.items()), key=_order) == sorted(their_quotas, key=_order)
        codes |= {one.code for one in results}
    assert codes == {0, 42}


def _order(pair: list[Any]) -> str:
    return repr((sorted(pair[0].items()), sorted(pair[1].items()) if isinstance(pair[1], dict) else pair[1]))


def _entry(rng: random.Random, quotas: dict[Entity, dict[str, float]]) -> tuple[list[Any], list[Any]]:
    entity = list(rng.choice([*quotas, _client_entity(rng)]))
    odd = rng.random()
    if odd < 0.2:
        entity.append(
            rng.choice([("host", "x"), ("ip", "10.0.0.9"), ("ip", "no such host"), (USER, ""), (USER, "alice")])
        )
    if odd > 0.97:
        entity = []
    values = [None, 5.0, 7.5, 1e12, 0.0, -1.0, 9.2233720368547758e18, 1e19, 3.0000000001, float(2**31)]
    ops = [(rng.choice([*KINDS, "no_such_rate"] if rng.random() < 0.1 else _keys(entity)), rng.choice(values))
           for _ in range(rng.randrange(3))]  # fmt: skip
    return entity, ops


def _keys(entity: list[Any]) -> list[str]:
    return list(keys_of(tuple(entity))) if entity else list(KINDS)
