"""Idempotent producers, batch by batch: duplicates, sequence gaps, fencing, and their state after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from ..harness.wire import Wire
from .admin import create_topic
from .raw.batches import batch, parse
from .raw.calls import fetch, list_offsets, produce, producer_id

pytestmark = pytest.mark.live

OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER = 45, 47, 59


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


def send(wire: Wire, topic: str, producer: tuple[int, int], sequence: int, count: int = 1, **options: Any) -> Any:
    values = [b"%d" % (sequence + at) for at in range(count)]
    data = batch(values, producer=producer[0], epoch=producer[1], sequence=sequence)
    return produce(wire, topic, data, **options)


def end(wire: Wire, topic: str) -> int:
    return list_offsets(wire, topic, -1).offset


def test_producer_ids_are_unique_over_connections(broker: Any) -> None:
    found = []
    for _ in range(8):
        with broker.wire() as wire:
            found += [producer_id(wire) for _ in range(20)]
    assert len({number for number, _ in found}) == 160
    assert {epoch for _, epoch in found} == {0}


def test_duplicates_get_their_first_offset(broker: Any, wire: Wire) -> None:
    """The last five batches of a producer are remembered."""
    topic, me = create_topic(broker), producer_id(wire)
    offsets = [send(wire, topic, me, at * 3, 3).base_offset for at in range(6)]
    assert offsets == [0, 3, 6, 9, 12, 15]
    for at in range(1, 6):
        again = send(wire, topic, me, at * 3, 3)
        assert (again.error_code, again.base_offset) == (0, at * 3)
    assert end(wire, topic) == 18
    assert [r.value for r in parse(fetch(wire, topic, 0).records)] == [b"%d" % at for at in range(18)]


def test_duplicates_over_another_connection_get_their_first_offset(broker: Any, wire: Wire) -> None:
    """A producer that reconnects may reach another worker, which must know the batches of the first one."""
    topic, me = create_topic(broker), producer_id(wire)
    for at in range(10):
        for _ in range(3):
            with broker.wire() as other:
                answer = send(other, topic, me, at)
                assert (answer.error_code, answer.base_offset) == (0, at)
    assert end(wire, topic) == 10


def test_duplicate_older_than_five_batches_is_out_of_order(broker: Any, wire: Wire) -> None:
    """The broker remembers five batches of a producer."""
    topic, me = create_topic(broker), producer_id(wire)
    for at in range(7):
        assert send(wire, topic, me, at).error_code == 0
    assert send(wire, topic, me, 0).error_code == OUT_OF_ORDER
    assert end(wire, topic) == 7


def test_a_sequence_gap_is_out_of_order(broker: Any, wire: Wire) -> None:
    topic, me = create_topic(broker), producer_id(wire)
    assert send(wire, topic, me, 0, 2).error_code == 0
    for sequence in (3, 1, 100):
        answer = send(wire, topic, me, sequence, 3)
        assert (answer.error_code, answer.base_offset) == (OUT_OF_ORDER, -1)
    assert send(wire, topic, me, 2).error_code == 0


def test_new_producer_may_begin_with_any_sequence(broker: Any, wire: Wire) -> None:
    """The broker may have forgotten the producer (expiry, deleted records), so it accepts any first sequence."""
    topic, me = create_topic(broker), producer_id(wire)
    assert send(wire, topic, me, 5).error_code == 0
    assert send(wire, topic, me, 6).error_code == 0


def test_a_higher_epoch_fences_the_lower(broker: Any, wire: Wire) -> None:
    topic, (number, epoch) = create_topic(broker), producer_id(wire)
    assert send(wire, topic, (number, epoch), 0).error_code == 0
    assert send(wire, topic, (number, epoch + 1), 5).error_code == OUT_OF_ORDER, "a new epoch begins at 0"
    assert send(wire, topic, (number, epoch + 1), 0).error_code == 0
    assert send(wire, topic, (number, epoch), 1).error_code == INVALID_EPOCH
    assert send(wire, topic, (number, epoch + 1), 1).error_code == 0
    assert end(wire, topic) == 3


def test_sequences_wrap(broker: Any, wire: Wire) -> None:
    topic, me = create_topic(broker), producer_id(wire)
    top = 2**31 - 1
    assert send(wire, topic, me, top - 1, 2).error_code == 0
    assert send(wire, topic, me, 0, 2).error_code == 0
    again = send(wire, topic, me, top - 1, 2)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert send(wire, topic, me, 2).base_offset == 4


def test_one_batch_spans_the_sequence_wrap(broker: Any, wire: Wire) -> None:
    topic, me = create_topic(broker), producer_id(wire)
    assert send(wire, topic, me, 2**31 - 2, 4).error_code == 0
    assert send(wire, topic, me, 2, 1).base_offset == 4


def test_partitions_have_their_own_sequences(broker: Any, wire: Wire) -> None:
    topic, me = create_topic(broker, partitions=2), producer_id(wire)
    assert send(wire, topic, me, 0, partition=0).error_code == 0
    assert send(wire, topic, me, 0, partition=1).error_code == 0
    assert send(wire, topic, me, 2, partition=1).error_code == OUT_OF_ORDER


def test_producers_of_one_partition_have_their_own_sequences(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    producers = [producer_id(wire) for _ in range(50)]
    for sequence in range(4):
        for me in producers:
            assert send(wire, topic, me, sequence).error_code == 0
    for me in producers:
        assert send(wire, topic, me, 3).error_code == 0
        assert send(wire, topic, me, 9).error_code == OUT_OF_ORDER
    assert end(wire, topic) == 200


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_producer_state_survives_a_restart(fresh_broker: Any, kill: bool) -> None:
    broker = fresh_broker()
    with broker.wire() as wire:
        topic, me = create_topic(broker), producer_id(wire)
        for at in range(4):
            assert send(wire, topic, me, at).error_code == 0
    broker.restart(kill=kill)
    with broker.wire() as wire:
        again = send(wire, topic, me, 3)
        assert (again.error_code, again.base_offset) == (0, 3)
        assert send(wire, topic, me, 5).error_code == OUT_OF_ORDER
        assert send(wire, topic, (me[0], me[1] - 1), 4).error_code == INVALID_EPOCH
        assert send(wire, topic, me, 4).base_offset == 4
        assert producer_id(wire)[0] > me[0]


def test_expired_producer_may_begin_with_any_sequence(fresh_broker: Any) -> None:
    """`producer.id.expiration.ms` sets when a producer expires."""
    from ..harness.process import wait_until

    # Long enough that the producer does not expire before the second batch.
    broker = fresh_broker(producer_id_expiration_ms=8000, producer_id_expiration_check_interval_ms=200)
    with broker.wire() as wire:
        topic, me = create_topic(broker), producer_id(wire)
        assert send(wire, topic, me, 0).error_code == 0
        assert send(wire, topic, me, 9).error_code == OUT_OF_ORDER
        wait_until(lambda: send(wire, topic, me, 9).error_code == 0, 60, "the producer is forgotten")
