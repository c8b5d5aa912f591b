"""Rows of the quota table: claimed once, reused when idle, also if a process dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.ipc import quotas
from odradek.ipc.quotas import ROWS, QuotaTable, digest_of

SIZE = 5


@pytest.fixture
def two(prefix: str, tmp_path: Path) -> Iterator[tuple[QuotaTable, QuotaTable]]:
    """Two tables as in two processes: each opens the lock file itself."""
    quotas.create(prefix, 1, SIZE)
    yield QuotaTable(prefix, tmp_path), QuotaTable(prefix, tmp_path)


def _idle(samples: memoryview) -> bool:
    return not samples[0]


def _busy(table: QuotaTable, row: int) -> None:
    table.samples(row)[0] = 1


def test_a_quota_has_one_row(two: tuple[QuotaTable, QuotaTable]) -> None:
    alice, bob = digest_of("produce", "alice", ""), digest_of("produce", "bob", "")
    row = two[0].claim(alice, _idle)
    assert row is not None
    _busy(two[0], row)
    assert two[1].find(alice) == two[1].claim(alice, _idle) == row
    assert two[1].claim(bob, _idle) not in (None, row)


def test_idle_row_is_reused(two: tuple[QuotaTable, QuotaTable]) -> None:
    names = [digest_of(str(number)) for number in range(ROWS + 1)]
    for row, name in enumerate(names[:ROWS]):
        assert two[0].claim(name, _idle) == row
        _busy(two[0], row)
        two[0].samples(row)[SIZE - 1] = 7
    assert two[1].claim(names[ROWS], _idle) is None
    two[0].samples(3)[0] = 0
    assert two[1].claim(names[ROWS], _idle) == 3
    assert not two[0].belongs_to(3, names[3])
    assert list(two[0].samples(3)) == [0] * SIZE
    assert list(two[0].samples(4)) == [1, *[0] * (SIZE - 2), 7]


def test_locked_row_is_not_claimed(two: tuple[QuotaTable, QuotaTable]) -> None:
    assert two[0].lock(0)
    assert not two[1].lock(0)
    assert two[1].claim(digest_of("a"), _idle) == 1
    two[0].unlock(0)
    assert two[1].claim(digest_of("b"), _idle) == 0


@pytest.mark.parametrize("stores", range(SIZE + 4))
def test_row_can_be_claimed_after_death_at_any_store(two: tuple[QuotaTable, QuotaTable], stores: int) -> None:
    former, taker = digest_of("former"), digest_of("taker")
    assert two[0].claim(former, _idle) == 0
    two[0].samples(0)[SIZE - 1] = 9
    two[0]._words = Dying(two[0]._words, stores)  # type: ignore[assignment]  # a test double
    try:
        two[0].claim(taker, _idle)
    except Killed:
        pass
    samples = list(two[1].samples(0))
    assert samples[-1] == (9 if two[1].find(former) == 0 else 0) or two[1].find(taker) is None
    assert two[1].claim(taker, _idle) == 0
    assert list(two[1].samples(0)) == [0] * SIZE


class Killed(BaseException):
    """A process ends here."""


class Dying:
    """Words of a process that is killed after `stores` stores."""

    def __init__(self, words: memoryview, stores: int) -> None:
        self.words = words
        self.left = stores

    def __getitem__(self, at: int | slice) -> int | memoryview:
        return self.words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if not self.left:
            raise Killed
        self.left -= 1
        self.words[at] = value


def test_digests_of_different_names_differ() -> None:
    names = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("\ud800",)]
    assert len({digest_of(*one) for one in names}) == len(names)
