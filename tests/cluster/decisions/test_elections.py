"""The four leader elections: examples, and all small cases compared with Apache Kafka's controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.elections import ElectionResult

from ...harness import java

FACTS = str(Path(__file__).with_name("ControllerFacts.java"))
IDS = range(4)


def lines(what: str) -> list[list[str]]:
    """ControllerFacts' lines about `what`, as words."""
    return [line.split(" ") for line in java.run("3.9.1", FACTS, what).stdout.decode().splitlines()]


def ids(text: str) -> tuple[int, ...]:
    """`.201` → (2, 0, 1)."""
    return tuple(int(digit) for digit in text[1:])


def members(mask: str) -> set[int]:
    return {broker for broker in IDS if int(mask) & 1 << broker}


def word(elected: ElectionResult | None) -> str:
    return "-" if elected is None else f"{elected.leader}:.{''.join(map(str, elected.isr))}"


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_every_small_case_equals_kafkas_controller() -> None:
    cases = lines("elections")
    assert len(cases) == 4 * 64 * 3**4  # replicas, ISR, each broker up, down or stopping
    for count, isr_text, alive, stopping, *theirs in cases:
        assignment, isr = tuple(range(int(count))), ids(isr_text)
        live, shutting_down = members(alive) - members(stopping), members(stopping)
        ours = [
            elections.offline(assignment, isr, live),
            elections.offline(assignment, isr, live, unclean=True),
            elections.reassignment(assignment, isr, live),
            elections.preferred(assignment, isr, live),
            elections.controlled_shutdown(assignment, isr, live, shutting_down),
        ]
        assert [word(elected) for elected in ours] == theirs, (count, isr_text, alive, stopping)


def test_offline_election_takes_the_first_isr_member_and_keeps_the_isr_order() -> None:
    assert elections.offline([1, 2, 3], [3, 2, 1], {2, 3}) == ElectionResult(2, (3, 2))
    assert elections.offline([1, 2, 3], [1], {2, 3}) is None
    assert elections.offline([1, 2, 3], [1], {2, 3}, unclean=True) == ElectionResult(2, (2,), unclean=True)
    assert elections.offline([1, 2, 3], [3], {2, 3}, unclean=True) == ElectionResult(3, (3,))
    assert elections.offline([1, 2, 3], [1], set(), unclean=True) is None


def test_preferred_leader_is_first_replica_or_none() -> None:
    assert elections.preferred([1, 2], [2, 1], {1, 2}) == ElectionResult(1, (2, 1))
    assert elections.preferred([1, 2], [2], {1, 2}) is None
    assert elections.preferred([1, 2], [1, 2], {2}) is None
    assert elections.preferred([], [], {1}) is None


def test_reassignment_elects_only_target_replicas() -> None:
    assert elections.reassignment([4, 5], [1, 5, 4], {1, 5}) == ElectionResult(5, (1, 5, 4))
    assert elections.reassignment([4, 5], [1], {1, 4, 5}) is None


def test_broker_in_shutdown_leaves_leadership_and_isr() -> None:
    assert elections.controlled_shutdown([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1}) == ElectionResult(2, (2, 3))
    assert elections.controlled_shutdown([1, 2, 3], [1, 2, 3], {3}, {1}) == ElectionResult(3, (2, 3))
    assert elections.controlled_shutdown([1, 2], [1], {1, 2}, {1}) is None
