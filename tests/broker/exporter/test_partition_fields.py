"""Fields of many slots in one read equal each slot's own fields, also during updates."""

from __future__ import annotations

import os
import signal

import numpy as np

from odradek.broker.exporter import partition_fields
from odradek.ipc.shm import Shared
from odradek.ipc.slots import CHUNK, FIELDS


def _numbers(*numbers: int) -> partition_fields.Numbers:
    return np.array(numbers, np.int64)


def test_fields_are_those_of_each_slot(shared: Shared) -> None:
    shared.slots.create(3 * CHUNK)
    numbers = _numbers(2 * CHUNK + 5, 3, CHUNK - 1, CHUNK, 0)
    for number in numbers.tolist():
        for round_ in range(number % 3):  # both copies are used
            shared.slots[number].publish([1000 * number + round_ + field for field in range(len(FIELDS))])
    found = partition_fields.read(shared.slots, numbers)
    assert found.tolist() == [list(shared.slots[number].read()) for number in numbers.tolist()]


def test_no_partitions(shared: Shared) -> None:
    assert partition_fields.read(shared.slots, _numbers()).shape == (0, len(FIELDS))


def test_a_region_that_was_added_later_is_found(shared: Shared) -> None:
    other = Shared.attach(shared.prefix)
    grown = shared.slots.capacity
    shared.slots.create(grown + CHUNK)
    shared.slots[grown + 1].publish([7] * len(FIELDS))
    assert partition_fields.read(other.slots, _numbers(grown + 1)).tolist() == [[7] * len(FIELDS)]


def test_rows_are_whole_while_slots_are_published(shared: Shared) -> None:
    pid = os.fork()
    if not pid:
        _publish_for_ever(shared.prefix)
    try:
        numbers, last = _numbers(*range(8)), np.zeros(8, np.int64)
        for _ in range(2000):
            found = partition_fields.read(shared.slots, numbers)
            assert (found == found[:, :1]).all(), "a row mixes two states"
            assert (found[:, 0] >= last).all(), "a row returns to a former state"
            last = found[:, 0]
        assert last.min() > 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _publish_for_ever(prefix: str) -> None:
    table, number = Shared.attach(prefix).slots, 0
    while True:
        number += 1
        for slot in range(8):
            table[slot].publish([number] * len(FIELDS))
