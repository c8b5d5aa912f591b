"""The requests that each broker gets: examples of kafka.controller.ControllerBrokerRequestBatch."""

from __future__ import annotations

from odradek.cluster.decisions import reassignment
from odradek.cluster.decisions.broker_request_batch import (
    BrokerRequestBatch,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    full_state,
    is_full,
    log_dir_probe,
    requests,
)
from odradek.cluster.decisions.controller_state import ControllerContext
from odradek.cluster.tree.znodes import Partition, TopicNode

from .test_controller_state import P, Q, never, world

ID = bytes(range(16))


def named(state: ControllerContext, told: dict[int, BrokerRequestBatch]) -> dict[int, tuple[list[Partition], ...]]:
    """The partitions of each broker's requests, by kind of request."""
    return {broker: tuple([each.partition for each in part] for part in of) for broker, of in told.items()}


def test_replicas_get_leader_and_isr_and_all_get_metadata() -> None:
    made = world([1, 2, 5], [2])
    made.state.put_topic("t", made.state.topics["t"]._replace(id=ID))
    told = requests(made.state, [P], new=[P])
    leader_and_isr = LeaderAndIsr(P, ID, 1, 1, 0, (1, 2), 0, (1, 2, 5), (), (), True)
    metadata = UpdateMetadata(P, ID, 1, 1, 0, (1, 2), 0, (1, 2, 5), (5,))
    both, one = BrokerRequestBatch([leader_and_isr], [metadata], []), BrokerRequestBatch([], [metadata], [])
    assert told == {1: both, 2: both, 3: one, 4: one}
    assert requests(made.state, [P])[1].leader_and_isr == [leader_and_isr._replace(is_new=False)]


def test_isr_change_of_a_leader_is_sent_to_all_as_metadata() -> None:
    made = world([1, 2], [1, 2])
    assert named(made.state, requests(made.state, [Q], shown=[P, Q]))[1] == ([Q], [Q, P], [])
    assert named(made.state, requests(made.state, shown=[P]))[1] == ([], [P], [])


def test_request_without_partitions_sends_live_brokers_to_all() -> None:
    made = world([1])
    assert requests(made.state) == dict.fromkeys((1, 2, 3, 4), BrokerRequestBatch([], [], []))


def test_broker_in_shutdown_gets_requests_but_is_not_live() -> None:
    made = world([1, 2, 3], [2, 1])
    made.state.shutting_down.add(1)
    plan = made.state.controlled_shutdown(1)
    made.write(plan.changes)
    changed = [change.partition for change in plan.changes]
    told = requests(made.state, changed, stop={(each, 1): False for each in plan.stopped})
    assert named(made.state, told)[1] == ([P], [P, Q], [Q])
    assert told[1].stop == [StopReplica(Q, 1, False)]
    assert [each.offline_replicas for each in told[2].metadata] == [(1,), (1,)]


def test_dead_and_offline_replicas_get_no_request() -> None:
    made = world([1, 2, 3])
    made.state.log_dirs(2, {P}, ())
    made.state.died([1])
    made.after_loss()
    told = requests(made.state, [P], stop={(P, 2): False, (P, 1): False})
    assert named(made.state, told) == {2: ([], [P], [P]), 3: ([P], [P], []), 4: ([], [P], [])}


def test_partition_without_state_is_left_out() -> None:
    made = world([9])
    assert named(made.state, requests(made.state, [P], stop={(P, 1): True}))[1] == ([], [], [P])
    assert requests(made.state, stop={(P, 1): True})[1].stop == [StopReplica(P, -1, True)]


def test_deleting_topic_is_marked_and_stopped() -> None:
    made = world([1, 2])
    made.state.deleting.add("t")
    told = requests(made.state, [P], stop={(P, 1): True})
    assert named(made.state, told) == {1: ([], [P], [P]), **dict.fromkeys((2, 3, 4), ([], [P], []))}
    assert told[1].stop == [StopReplica(P, -2, True)]
    assert told[1].metadata == [UpdateMetadata(P, None, 1, -2, 0, (1, 2), 0, (1, 2), ())]


def test_only_adding_replicas_are_new_in_a_reassignment() -> None:
    made = world([1, 2])
    step = reassignment.begin(made.state, P, reassignment.plan(made.state, P, [2, 3]))
    assert made.follow(step)
    told = requests(made.state, [P], new=step.new, stop=step.stop)
    assert {broker: [each.is_new for each in of.leader_and_isr] for broker, of in told.items()} == {
        1: [False],
        2: [False],
        3: [True],
        4: [],
    }
    assert told[3].leader_and_isr[0][7:10] == ((2, 3, 1), (3,), (1,))
    made.leader_writes(P, [1, 2, 3], seen=True)
    last = reassignment.finish(made.state, P)
    assert last is not None and made.follow(last)
    told = requests(made.state, [P], new=last.new, stop=last.stop)
    assert named(made.state, told) == {1: ([], [P], [P]), 2: ([P], [P], []), 3: ([P], [P], []), 4: ([], [P], [])}


def test_starting_broker_gets_full_state_and_others_learn_of_it() -> None:
    made = world([1, 2], [2, 5], [9])
    made.state.started({5: 105})
    told = full_state(made.state, [5])
    assert named(made.state, told) == {5: ([Q], [P, Q], []), **dict.fromkeys((1, 2, 3, 4), ([], [Q], []))}
    assert told[1].metadata[0].offline_replicas == ()
    assert made.state.brokers_started(never) == []


def test_request_is_full_if_it_names_every_possible_replica() -> None:
    made = world([1, 2], [2, 5], [9])
    assert is_full(made.state, 1)
    made.state.put_topic("u", TopicNode(None, {0: [1]}))
    assert not is_full(made.state, 1)
    assert is_full(made.state, 2)
    made.state.deleting.add("u")
    assert is_full(made.state, 1)


def test_request_is_not_full_while_a_topic_is_malformed() -> None:
    made = world([1, 2])
    made.state.malformed_topics.add("u")
    assert not is_full(made.state, 1)
    made.state.malformed_topics.clear()
    assert is_full(made.state, 1)


def test_starting_broker_gets_state_of_topics_to_delete() -> None:
    made = world([1, 2])
    made.state.deleting.add("t")
    told = full_state(made.state, [1, 3])
    assert [(each.partition, each.leader) for each in told[1].metadata] == [(P, 1)]
    assert told[3].metadata == told[2].metadata == []


def test_topic_with_another_id_is_another_topic() -> None:
    made, other = world([1, 2]), TopicNode(ID, {0: [2]})
    made.state.put_topic("t", other)
    assert (made.state.recreated, P in made.state.partition_states) == (set(), True)  # the topic gets an id
    made.state.put_topic("t", other._replace(id=ID[::-1]))
    assert (made.state.recreated, P in made.state.partition_states) == ({"t"}, False)
    made.state.recreated.clear()
    made.state.drop_topic("t")
    made.state.put_topic("t", other)
    assert made.state.recreated == {"t"}
    made.state.recreated.clear()
    made.state.deleting.add("t")
    made.state.drop_topic("t")
    made.state.put_topic("t", other._replace(id=ID[::-1]))
    assert not made.state.recreated  # its logs are gone


def test_topic_deleted_meanwhile_is_left_out() -> None:
    made = world([1])
    made.state.drop_topic("t")
    made.state.put_topic("u", TopicNode(None, {}))
    assert requests(made.state, [P], shown=[Q])[1] == BrokerRequestBatch([], [], [])


def test_broker_with_failed_directory_gets_all_its_replicas() -> None:
    made = world([1, 2, 3], [2, 1], [1, 3])
    made.state.log_dirs(2, {P}, ())
    assert [each.partition for each in log_dir_probe(made.state, 2).leader_and_isr] == [P, Q]


def test_broker_that_gets_all_its_replicas_gets_full_metadata() -> None:
    """The next process may find a malformed topic node in ZooKeeper, which it publishes only from a full state."""
    made = world([2], [1, 3])
    told = log_dir_probe(made.state, 2)
    assert [each.partition for each in told.leader_and_isr] == [P]
    assert [each.partition for each in told.metadata] == [P, Q]
