"""Fuzzed frames against a live broker of two workers.

A failure prints the case and its seed; `ODRADEK_FUZZ_SEED=n` runs the same cases again, and
`ODRADEK_FUZZ_CASES` sets the number of cases of each kind.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from ..clients.admin import create_named, topic_id
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from .background_client import BackgroundClient
from .golden import Golden, noise
from .grammar import Grammar
from .shooter import shoot, shoot_alone
from .watch import Watch

pytestmark = pytest.mark.live

SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "1"))
ROUND = 500
MOST_GROWTH = 24 << 20
NAMES = [b"fuzz-a", b"fuzz-b", b"fuzz-c", b"fuzz-none", b"", b"1", b"consumer", b"range"]
TOPICS: dict[str, tuple[int, dict[str, Any]]] = {
    "fuzz-a": (2, {}),
    "fuzz-b": (2, {"message_timestamp_type": "LogAppendTime"}),
    "fuzz-c": (1, {"cleanup_policy": "compact"}),  # the broker decodes batches
}
KINDS = ("grammar", "golden", "torn", "noise")
ALONE = ("torn", "noise")

Maker = Callable[[random.Random], bytes]


class Range(NamedTuple):
    """The broker under test, and the makers of cases."""

    broker: Broker
    watch: Watch
    background: BackgroundClient
    grammar: Grammar
    makers: dict[str, Maker]

    def replenish(self) -> None:
        """Create again the topics that cases have deleted, so that cases find their topics."""
        with self.broker.wire() as wire:
            self.grammar.ids[:] = wait_until(lambda: self._made(wire), 60, "the topics")

    def _made(self, wire: Wire) -> list[bytes]:
        """The ids of all topics; none if an unanswered case has deleted one meanwhile."""
        for name, (partitions, config) in TOPICS.items():
            with suppress(AssertionError):  # the topic exists
                create_named(wire, name, partitions, **config)
        with suppress(AssertionError):
            return [topic_id(wire, name).bytes for name in TOPICS]
        return []

    def case(self, kind: str, number: int) -> bytes:
        """Case `number` of a kind, the same each time."""
        return self.makers[kind](random.Random(f"{SEED}/{kind}/{number}"))

    def fire(self, kind: str, numbers: Sequence[int]) -> None:
        """Send these cases."""
        address = (self.broker.host, self.broker.port)
        (shoot_alone if kind in ALONE else shoot)(address, [self.case(kind, number) for number in numbers])

    def culprits(self, kind: str, numbers: Sequence[int]) -> list[str]:
        """The first cases that do harm alone."""
        found = []
        for number in numbers:
            self.fire(kind, [number])
            if self.watch.fault():
                found.append(f"seed {SEED} {kind} {number}: {self.case(kind, number).hex()[:2000]}")
            if len(found) >= 3:
                break
        return found or ["none of them alone"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """A broker, a background client, and makers of cases."""
    broker = Broker(tmp_path_factory.mktemp("fuzz"), group_initial_rebalance_delay_ms=0, auto_create_topics_enable=True)
    try:
        broker.start()
        yield _range(broker)
    finally:
        broker.close()


def _range(broker: Broker) -> Range:
    with broker.wire() as wire:
        grammar = Grammar(wire.api_versions(), NAMES, [])
    golden = Golden(grammar, "fuzz-a", uuid.UUID(int=1), "fuzz-group")
    makers: dict[str, Maker] = {
        "grammar": grammar.frame,
        "golden": golden.mutated,
        "torn": golden.torn,
        "noise": noise,
    }
    return Range(broker, Watch(broker), BackgroundClient(broker), grammar, makers)


def run(target: Range, kind: str, first: int, cases: int) -> None:
    """Fire `cases` cases from number `first` on, and check the broker every ROUND cases."""
    for at in range(first, first + cases, ROUND):
        numbers = range(at, min(at + ROUND, first + cases))
        target.replenish()
        target.fire(kind, numbers)
        harm = target.watch.fault()
        if harm:
            culprits = "\n".join(target.culprits(kind, numbers))
            pytest.fail(f"seed {SEED} {kind} {numbers.start}..{numbers.stop - 1} did harm:\n{harm}\n{culprits}")
        target.background.check()


def cases_of(kind: str, default: int) -> int:
    """The number of cases of a kind."""
    asked = os.environ.get("ODRADEK_FUZZ_CASES")
    return int(asked) if asked else default


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_cases_do_no_harm(target: Range, kind: str) -> None:
    run(target, kind, 0, cases_of(kind, 1000))
    target.background.await_more()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_tens_of_thousands_of_cases_leak_no_memory(target: Range, kind: str) -> None:
    """The second half of the cases must not need more memory than the first."""
    cases = cases_of(kind, 30_000)
    run(target, kind, 1000, cases // 2)
    before = target.watch.memory()
    run(target, kind, 1000 + cases // 2, cases // 2)
    after = target.watch.memory()
    grown = {name: f"{before[name] >> 20} MiB, then {after[name] >> 20}" for name in after}
    print(f"{cases} cases, no harm; memory after half of them and after all: {grown}")
    assert not any(after[name] > before[name] + MOST_GROWTH for name in after), grown


def test_acknowledged_records_are_intact_after_all_cases(target: Range) -> None:
    """Runs last: checks the records of the background client, and the logs on disk."""
    target.background.finish()
    assert not target.watch.fault()
    target.broker.stop()
    checked = target.broker.command("check", str(target.broker.data_dir))
    assert checked.returncode == 0, checked.stdout + checked.stderr
