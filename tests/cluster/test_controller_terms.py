"""Controller terms: elections while ZooKeeper is away at the worst moment, and writes of a former controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.controller.elected.candidate import Candidate
from odradek.broker.controller.elected.controller_node import ControllerLease
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.cluster import admin_writes
from odradek.cluster.decisions.elections import NO_LEADER
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.metadata import view
from odradek.cluster.metadata.view import View
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import CHILDREN, BadVersion, Check, Event, NodeExists, TreeUnavailable
from odradek.cluster.tree.znodes import PartitionState, TopicNode
from odradek.protocol.errors import NONE, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH

from .simulation.history import History
from .simulation.seams import installed
from .simulation.world import Killed


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of which no broker has started, with Kafka's nodes in its tree."""
    history = History(1, unclean=False, aside=0.0)
    with installed(history.world, history.cluster.codec, history.cluster.sockets, 1):
        tree = history.cluster.zookeeper.connect(0, lambda: None)
        for path in znodes.PERSISTENT:
            tree.ensure(path)
        yield history.cluster


def tree_of(cluster: Any, broker: int) -> Any:
    return cluster.zookeeper.connect(broker, lambda: None)


def candidate(cluster: Any, tree: Any, on_unclean: Callable[[], None] = lambda: None) -> Candidate:
    config, unused = cluster.brokers[tree.broker].config, Any
    orders = ControllerRequests(View(tree.broker, "c"), unused, lambda: None)  # type: ignore[arg-type]  # a test double
    return Candidate(config, tree, orders, unused, lambda *_: None, lambda action: action(), on_unclean)  # type: ignore[arg-type]  # a test double


def test_controller_starts_although_connection_is_lost(cluster: Any) -> None:
    tree = tree_of(cluster, 1)
    one = candidate(cluster, tree)
    watched = tree.exists

    def exists(path: str, watch: bool = False) -> Any:
        if path == znodes.CONTROLLER and cluster.zookeeper.nodes.get(path) is not None:
            raise TreeUnavailable(path)
        return watched(path, watch)

    tree.exists = exists
    with pytest.raises(TreeUnavailable):
        one.run()
    assert one.elected is None and one.undecided
    tree.exists = watched
    one.run()
    assert one.elected is not None and not one.undecided


def test_controller_reloads_although_watch_fails(cluster: Any) -> None:
    tree = tree_of(cluster, 1)
    one = candidate(cluster, tree)
    one.run()
    told: list[str] = []
    one.elected = SimpleNamespace(reconnected=lambda: told.append("stale"))  # type: ignore[assignment]  # a test double

    def exists(path: str, watch: bool = False) -> Any:
        raise TreeUnavailable(path)

    tree.exists = exists
    with pytest.raises(TreeUnavailable):
        one.reconnected()
    assert told == ["stale"]


class FailingWrite:
    """One write fails, while the connection to ZooKeeper stays."""

    def __init__(self, tree: Any) -> None:
        self.writes = 0
        self._each, tree.each = tree.each, self.each

    def each(self, transactions: Any) -> Any:
        states = [one for one in transactions if any(step.path.endswith("/state") for step in one)]
        if states and not self.writes:
            self.writes = len(states)
            return [TreeUnavailable("/") for _ in transactions]
        return self._each(transactions)


def broker_1_elected(cluster: Any, tree: Any, on_unclean: Callable[[], None] = lambda: None) -> Any:
    """Broker 1 is the controller; a topic has a partition without a leader."""
    tree.create(f"{znodes.BROKER_IDS}/1", znodes.encode_broker({"P": ("h", 1)}, {"P": "PLAINTEXT"}, None, 0))
    tree.create(znodes.topic_path("t"), znodes.encode_topic(TopicNode(bytes(15) + b"t", {0: [1]})))
    one = candidate(cluster, tree, on_unclean)
    one.run()
    elected: Any = one.elected
    orders = SimpleNamespace(
        leader_and_isr=lambda *_: None, update_metadata=lambda *_: None, stop_replica=lambda *_: None
    )
    elected.broker_requests._own_requests = orders
    return elected


def test_failed_write_is_retried_on_same_connection(cluster: Any) -> None:
    tree, path = tree_of(cluster, 1), znodes.state_path("t", 0)
    elected = broker_1_elected(cluster, tree)
    away = FailingWrite(tree)
    with pytest.raises(TreeUnavailable):
        elected.tick(cluster.world.now)
    assert away.writes and tree.find(path) is None
    assert elected.due() < cluster.world.now + 1
    elected.tick(elected.due())
    assert tree.find(path) is not None


def test_unclean_elections_are_counted_and_logged(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Not the first election, nor one that an in-sync replica wins, nor one whose write fails."""
    tree, counted = tree_of(cluster, 1), []
    elected = broker_1_elected(cluster, tree, lambda: counted.append(1))
    elected.tick(cluster.world.now)
    for name, isr in (("lost", [2]), ("kept", [1, 2])):
        tree.create(znodes.topic_path(name), znodes.encode_topic(TopicNode(name.zfill(16).encode(), {0: [2, 1]})))
        for path in (znodes.partitions_path(name), znodes.partition_path(name, 0)):
            tree.create(path)
        tree.create(znodes.state_path(name, 0), znodes.encode_state(PartitionState(NO_LEADER, 3, isr, 1)))
    elected.reconnected()
    elected.tick(elected.due())
    assert leader_of(tree, "t") == leader_of(tree, "kept") == 1 and leader_of(tree, "lost") == NO_LEADER
    cluster.invariants.allowed.add("lost")
    away = FailingWrite(tree)
    with pytest.raises(TreeUnavailable):
        elected.elections.elect([("lost", 0)], unclean=True)
    assert away.writes and not counted
    elected.tick(elected.due())
    elected.elections.elect([("lost", 0)], unclean=True)
    assert leader_of(tree, "lost") == 1 and counted == [1]
    [line] = [one.getMessage() for one in caplog.records if "not in the ISR" in one.getMessage()]
    assert line.startswith("lost-0: elected broker 1, which is not in the ISR [2]: ")


def leader_of(tree: Any, topic: str) -> int:
    state: PartitionState = znodes.decode_state(tree.find(znodes.state_path(topic, 0)))
    return state.leader


def test_unfinished_event_is_completed(cluster: Any) -> None:
    tree = tree_of(cluster, 1)
    elected = broker_1_elected(cluster, tree)
    elected.tick(cluster.world.now)
    tree.create(znodes.topic_path("u"), znodes.encode_topic(TopicNode(bytes(15) + b"u", {0: [1]})))
    FailingWrite(tree)
    with pytest.raises(TreeUnavailable):
        elected.event(Event(CHILDREN, znodes.TOPICS))
    elected.tick(max(elected.due(), cluster.world.now))
    assert tree.find(znodes.state_path("u", 0)) is not None


def test_topic_recreated_between_reads_is_found(cluster: Any) -> None:
    """The topic is recreated between the read of the removed node and the read of all names."""
    tree = tree_of(cluster, 1)
    elected = broker_1_elected(cluster, tree)
    elected.tick(cluster.world.now)
    tree.multi(tree.removal(znodes.topic_path("t")))
    elected.event(Event("deleted", znodes.topic_path("t")))
    tree.create(znodes.topic_path("t"), znodes.encode_topic(TopicNode(bytes(15) + b"u", {0: [1]})))
    elected.event(Event(CHILDREN, znodes.TOPICS))
    assert tree.find(znodes.state_path("t", 0)) is not None


def test_former_controller_writes_nothing(cluster: Any) -> None:
    tree, other = tree_of(cluster, 1), tree_of(cluster, 2)
    lease, next_lease = ControllerLease(tree, 1), ControllerLease(other, 2)
    assert lease.run()
    fence = Check(znodes.CONTROLLER_EPOCH, lease.epoch_version)
    tree.multi([fence])
    assert not next_lease.run()
    next_lease.challenge()
    assert next_lease.run()
    with pytest.raises(BadVersion):
        tree.multi([fence])
    lease.resign()
    with pytest.raises(BadVersion):
        tree.multi([Check(znodes.CONTROLLER_EPOCH, lease.epoch_version)])


def test_former_controller_deletes_no_topic(cluster: Any) -> None:
    tree, other = tree_of(cluster, 1), tree_of(cluster, 2)
    one = candidate(cluster, tree)
    one.run()
    elected: Any = one.elected
    tree.create(znodes.topic_path("t"), znodes.encode_topic(TopicNode(bytes(16), {})))
    next_lease = ControllerLease(other, 2)
    next_lease.run()
    next_lease.challenge()
    assert next_lease.run()
    with pytest.raises(TreeUnavailable):
        elected.deletions._finish("t")
    assert tree.find(znodes.topic_path("t")) is not None


@pytest.mark.parametrize("lost", [False, True])
def test_topic_recreated_right_after_a_deletion_stays(cluster: Any, lost: bool) -> None:
    """Another broker creates it as soon as possible; this broker's connection may be lost at that moment."""
    cluster.zookeeper.lag = 0.0
    tree, other = tree_of(cluster, 1), tree_of(cluster, 2)
    elected = broker_1_elected(cluster, tree)
    elected.tick(cluster.world.now)
    tree.create(f"{znodes.TOPIC_CONFIGS}/t", znodes.encode_config({"retention.ms": "1"}))
    admin_writes.delete_topic(other, "t")
    multi, made = tree.multi, list[Any]()

    def write(operations: Any) -> Any:
        if made and lost:
            raise TreeUnavailable("/")
        done = multi(operations)
        if not made and tree.find(znodes.topic_path("t")) is None:
            made.append(admin_writes.create_topic(other, TopicPlan("t", {0: [1]}, {"retention.ms": "-1"})))
        return done

    tree.multi = write
    elected.attempt(lambda: elected.deletions._finish("t"))
    tree.multi = multi
    elected.take_over()
    assert made and elected.context.topics["t"].id == made[0]
    assert elected.context.deleting == set()
    assert znodes.decode_config(tree.find(f"{znodes.TOPIC_CONFIGS}/t")) == {"retention.ms": "-1"}


def test_topic_without_partitions_is_deleted(cluster: Any) -> None:
    """A tool or a person has created the topic: no broker has to confirm the deletion."""
    tree = tree_of(cluster, 1)
    elected = broker_1_elected(cluster, tree)
    elected.tick(cluster.world.now)
    tree.create(znodes.topic_path("u"), znodes.encode_topic(TopicNode(bytes(16), {})))
    admin_writes.delete_topic(tree, "u")
    elected.deletions.changed()
    assert tree.find(znodes.topic_path("u")) is None
    assert tree.find(f"{znodes.DELETE_TOPICS}/u") is None


@pytest.mark.parametrize("left_over", [False, True])
def test_topic_is_created_although_a_stale_config_is_read(cluster: Any, left_over: bool) -> None:
    tree, path = tree_of(cluster, 1), f"{znodes.TOPIC_CONFIGS}/t"
    tree.create(path, znodes.encode_config({"retention.ms": "1"}))
    former = tree.exists(path)
    if not left_over:
        tree.delete(path)
    tree.exists = lambda _: None if left_over else former
    admin_writes.create_topic(tree, TopicPlan("t", {0: [1]}, {"retention.ms": "-1"}))
    assert znodes.decode_config(tree.find(path)) == {"retention.ms": "-1"}
    with pytest.raises(NodeExists, match=znodes.topic_path("t")):
        admin_writes.create_topic(tree, TopicPlan("t", {0: [1]}, {}))


def test_outdated_request_is_refused() -> None:
    refused = []
    unused: Any = None
    orders = ControllerRequests(View(0, "c"), unused, lambda: None)

    def order(epoch: int, client_id: str) -> None:
        request = SimpleNamespace(controller_id=1, controller_epoch=epoch, broker_epoch=-1)
        orders.update_metadata(
            view.ControllerTerm.of(request, client_id), [], [], lambda error, _: refused.append(error)
        )

    for epoch, number in ((1, 2), (1, 2), (1, 1), (2, 1), (2, 3)):
        order(epoch, f"{view.CONTROLLER}-{number}")
    order(2, "kafka-1")  # from another broker's address, which does not count
    assert refused == [NONE, NONE, STALE_CONTROLLER_EPOCH, NONE, NONE, NONE]


@pytest.mark.parametrize(("least", "registered", "taken"), [(7, 0, 7), (7, 9, 9), (0, 0, 0)])
def test_request_for_former_registration_is_refused(least: int, registered: int, taken: int) -> None:
    answers = {}
    unused: Any = None
    orders = ControllerRequests(View(0, "c"), unused, lambda: None)
    orders.least_epoch, orders.broker_epoch = least, registered
    for epoch in range(-1, 11):
        term = view.ControllerTerm(1, 1, epoch)
        orders.update_metadata(term, [], [], lambda error, _, epoch=epoch: answers.update({epoch: error}))  # type: ignore[misc]  # a default in a lambda
    assert answers == {epoch: STALE_BROKER_EPOCH if 0 <= epoch < taken else NONE for epoch in range(-1, 11)}


def test_broker_refuses_requests_for_a_former_registration(cluster: Any) -> None:
    broker, zookeeper = cluster.brokers[1], cluster.zookeeper
    epochs = []
    for _ in range(3):
        broker.start()
        cluster.world.run(cluster.world.now + 0.02)  # the broker has joined, and is not registered
        epochs.append(broker.controller.owner.controller_requests.least_epoch)
        cluster.world.run(cluster.world.now + 5.0)
        path = f"{znodes.BROKER_IDS}/1"
        epochs.append(zookeeper.nodes[path].czxid)
        assert broker.controller.owner.controller_requests.broker_epoch == epochs[-1]
        broker.kill_controller()
        cluster.world.run(cluster.world.now + 5.0)
        orders = broker.controller.owner.controller_requests
        assert (orders.least_epoch, orders.broker_epoch) == (epochs[-1], epochs[-1]), "the broker has not restarted"
        broker.die("dies")
        cluster.world.run(cluster.world.now + 5.0)
    assert epochs == sorted(set(epochs))


def test_answered_request_is_carried_out_after_a_crash(cluster: Any) -> None:
    """No controller repeats an answered request, and the published metadata does not have the new topic yet."""
    broker, world = cluster.brokers[2], cluster.world
    for one in cluster.brokers.values():  # the first broker is elected
        one.start()
        world.run(world.now + 5.0)
    take, died = broker.order, list[str]()

    def order(name: str, version: int, client: str, request: Any, reply: Any) -> bool:
        def answer(response: Any) -> None:
            reply(response)
            if name == "LeaderAndIsr" and not died:
                died.append(name)
                broker.kill_controller()
                raise Killed

        return take(name, version, client, request, answer)

    broker.order = order
    cluster.create_topic("t", {0: [2]})
    world.run(world.now + 10.0)
    assert died and not cluster.ill()
