"""Patterns of clients: what Python's own match, in a time that no pattern makes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.workers.dispatch.patterns import MOST_NODES, InvalidPattern, Pattern

MANY = "".join(chr(0x800 + at) for at in range(1_500))
ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-c1-3]", "^", "$", "", r"\.", "(?i:A)"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{,2}", "{2,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, texts=st.lists(st.text("abc1.\n", max_size=6), max_size=10))
def test_it_matches_what_python_matches(pattern: str, texts: list[str]) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern, re.DOTALL)
    for text in texts:
        wanted = theirs.fullmatch(text) is not None
        if "$" not in pattern or not text.endswith("\n"):  # where Python's may stand before the last end of line
            assert ours.fullmatch(text) is wanted, (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(a|a)*b", "(a*)*b", "(a+)+$b", ".*.*.*.*.*x", "(.*)(.*)(.*)(.*)x", "(a?){50}a{50}x"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Python's own would not come back from any of these."""
    assert not Pattern(pattern).fullmatch("a" * 5_000)


@pytest.mark.parametrize("pattern", ["(){4000000000}", "(?:){4000000000,}", "((){60000}){60000}a*", "(|){4000000000}"])
def test_nothing_many_times(pattern: str) -> None:
    """Four thousand million times nothing is nothing, and not to be counted."""
    try:
        assert Pattern(pattern).fullmatch("")
    except InvalidPattern:
        assert "|" in pattern, "a choice of nothings is something to this automaton"


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "*a",
        "a{2",
        "[",
        r"(a)\1",
        "(?=a)b",
        r"\bx",
        "(?>a)b",
        "a{1000000}",
        "(" * 30_000,
        "((a{30}){30}){30}",
        "a++",
        f"[{MANY}]{{300}}",
        f"[{MANY}]",
    ],
)
def test_what_is_refused(pattern: str) -> None:
    if pattern == "a{2":  # to Python that is a text
        assert Pattern(pattern).fullmatch(pattern)
        return
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def test_what_takes_too_long_is_given_up() -> None:
    """Each character of this text leads into a set of states that none has led into."""
    pattern = Pattern("(a|b)*a" + "(a|b)" * 200)
    text = "".join("ab"[bin(n * n).count("1") & 1] for n in range(32_000))
    with pytest.raises(InvalidPattern, match="too long"):
        pattern.fullmatch(text)


def test_how_long_a_pattern_may_be() -> None:
    assert Pattern("a" * (MOST_NODES - 1)).fullmatch("a" * (MOST_NODES - 1))
    with pytest.raises(InvalidPattern):
        Pattern("a" * MOST_NODES)
