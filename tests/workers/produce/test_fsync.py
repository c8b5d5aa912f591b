"""A worker's fsync thread while replication truncates and extends the log that it syncs."""

from __future__ import annotations

import threading

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.log import flush, leader_or_follower, truncate
from odradek.storage.log.partition import Partition

from ...harness.process import wait_until
from ...storage.live import batch, put
from ..inprocess import Bench, Client
from ..leading import lead, produce
from .test_acks_all import outcomes


class HeldSync:
    """Blocks `flush.sync_files` in the thread until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go, self._real = threading.Event(), threading.Event(), flush.sync_files
        monkeypatch.setattr(flush, "sync_files", self._sync)

    def _sync(self, paths: list[str]) -> None:
        self.begun.set()
        self.go.wait(60)
        self._real(paths)


def partition_of(bench: Bench) -> Partition:
    found = bench.worker.catalog.log.get("t", 0)
    assert found is not None
    return found


def replaced(partition: Partition, count: int) -> None:
    """Replace the log as a follower of a leader whose log diverges from ours at offset 0 and has `count` records."""
    with partition.locked() as values:
        leader_or_follower.become_follower(partition, values, 1)
        truncate.truncate(partition, values, 0)
    partition.slot.update(state=slots.LEADER)  # append needs a leader; only the replaced records matter here
    put(partition, *[batch(b"theirs") for _ in range(count)])
    partition.slot.update(state=slots.FOLLOWER)


def test_records_that_replace_synced_ones_do_not_count_as_flushed(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSync(monkeypatch)
    bench.configure("t", flush_messages="1")
    slot = lead(bench, [1], [1])
    client.send(produce(client, [b"ours", b"ours"], acks=1))
    wait_until(lambda: bench.turn() or held.begun.is_set(), 60, "the fsync")
    replaced(partition_of(bench), 2)
    held.go.set()
    wait_until(lambda: bench.turn() or outcomes(client), 60, "the answer")
    assert (slot.state().leo, slot.state().flushed) == (2, 0)


def test_batch_appended_during_an_fsync_is_synced_by_the_next_one(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSync(monkeypatch)
    bench.configure("t", flush_messages="1")
    slot = lead(bench, [1], [1])
    client.send(produce(client, [b"a"], acks=1))
    wait_until(lambda: bench.turn() or held.begun.is_set(), 60, "the fsync")
    client.send(produce(client, [b"b"], acks=1))
    wait_until(lambda: bench.turn() or slot.state().leo == 2, 60, "the second batch")
    held.go.set()
    wait_until(lambda: bench.turn() or slot.state().flushed == 2, 60, "both fsyncs")


def test_log_that_goes_offline_during_its_fsync_fails_the_batch(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSync(monkeypatch)
    bench.configure("t", flush_messages="1")
    slot = lead(bench, [1], [1])
    client.send(produce(client, [b"a"], acks=1))
    wait_until(lambda: bench.turn() or held.begun.is_set(), 60, "the fsync")
    slot.update(state=slots.OFFLINE)
    held.go.set()
    found: list[tuple[int, int, int]] = []
    wait_until(lambda: bench.turn() or found.extend(outcomes(client)) or found, 60, "the answer")
    assert [code for _, code, _ in found] == [errors.KAFKA_STORAGE_ERROR]
    assert slot.state().flushed == 0


@pytest.mark.parametrize("where", ["begin", "sync", "publish"])
def test_exception_in_an_fsync_fails_only_the_waiting_batches(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The worker and its fsync thread continue, or no later batch would be synced."""
    bench.configure("t", flush_messages="1")
    with monkeypatch.context() as patch:
        patch.setattr(flush.Flush, where, lambda *_: 1 // 0)
        client.send(produce(client, [b"a"], acks=1))
        found: list[tuple[int, int, int]] = []
        wait_until(lambda: bench.turn() or found.extend(outcomes(client)) or found, 60, "the answer")
    assert [code for _, code, _ in found] == [errors.KAFKA_STORAGE_ERROR]
    client.send(produce(client, [b"b"], acks=1))
    wait_until(lambda: bench.turn() or outcomes(client) == [(2, errors.NONE, 1)], 60, "the next one")
