"""Regular expressions of clients match as in Python, in bounded time."""

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
def test_pattern_matches_as_in_python(pattern: str, texts: list[str]) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern, re.DOTALL)
    for text in texts:
        wanted = theirs.fullmatch(text) is not None
        if "$" not in pattern or not text.endswith("\n"):  # in Python, $ also matches before a final line break
            assert ours.fullmatch(text) is wanted, (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(a|a)*b", "(a*)*b", "(a+)+$b", ".*.*.*.*.*x", "(.*)(.*)(.*)(.*)x", "(a?){50}a{50}x"]
)
def test_catastrophic_pattern_is_matched_quickly(pattern: str) -> None:
    """Python's own engine would not finish any of these."""
    assert not Pattern(pattern).fullmatch("a" * 5_000)


@pytest.mark.parametrize("pattern", ["(){4000000000}", "(?:){4000000000,}", "((){60000}){60000}a*", "(|){4000000000}"])
def test_empty_pattern_repeated_four_billion_times(pattern: str) -> None:
    """A repeated empty pattern is empty, and must not be expanded."""
    try:
        assert Pattern(pattern).fullmatch("")
    except InvalidPattern:
        assert "|" in pattern, "this automaton has states for a choice of empty patterns"


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
def test_unsupported_or_too_large_pattern_is_refused(pattern: str) -> None:
    if pattern == "a{2":  # in Python, this is a literal
        assert Pattern(pattern).fullmatch(pattern)
        return
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def test_match_that_takes_too_long_is_aborted() -> None:
    """Each character of this text leads to a new set of states."""
    pattern = Pattern("(a|b)*a" + "(a|b)" * 200)
    text = "".join("ab"[bin(n * n).count("1") & 1] for n in range(32_000))
    with pytest.raises(InvalidPattern, match="too long"):
        pattern.fullmatch(text)


def test_size_of_a_pattern_is_bounded() -> None:
    assert Pattern("a" * (MOST_NODES - 1)).fullmatch("a" * (MOST_NODES - 1))
    with pytest.raises(InvalidPattern):
        Pattern("a" * MOST_NODES)
