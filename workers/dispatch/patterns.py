"""Clients' regular expressions, matched in bounded time: no pattern may hold up a process.

Python's `re` backtracks, so `(a|a)*b` takes exponential time. Here a pattern becomes a nondeterministic automaton, as
in RE2, which Kafka uses; the sets of states are computed as a text reaches them, and cached. As in RE2 there are no
back references and no look-around; unlike RE2 there are no word boundaries either. A dot matches any character.
"""

from __future__ import annotations

import re
import re._constants as sre  # type: ignore[import-not-found]  # typeshed does not have it
import re._parser as parser  # type: ignore[import-not-found]  # typeshed does not have it
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

MOST_NODES = 1_000
"""States and, in brackets, alternative characters and ranges, each counted as often as it is repeated."""
MOST_WORK = 300_000
"""Visits of nodes for one pattern, a tenth of a second and some MiB; cached sets cost none."""

Test = Callable[[str], bool]


class InvalidPattern(ValueError):
    """The text is no pattern, or an unsupported one, or one that takes too long."""


class _Node(NamedTuple):
    """A state: with `test` it consumes a character and goes to `to`; else it goes there at once, if `at` holds."""

    to: list[int]
    test: Test | None = None
    at: Any = None


class Pattern:
    """A pattern that a whole text must match."""

    def __init__(self, text: str) -> None:
        self._nodes: list[_Node] = []
        self._size = 0
        try:
            parsed = parser.parse(text)
            self._end = self._node(_Node([]))
            self._start = self._sequence(parsed, self._end, parsed.state.flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidPattern(str(error)) from None
        self._work = 0
        self._first = self._closure([self._start], begin=True)
        self._transitions: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fullmatch(self, text: str) -> bool:
        """Whether all of `text` matches. Raises InvalidPattern when this pattern has taken too long in total."""
        states = self._first
        for character in text:
            following = self._transitions.get((states, character))
            if following is None:
                following = self._transitions[states, character] = self._step(states, character)
            if not following:
                return False
            states = following
        return self._end in self._closure(states, begin=not text, end=True)

    # -- running

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        nodes = self._nodes
        self._work += len(states)
        taken = [to for at in states if (test := nodes[at].test) is not None and test(character) for to in nodes[at].to]
        return self._closure(taken)

    def _closure(self, states: Iterable[int], begin: bool = False, end: bool = False) -> frozenset[int]:
        """These states and those they reach without a character; an end anchor passes at the end only."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            node = self._nodes[at]
            if node.test is None and (node.at is None or (begin if node.at in _BEGIN else end)):
                waiting += node.to
        self._work += len(found) + 1
        if self._work > MOST_WORK:
            raise InvalidPattern("it takes too long")
        return frozenset(found)

    # -- building, from the end to the start: each method returns the first state of the part that continues at `to`

    def _node(self, node: _Node) -> int:
        self._grow(1)
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MOST_NODES:
            raise InvalidPattern("it is too long")

    def _sequence(self, parts: Iterable[tuple[Any, Any]], to: int, flags: int) -> int:
        for op, value in reversed(list(parts)):
            to = self._part(op, value, to, flags)
        return to

    def _part(self, op: Any, value: Any, to: int, flags: int) -> int:
        if op is sre.BRANCH:
            return self._node(_Node([self._sequence(each, to, flags) for each in value[1]]))
        if op is sre.SUBPATTERN:
            return self._sequence(value[3], to, (flags | value[1]) & ~value[2])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, parts = value
            return self._repeat(least, most, parts, to, flags)
        if op is sre.AT and value in _BEGIN | _END:
            return self._node(_Node([to], at=value))
        if op is sre.IN:
            self._grow(len(value))  # each costs a test
        test = _test(op, value)
        return self._node(_Node([to], _any_case(test) if flags & re.IGNORECASE else test))

    def _repeat(self, least: int, most: int, parts: Any, to: int, flags: int) -> int:
        if most is sre.MAXREPEAT:
            loop = self._node(_Node([to]))
            self._nodes[loop].to.append(self._sequence(parts, loop, flags))
            to = loop
        else:
            after = to
            for _ in range(most - least):
                to = self._node(_Node([after, self._sequence(parts, to, flags)]))
        for _ in range(least):
            begin = self._sequence(parts, to, flags)
            if begin == to:  # an empty part, repeated
                break
            to = begin
        return to


_BEGIN = frozenset({sre.AT_BEGINNING, sre.AT_BEGINNING_STRING})
_END = frozenset({sre.AT_END, sre.AT_END_STRING})
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _test(op: Any, value: Any) -> Test:
    """The test for one character."""
    if op is sre.LITERAL:
        return chr(value).__eq__
    if op is sre.NOT_LITERAL:
        return chr(value).__ne__
    if op is sre.ANY:
        return lambda character: True
    if op is sre.RANGE:
        return lambda character: value[0] <= ord(character) <= value[1]
    if op is sre.CATEGORY:
        matches = re.compile(_CATEGORIES[value]).match
        return lambda character: matches(character) is not None
    if op is sre.IN:
        negated = value[0][0] is sre.NEGATE
        tests = [_test(*each) for each in value[negated:]]
        return lambda character: any(test(character) for test in tests) is not negated
    raise InvalidPattern(f"{str(op).lower()} is not served")


def _any_case(test: Test) -> Test:
    return lambda character: test(character) or test(character.lower()) or test(character.upper())
