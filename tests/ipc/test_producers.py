"""The producer table: a hash table in shared memory against a dict."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.ipc import region
from odradek.ipc.producers import KEPT, ProducerBatch, ProducerTable
from odradek.ipc.region import SharedMemoryFull


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 5)), max_size=120))
@settings(max_examples=60)
def test_table_equals_a_dict_of_the_last_five_batches(appends: list[tuple[int, int, int]]) -> None:
    name = f"/odradek-test{secrets.token_hex(4)}-p"
    table = ProducerTable.create(name, 1)
    model: dict[int, tuple[int, list[ProducerBatch]]] = {}
    try:
        offset = 0
        for producer, epoch, count in appends:
            at = table.find(producer)
            assert (at >= 0) == (producer in model)
            if at < 0:
                if not table.has_room(1):
                    grown = ProducerTable.create(name + "2", 1, len(model) + 1)
                    for entry in table.entries():
                        grown.load(entry)
                    table = grown
                at = table.insert(producer, epoch)
            batch = ProducerBatch(offset, offset + count - 1, offset, offset + count - 1, offset)
            offset += count
            table.append(at, (producer, epoch, *batch, 0))
            known_epoch, batches = model.get(producer, (epoch, []))
            model[producer] = (epoch, [*(batches if known_epoch == epoch else []), batch][-KEPT:])
        found = {entry.producer_id: (entry.epoch, list(entry.batches)) for entry in table.entries()}
        assert found == model
        for producer, (_, batches) in model.items():
            at = table.find(producer)
            assert table.last_sequence(at) == batches[-1].last_sequence
            for batch in batches:
                original = batch.base_offset, batch.timestamp
                assert table.duplicate(at, batch.first_sequence, batch.last_sequence) == original
    finally:
        region.unlink_all(name)


def test_appending_the_last_batch_again_changes_nothing() -> None:
    name = f"/odradek-test{secrets.token_hex(4)}-p"
    try:
        table = ProducerTable.create(name, 1)
        at = table.insert(0, 0)
        for n in range(7):
            table.append(at, (0, 0, n, n, n, n, 1, 0))
        before = table.entry(at)
        table.append(at, (0, 0, 6, 6, 6, 6, 1, 0))
        assert table.entry(at) == before
        assert [batch.base_offset for batch in before.batches] == [2, 3, 4, 5, 6]
    finally:
        region.unlink_all(name)


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=8), min_size=1, max_size=8))
@settings(max_examples=60)
def test_append_known_equals_single_appends(appends: list[list[int]]) -> None:
    names = [f"/odradek-test{secrets.token_hex(4)}-{which}" for which in "ab"]
    one, other = (ProducerTable.create(name, 1) for name in names)
    try:
        assert not one.append_known(7, 0, [(0, 0, 0, 5)]), "the producer is unknown"
        places = [table.insert(7, 0) for table in (one, other)]
        assert one.find(7) == places[0]
        offset = 0
        for counts in appends:
            entries = []
            for count in counts:
                last = offset + count - 1
                entries.append((offset << 32 | last, offset, last, offset + 9))
                other.append(places[1], (7, 0, offset, last, offset, last, offset + 9, 0))
                offset += count
            assert one.append_known(7, 0, entries)
            assert list(one.entries()) == list(other.entries())
        assert not one.append_known(7, 1, [(0, offset, offset, 5)]), "another epoch forgets the former batches"
        assert list(one.entries()) == list(other.entries())
    finally:
        for table, name in zip((one, other), names, strict=True):
            table.close()
            region.unlink(name)


def test_first_unstable_offset_is_of_the_earliest_open_transaction() -> None:
    name = f"/odradek-test{secrets.token_hex(4)}-p"
    try:
        table = ProducerTable.create(name, 1)
        one, two = table.insert(1, 0), table.insert(2, 0)
        assert table.first_unstable() == -1
        table.begin(two, 30)
        table.begin(one, 10)
        table.begin(one, 20)
        assert table.first_unstable() == 10
        assert table.first_unstable(without=1) == 30
        table.end(one, 0, 3, 99, 40)
        assert table.first_unstable() == 30
        table.end(two, 1, 3, 99, 41)
        assert (table.first_unstable(), table.entry(two).epoch) == (-1, 1)
    finally:
        region.unlink_all(name)


def test_largest_producer_id_has_an_entry() -> None:
    """Any client may send this ID; a value that does not fit a word would fail every later holder of the lock."""
    name, largest = f"/odradek-test{secrets.token_hex(4)}-p", (1 << 63) - 1
    try:
        table = ProducerTable.create(name, 1)
        at = table.insert(largest, 3)
        table.append(at, (0, 3, 0, 0, 10, 10, 5, 0))
        assert table.find(largest) == at
        assert table.find(0) < 0
        table.begin(at, 10)
        assert (table.first_unstable(), table.first_unstable(largest)) == (10, -1)
        assert [entry.producer_id for entry in table.entries()] == [largest]
    finally:
        region.unlink(name)


def test_search_in_a_full_table_ends() -> None:
    """Storage keeps free entries; without them, the holder of the partition's lock must not search for ever."""
    name = f"/odradek-test{secrets.token_hex(4)}-"
    try:
        table, other = ProducerTable.create(f"{name}p", 1), ProducerTable.create(f"{name}q", 1)
        places = {one: table.insert(one, 0) for one in range(table.capacity)}
        before = table.words.tolist()
        assert table.find(1000) == -1
        with pytest.raises(SharedMemoryFull):
            table.insert(1000, 0)
        assert table.words.tolist() == before
        assert {one: table.find(one) for one in places} == places
        at = other.insert(1000, 0)
        with pytest.raises(SharedMemoryFull):
            table.copy_from(other, [at])
    finally:
        region.unlink_all(name)
