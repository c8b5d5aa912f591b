"""The checker finds lost, duplicated and strange ids."""

from __future__ import annotations

import pytest

from .checker import Difference, compare


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (["b", "a", "c"], Difference((), (), ())),
        (["a", "c"], Difference(("b",), (), ())),
        (["a", "b", "a", "c", "a"], Difference((), ("a", "a"), ())),
        (["a", "b", "c", "x"], Difference((), (), ("x",))),
        (["x", "x", "b"], Difference(("a", "c"), ("x",), ("x",))),
    ],
)
def test_differences_are_found(found: list[str], difference: Difference) -> None:
    assert compare(["a", "b", "c"], found) == difference


def test_difference_is_described() -> None:
    assert str(compare("abc", "abc")) == "no difference"
    assert str(compare("abc", "ccx")) == "2 lost: a, b\n1 doubled: c\n1 strange: x"


def test_ids_sent_twice_are_refused() -> None:
    with pytest.raises(AssertionError, match="sent twice"):
        compare("aa", "a")
