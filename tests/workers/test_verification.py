"""Whether transactional batches are to be verified, as a worker finds it in the metadata."""

from __future__ import annotations

from typing import Any

from .inprocess import Bench


class Counted(dict[str, dict[str, str]]):
    """Dynamic configs that count how often they are looked into."""

    lookups = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_the_setting_is_looked_up_once_a_snapshot(bench: Bench) -> None:
    configs = bench.worker.snapshot._in_force = Counted()
    assert bench.worker.verification.enabled
    before = configs.lookups
    assert before
    assert all(bench.worker.verification.enabled for _ in range(5))
    assert configs.lookups == before


def test_a_change_of_the_setting_counts_from_the_next_snapshot_on(bench: Bench) -> None:
    for value in ("true", "false", "true"):
        bench.configure_brokers(transaction_partition_verification_enable=value)
        bench.turn()
        assert bench.worker.verification.enabled == (value == "true")
