"""KIP-890's verification where one broker leads the partition and another coordinates the transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..clients.admin import unique
from ..clients.raw.calls import list_offsets
from ..clients.transactions import Raw, await_stable
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import coordinator, make_topic

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

INVALID_TXN_STATE, GROUP, TRANSACTION = 48, 0, 1
_NOT_NOW = (14, 15, 16, 19)  # the internal topics are being created


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("verification")
    settings = {"transaction_state_log_min_isr": 2, "transaction_state_log_num_partitions": 3}
    with Cluster(folder, **settings) as running:
        yield running


def named_at(cluster: Cluster, kind: int, broker: int) -> str:
    """A group, or a transactional id, that this broker coordinates."""
    while True:
        name = unique("x")
        if coordinator(cluster, name, kind) == broker:
            return name


@pytest.mark.parametrize("here", range(3))
def test_unadded_partition_is_refused(cluster: Cluster, here: int) -> None:
    topic = make_topic(cluster)
    with cluster.broker(here).wire() as wire:
        raw = Raw(wire, named_at(cluster, TRANSACTION, here))
    for partition in range(3):
        leader = cluster.broker(cluster.wait_leader(topic, partition))
        raw.sequence = 0
        with leader.wire() as raw.wire:
            assert raw.write(topic, b"x", partition=partition).error_code == INVALID_TXN_STATE
            assert list_offsets(raw.wire, topic, -1, partition=partition).offset == 0
        with cluster.broker(here).wire() as raw.wire:
            assert raw.add(topic, partition) == [0]
        raw.sequence = 0
        with leader.wire() as raw.wire:
            assert raw.write(topic, b"x", partition=partition).error_code == 0
    with cluster.broker(here).wire() as raw.wire:
        assert raw.end() == 0
    await_stable(cluster, topic)


@pytest.mark.parametrize("there", range(3))
def test_offsets_of_unadded_group_are_refused(cluster: Cluster, there: int) -> None:
    topic, group = make_topic(cluster), named_at(cluster, GROUP, there)
    with cluster.broker(0).wire() as wire:
        raw = Raw(wire, named_at(cluster, TRANSACTION, 0))
        assert raw.add(topic) == [0]
    codes: list[int] = []

    def commit() -> bool:
        with cluster.broker(there).wire() as raw.wire:
            codes.append(raw.commit_offset(group, topic, 5))
        return codes[-1] not in _NOT_NOW

    wait_until(commit, 60, "an answer")
    assert codes[-1] == INVALID_TXN_STATE
    with cluster.broker(0).wire() as raw.wire:
        assert raw.add_offsets(group) == 0
    wait_until(commit, 60, "an answer")
    assert codes[-1] == 0
    with cluster.broker(0).wire() as raw.wire:
        assert raw.end() == 0
