"""Verification of transactional batches in a worker: its setting in the metadata, and the memory of held batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from odradek.cluster import internal
from odradek.ipc import forward
from odradek.ipc.channel import Listener
from odradek.protocol import errors
from odradek.protocol.batch import TRANSACTIONAL
from odradek.workers.produce import verification

from ...clients.raw import batches, calls
from ..inprocess import Bench, Client


class Counted(dict[str, dict[str, str]]):
    """Dynamic configs that count their lookups."""

    lookups = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_setting_is_looked_up_once_per_snapshot(bench: Bench) -> None:
    configs = bench.worker.snapshot._in_force = Counted()
    assert bench.worker.verification.enabled
    before = configs.lookups
    assert before
    assert all(bench.worker.verification.enabled for _ in range(5))
    assert configs.lookups == before


def test_changed_setting_applies_from_the_next_snapshot(bench: Bench) -> None:
    for value in ("true", "false", "true"):
        bench.configure_brokers(transaction_partition_verification_enable=value)
        bench.turn()
        assert bench.worker.verification.enabled == (value == "true")


def test_overhead_of_held_batches_counts_towards_the_limit(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each small batch is held with its own verification request, also after its client has disconnected."""
    monkeypatch.setattr(verification, "MOST_HELD", 50_000)
    for at in range(100):
        fields: dict[str, Any] = {"producer": 1 + at, "epoch": 0, "sequence": 0, "attributes": TRANSACTIONAL}
        client.send(client.frame(calls.produce_request("t", batches.batch([b"v"], **fields), transactional_id="x")))
    bench.turn(5)
    held = len(bench.worker.verification._waiting)
    assert 10 < held < 50
    bench.worker.coordinator._since -= 60  # the coordinator process is away for too long
    bench.worker.coordinator.tick()
    parts = [frame[4 + 4 + 2 + 1 + 4 + 4 :] for frame in client.answers(100)]
    assert [int.from_bytes(part[:2], "big") for part in parts] == [errors.NOT_ENOUGH_REPLICAS] * 100
    assert bench.worker.verification._held == 0


def test_batch_after_a_refused_one_is_refused_until_the_retry(bench: Bench, client: Client) -> None:
    """Otherwise the partition, which does not know the producer, would accept a later sequence, and the retry fail."""
    listener = Listener(bench.worker.process.run_dir / "coordinator.sock")
    bench.worker._next_tick = 0.0
    bench.turn(2)
    link = listener.accept()
    assert link is not None
    found = []
    for sequence, says in ((0, errors.NOT_COORDINATOR), (1, 0), (0, 0), (1, None)):
        fields: dict[str, Any] = {"producer": 1, "epoch": 0, "sequence": sequence, "attributes": TRANSACTIONAL}
        client.send(client.frame(calls.produce_request("t", batches.batch([b"v"], **fields), transactional_id="x")))
        if says is not None:
            bench.turn(5)
            (asked,) = map(forward.decode, link.receive())
            link.send(forward.encode_reply(asked.token, internal.encode({"error": says})))
        (answer,) = client.answers()
        found.append(struct.unpack_from(">hq", answer, 4 + 4 + 2 + 1 + 4 + 4))
    refused = [(errors.NOT_ENOUGH_REPLICAS, -1), (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert found == [*refused, (errors.NONE, 0), (errors.NONE, 1)]
