"""Bytes that processes moved recently: summed over roles, and overwritten when they are old."""

from __future__ import annotations

from array import array

import pytest

from odradek.ipc import roles
from odradek.ipc.traffic import ROW, SAMPLES, WORDS, Traffic

FIRST = 5
WORKERS = range(roles.FIRST_WORKER, roles.ROLES)
ALL_ROLES = range(roles.ROLES)


@pytest.fixture
def words() -> memoryview:
    return memoryview(array("q", [0]) * (FIRST + WORDS))


def test_bytes_of_all_workers_are_summed(words: memoryview) -> None:
    traffic = Traffic(words, FIRST)
    for role, size in ((WORKERS[0], 5), (WORKERS[-1], 7), (WORKERS[0], 30), (roles.REPLICATOR, 1000)):
        traffic.add(role, 100, size)
    traffic.add(WORKERS[0], 101, 9)
    assert [traffic.total(WORKERS, number) for number in (99, 100, 101)] == [0, 42, 9]
    assert traffic.total(range(roles.REPLICATOR, roles.REPLICATOR + 1), 100) == 1000


def test_new_sample_overwrites_an_old_one(words: memoryview) -> None:
    traffic = Traffic(words, FIRST)
    traffic.add(0, 3, 10)
    traffic.add(1, 3, 10)
    traffic.add(0, 3 + SAMPLES, 4)
    assert (traffic.total(ALL_ROLES, 3), traffic.total(ALL_ROLES, 3 + SAMPLES)) == (10, 4)


def test_row_writes_only_its_own_words(words: memoryview) -> None:
    """The words before the first row and after the last one belong to other tables."""
    traffic = Traffic(words, FIRST)
    for number in range(SAMPLES):
        traffic.add(roles.ROLES - 1, number, 1)
        traffic.add(0, number, 1)
    assert not any(words[:FIRST])
    assert sum(words[FIRST + 1 : FIRST + ROW : 2]) == sum(words[-ROW + 1 :: 2]) == SAMPLES
    assert not any(words[FIRST + ROW : -ROW])
