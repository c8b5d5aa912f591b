"""Requests to the controller: elections, preferred leaders, a leader's new ISR; Kafka's error codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.cluster.decisions import admin_requests
from odradek.cluster.rules.errors import ApiError
from odradek.protocol import errors

from ..controller_world import World
from .test_controller_state import P, Q, now, world


def two_led_by_the_second() -> World:
    """P and Q prefer broker 1, which was down: broker 2 leads both, and 1 is in the ISR of P only."""
    made = world([1, 2], [1, 2])
    made.state.died([1])
    made.after_loss()
    made.state.started({1: 300})
    made.leader_writes(P, [2, 1], seen=True)
    return made


def codes(done: admin_requests.ElectionResults) -> dict[tuple[str, int], int]:
    return {partition: error.code for partition, error in done.refused.items()}


def test_preferred_election_needs_a_preferred_replica_in_sync() -> None:
    made = two_led_by_the_second()
    made.create("u", [2])
    made.create("gone", [1, 2])
    made.create("never", [9])
    made.state.deleting.add("gone")
    partitions = [P, Q, ("u", 0), ("gone", 0), ("nope", 0), ("t", 7), ("never", 0), P]
    done = admin_requests.preferred(made.state, partitions)
    assert [(change.partition, change.after[:3]) for change in done.changes] == [(P, (1, (2, 1), 2))]
    assert codes(done) == {
        Q: errors.PREFERRED_LEADER_NOT_AVAILABLE,
        ("u", 0): errors.ELECTION_NOT_NEEDED,
        ("gone", 0): errors.INVALID_TOPIC_EXCEPTION,
        ("nope", 0): errors.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 7): errors.UNKNOWN_TOPIC_OR_PARTITION,
        ("never", 0): errors.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    made.write(done.changes)
    assert admin_requests.preferred(made.state, [P]).changes == []


def test_unclean_election_waits_for_suspected_broker() -> None:
    made = world([1, 2])
    made.leader_writes(P, [1], seen=True)
    made.state.died([1], suspected=True)
    made.after_loss()
    assert codes(admin_requests.unclean(made.state, [P])) == {P: errors.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    made.state.died([1])
    assert [change.after[:2] for change in admin_requests.unclean(made.state, [P]).changes] == [(2, (2,))]


def test_unclean_election_elects_live_replicas() -> None:
    made = world([1, 2], [1, 2], [3], [1, 2])
    made.state.died([2])
    made.after_loss()
    made.state.died([1, 3])
    made.state.started({2: 300})
    made.after_loss()
    made.leader_writes(Q, [2], seen=True)
    made.create("never", [9])
    done = admin_requests.unclean(made.state, [P, Q, ("t", 2), ("never", 0), ("nope", 0)])
    assert [(change.partition, change.after[:2]) for change in done.changes] == [(P, (2, (2,))), (Q, (2, (2,)))]
    none = errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert codes(done) == {("t", 2): none, ("never", 0): none, ("nope", 0): errors.UNKNOWN_TOPIC_OR_PARTITION}
    made.write(done.changes, clean=False)
    assert codes(admin_requests.unclean(made.state, [P])) == {P: errors.ELECTION_NOT_NEEDED}


def test_former_controller_answers_not_controller() -> None:
    made = two_led_by_the_second()
    made.state.put(P, made.nodes[P]._replace(controller_epoch=9))
    assert codes(admin_requests.preferred(made.state, [P])) == {P: errors.NOT_CONTROLLER}


def test_imbalance_is_share_of_preferred_partitions() -> None:
    made = two_led_by_the_second()
    made.create("u", [1, 3], [3, 1], [9])
    assert admin_requests.imbalanced(made.state, 66) == [
        P
    ]  # 2 of 3 are led by other brokers, and one of them can return
    assert admin_requests.imbalanced(made.state, 67) == []
    assert admin_requests.imbalanced(made.state, 10, only=[3]) == []
    assert admin_requests.imbalanced(made.state, 10, only=[1]) == [P]
    made.state.deleting.add("u")
    assert admin_requests.imbalanced(made.state, 99) == [P]
    assert admin_requests.imbalanced(made.state, 100) == []
    made.write(admin_requests.preferred(made.state, admin_requests.imbalanced(made.state, 10)).changes)
    assert now(made)[0] == 1 and admin_requests.imbalanced(made.state, 10) == []


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(ApiError) as error:
        call()
    return error.value.code


def test_suspected_broker_may_request_controlled_shutdown() -> None:
    """The broker has closed its listeners but is registered:

    a refusal would stop it before other brokers lead its partitions.
    """
    state = world([1]).state
    state.died([1], suspected=True)  # its listeners are closed, and it is registered
    admin_requests.check_shutdown(state, 1, 101)
    assert refused(lambda: admin_requests.check_shutdown(state, 1, 100)) == errors.STALE_BROKER_EPOCH
    state.died([1])
    assert refused(lambda: admin_requests.check_shutdown(state, 1, 101)) == errors.BROKER_NOT_AVAILABLE


def test_only_registered_broker_may_request_shutdown() -> None:
    state = world([1]).state  # broker 1 has epoch 101
    for epoch in (-1, 101, 102):
        admin_requests.check_shutdown(state, 1, epoch)
    assert refused(lambda: admin_requests.check_shutdown(state, 1, 100)) == errors.STALE_BROKER_EPOCH
    assert refused(lambda: admin_requests.check_shutdown(state, 8, -1)) == errors.BROKER_NOT_AVAILABLE
