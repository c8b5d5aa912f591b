"""Token buckets of controller mutation quotas, from the quotas of a snapshot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.broker.controller import mutation_quotas
from odradek.broker.controller.mutation_quotas import MutationQuotas
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.security.quotas.rates import Window

CREATE, OLD, STRICT = 19, 5, 6
PATH = "users/<default>"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [100.0]
    played = SimpleNamespace(monotonic_ns=lambda: int(seconds[0] * 1e9))
    monkeypatch.setattr(mutation_quotas, "time", played)
    return seconds


def _snapshot(rate: float | None, path: str = PATH) -> Snapshot:
    quotas = {} if rate is None else {path: {"controller_mutation_rate": rate}}
    return Snapshot(raw_snapshot(1, "c", 0, [], {}, {}, quotas=quotas))


def test_a_strict_quota_refuses_and_an_old_one_throttles(clock: list[float]) -> None:
    """Two samples of a second make a bucket of two tokens, refilled at one per second."""
    quotas, snapshot = MutationQuotas(Window(2, 1000)), _snapshot(1)
    first = quotas.of(snapshot, CREATE, STRICT, "alice", "c")
    assert first.accept(5)  # overdrawn by three
    second = quotas.of(snapshot, CREATE, STRICT, "alice", "d")  # all clients of the user share the bucket
    assert not second.accept(1)
    assert second.throttle_ms() == 3000
    old = quotas.of(snapshot, CREATE, OLD, "alice", "c")
    assert old.accept(1)
    assert old.throttle_ms() == 4000
    assert quotas.of(snapshot, CREATE, STRICT, "bob", "c").accept(1)
    clock[0] += 4
    assert quotas.of(snapshot, CREATE, STRICT, "alice", "c").accept(1)


def test_changes_of_quotas_take_effect(clock: list[float]) -> None:
    quotas = MutationQuotas(Window(2, 1000))
    assert quotas.of(_snapshot(None), CREATE, STRICT, "alice", "c").accept(100)
    assert quotas.of(_snapshot(1), CREATE, STRICT, "alice", "c").accept(100)
    assert not quotas.of(_snapshot(1), CREATE, STRICT, "alice", "c").accept(1)
    assert quotas.of(_snapshot(1), CREATE, STRICT, "alice", "c").throttle_ms() == 0
    clock[0] += 1
    refused = quotas.of(_snapshot(97), CREATE, STRICT, "alice", "c")
    assert not refused.accept(1)
    assert refused.throttle_ms() == 10  # one token
    assert quotas.of(_snapshot(None), CREATE, STRICT, "alice", "c").accept(100)


def test_full_buckets_are_forgotten(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_quotas, "_MOST_BUCKETS", 2)
    quotas, snapshot = MutationQuotas(Window(2, 1000)), _snapshot(1)
    assert quotas.of(snapshot, CREATE, STRICT, "alice", "").accept(10)
    for user in ("b", "c", "d"):
        quotas.of(snapshot, CREATE, STRICT, user, "")
    assert not quotas.of(snapshot, CREATE, STRICT, "alice", "").accept(1)
    assert len(quotas._buckets) == 2
