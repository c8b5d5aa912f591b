"""What processes have moved of late, added up, and forgotten by being written over."""

from __future__ import annotations

from array import array

import pytest

from odradek.ipc import roles
from odradek.ipc.traffic import ROW, SAMPLES, WORDS, Traffic

FIRST = 5
WORKERS = range(roles.FIRST_WORKER, roles.ROLES)
EVERYBODY = range(roles.ROLES)


@pytest.fixture
def words() -> memoryview:
    return memoryview(array("q", [0]) * (FIRST + WORDS))


def test_what_workers_have_sent_is_added_up(words: memoryview) -> None:
    traffic = Traffic(words, FIRST)
    for role, size in ((WORKERS[0], 5), (WORKERS[-1], 7), (WORKERS[0], 30), (roles.REPLICATOR, 1000)):
        traffic.add(role, 100, size)
    traffic.add(WORKERS[0], 101, 9)
    assert [traffic.total(WORKERS, number) for number in (99, 100, 101)] == [0, 42, 9]
    assert traffic.total(range(roles.REPLICATOR, roles.REPLICATOR + 1), 100) == 1000


def test_an_old_sample_makes_room_for_a_new_one(words: memoryview) -> None:
    traffic = Traffic(words, FIRST)
    traffic.add(0, 3, 10)
    traffic.add(1, 3, 10)
    traffic.add(0, 3 + SAMPLES, 4)
    assert (traffic.total(EVERYBODY, 3), traffic.total(EVERYBODY, 3 + SAMPLES)) == (10, 4)


def test_a_row_is_its_own(words: memoryview) -> None:
    """The first words and those behind the last row belong to others."""
    traffic = Traffic(words, FIRST)
    for number in range(SAMPLES):
        traffic.add(roles.ROLES - 1, number, 1)
        traffic.add(0, number, 1)
    assert not any(words[:FIRST])
    assert sum(words[FIRST + 1 : FIRST + ROW : 2]) == sum(words[-ROW + 1 :: 2]) == SAMPLES
    assert not any(words[FIRST + ROW : -ROW])
