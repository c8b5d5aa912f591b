"""The elected controller: carries out what `cluster.leadership` decides, for as long as this broker is in office.

    the tree tells by its watches, peers by their connections → facts into Leadership → decisions
    → conditional writes of state nodes → LeaderAndIsr to who has a replica, UpdateMetadata to all

The tree is the truth: each write checks the controller's epoch and the node's version, so that neither a deposed
controller nor one with old knowledge changes anything; what is refused is read again and decided again. Dying between a
write and its telling is harmless: the next in office reads everything and tells everybody everything.

A broker that refuses connections is taken for dead at once, although its session lasts (`_suspect`). If that is wrong,
its partitions have other leaders in later epochs: its followers leave it, so that it can acknowledge nothing
(acks=all), its changes of ISRs are refused, and it is told all as soon as it is reached. acks=1 loses what it does in
any failover.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odradek.broker import errands, joining
from odradek.broker.deletions import Deletions
from odradek.broker.moves import Moves
from odradek.broker.office import Office
from odradek.broker.offline_replicas import OfflineReplicas
from odradek.broker.orders import Orders
from odradek.broker.peers import REFUSED, Peer, Switchboard
from odradek.broker.telling import Telling
from odradek.cluster import asked, notices, znodes
from odradek.cluster.errors import ApiError
from odradek.cluster.leadership import Change, Leadership, Standing
from odradek.cluster.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    NoNode,
    Operation,
    Set,
    Tree,
    TreeError,
    TreeUnavailable,
)
from odradek.cluster.znodes import BrokerNode, Partition, TopicNode

log = logging.getLogger(__name__)

_TRIES = 10
_AGAIN_S = 0.25
_TOLD_PATIENCE_S = 1.0  # a broker that does not answer is stopped or far away: clients do not wait for it
_FIRST_REBALANCE_S = 5.0  # as Kafka: leaders that a start has scattered need not wait for the interval
_TOGETHER = 1000  # writes in flight

Setting = Callable[[str, str], Any]  # a topic's config in force
Decide = Callable[[], Sequence[Change]]


class Elected:
    """One time in office. Its methods raise TreeUnavailable; `tick` then starts over from what the tree says."""

    def __init__(
        self, config: Any, tree: Tree, office: Office, orders: Orders, switchboard: Switchboard,
        setting: Setting, deposed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._config = config
        self._tree = tree
        self._office = office
        self._switchboard = switchboard
        self._setting = setting
        self._deposed = deposed
        self._fence = Check(znodes.CONTROLLER_EPOCH, office.epoch_version)
        self._over = False
        self._own = config["broker.id"]
        self._nodes: dict[int, BrokerNode] = {}
        self._epochs: dict[int, int] = {}  # of all that are registered
        self._written: dict[Partition, int] = {}  # transactions that have last written the states
        self._suspected: set[int] = set()
        self._peers: dict[int, Peer] = {}
        self._stale = True
        self._again_at = 0.0
        self._untold: list[tuple[float, Callable[[], None]]] = []
        self._rebalance_at = time.monotonic() + _FIRST_REBALANCE_S
        self.leadership = Leadership(office.epoch)
        self.offline = OfflineReplicas(self)
        self.telling = Telling(
            self._own, office.epoch, self.leadership, orders, self._nodes, self._peers, self.offline.heard
        )
        self.deletions = Deletions(self)
        self.moves = Moves(self)

    # -- life

    @property
    def tree(self) -> Tree:
        """The metadata tree."""
        return self._tree

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called in a millisecond."""
        return bool(self._untold) or (self.offline.waiting and not self._stale)

    def when_told(self, action: Callable[[], None]) -> None:
        """Call `action` when all brokers have heard what was decided so far, or take too long to say so."""
        self._untold.append((time.monotonic() + _TOLD_PATIENCE_S, action))

    def _check_told(self, now: float) -> None:
        heard = all(self._peers[broker].idle for broker in self.leadership.live if broker in self._peers)
        due = [action for deadline, action in self._untold if heard or deadline <= now]
        self._untold = [] if heard else [entry for entry in self._untold if entry[0] > now]
        for action in due:
            action()

    def due(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        connections = [peer.due for peer in self._peers.values()]
        return min([*connections, self._again_at if self._stale else self._rebalance_at])

    def tick(self, now: float) -> None:
        """Reach for lost peers; start over if something could not be done."""
        for peer in list(self._peers.values()):
            peer.tick(now)
        if self._untold:
            self._check_told(now)
        if self._stale and now >= self._again_at:
            self._again_at = now + _AGAIN_S
            self.take_over()
        if self.offline.waiting and not self._stale:
            with self._done_or_stale():
                self.offline.settle()
        if not self._stale and now >= self._rebalance_at:
            self._rebalance_at = now + self._config["leader.imbalance.check.interval.seconds"]
            self._rebalance()

    def reconnected(self) -> None:
        """There is a connection to ZooKeeper again: watches are lost, and whatever happened meanwhile."""
        self._stale, self._again_at = True, 0.0

    def close(self) -> None:
        """The time in office ends; what brokers answer later comes to nothing."""
        self._over = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._check_told(math.inf)

    def attempt(self, action: Callable[[], Any]) -> None:
        """Do something that follows an answer or a lost connection; if ZooKeeper is away, start over later."""
        if self._over:
            return
        try:
            action()
        except TreeUnavailable as error:
            log.warning("%s", error)
            self.reconnected()

    def take_over(self) -> None:
        """Read everything, tell everybody everything, and elect where leaders are gone."""
        began = time.monotonic()
        self._stale = True
        former = self.leadership
        self.leadership = self.telling.leadership = Leadership(self._office.epoch)
        self.leadership.deleting = former.deleting
        self._read_topics(self._tree.children(znodes.TOPICS, watch=True))
        self._forget_notices()
        self._read_brokers()
        self.leadership.started(self._alive())
        self.deletions.read()
        self._stale = False
        with self._done_or_stale():
            self._begin()
        log.info(
            "controller %d, epoch %d: %d brokers, %d partitions, ready after %.0f ms",
            self._own, self._office.epoch, len(self.leadership.live), len(self.leadership.standings),
            (time.monotonic() - began) * 1000,
        )  # fmt: skip

    def _begin(self) -> None:
        """Tell and decide, by what was just read."""
        self._pass_over_reborn()
        self.telling.welcome(set(self.leadership.live))
        self._settle(lambda: self.leadership.brokers_failed(self._unclean))
        for name in list(self.leadership.topics):
            self._make_new(name)
        self.deletions.go_on()
        self.moves.resume()
        self.offline.look()
        errands.run(self)

    @contextmanager
    def _done_or_stale(self) -> Iterator[None]:
        """What ZooKeeper did not let us finish is begun anew soon: it need not lose the connection to be away."""
        try:
            yield
        except TreeUnavailable:
            self._stale = True
            raise

    def _pass_over_reborn(self) -> None:
        """Brokers that died and came back unseen, after a state was written, are no better than others that stayed.

        A controller in office would have taken them out of the ISR; nobody knows what is left of their logs.
        """
        state, reborn = self.leadership, defaultdict(set)
        for partition, now in state.standings.items():
            new = {broker for broker in now.isr if state.live.get(broker, 0) > self._written.get(partition, 0)}
            if new and state.there(partition, now.isr) - new:
                for broker in new:
                    reborn[broker].add(partition)
        state.offline = reborn
        if reborn:
            self._settle(lambda: state.brokers_failed(self._unclean))
        state.offline = {}

    def event(self, event: Event) -> None:
        """A watch has fired."""
        if not self._stale:
            with self._done_or_stale():
                self._follow(event.path)

    def _follow(self, path: str) -> None:
        if path == znodes.BROKER_IDS:
            self.brokers_changed()
        elif path == znodes.TOPICS:
            self.topics_changed()
        elif path == znodes.DELETE_TOPICS:
            self.deletions.changed()
        elif path == znodes.ISR_CHANGES:
            self._isrs_changed()
        elif path == znodes.LOG_DIR_EVENTS:
            self.offline.look()
        elif path in errands.PATHS:
            errands.run(self)
        elif path.startswith(znodes.TOPICS + "/"):
            self._topic_changed(path.removeprefix(znodes.TOPICS + "/"))

    # -- reading

    def _read_topics(self, names: Iterable[str]) -> list[str]:
        """Topics and the states of their partitions; those that are there."""
        names = list(names)
        found = self._tree.get_many([znodes.topic_path(name) for name in names], watch=True)
        there = []
        for name, node in zip(names, found, strict=True):
            if node is not None:
                self.leadership.put_topic(name, znodes.decode_topic(node[0]))
                there.append(name)
        self._read_states([partition for name in there for partition in self._all_of(name)])
        return there

    def _all_of(self, name: str) -> list[Partition]:
        return [(name, index) for index in self.leadership.topics[name].replicas]

    def _read_states(self, partitions: Sequence[Partition]) -> None:
        found = self._tree.get_many([znodes.state_path(*partition) for partition in partitions])
        for partition, node in zip(partitions, found, strict=True):
            if node is not None:
                standing = Standing.read(znodes.decode_state(node[0]), node[1].version)
                self.leadership.put(partition, standing)
                self._written[partition] = node[1].mzxid

    def _read_brokers(self) -> set[int]:
        """Who is registered, with connections to each; those that were not there before, or are another life of one."""
        ids = [int(name) for name in self._tree.children(znodes.BROKER_IDS, watch=True)]
        found = self._tree.get_many([f"{znodes.BROKER_IDS}/{broker}" for broker in ids])
        registered = {broker: node for broker, node in zip(ids, found, strict=True) if node is not None}
        epochs = {broker: stat.czxid for broker, (_, stat) in registered.items()}
        for broker in self._epochs.keys() - epochs.keys():
            self._part_from(broker)
        new = {broker for broker, epoch in epochs.items() if self._epochs.get(broker) != epoch}
        for broker in new:
            self._part_from(broker)
            self._meet(broker, znodes.decode_broker(registered[broker][0]))
        self._epochs = epochs
        self.telling.epochs = epochs
        return new

    def _meet(self, broker: int, node: BrokerNode) -> None:
        self._nodes[broker] = node
        if broker != self._own:
            address = joining.address_of(node, self._config)
            self._peers[broker] = self._switchboard.connect(broker, address, self._standing_changed)

    def _part_from(self, broker: int) -> None:
        self._suspected.discard(broker)
        self.offline.forget(broker)
        self._nodes.pop(broker, None)
        peer = self._peers.pop(broker, None)
        if peer is not None:
            peer.close()

    def _alive(self) -> dict[int, int]:
        return {broker: epoch for broker, epoch in self._epochs.items() if broker not in self._suspected}

    # -- brokers

    def brokers_changed(self) -> None:
        """Registrations came or went."""
        before = set(self._epochs)
        new = self._read_brokers()
        gone = (before - self._epochs.keys()) | (new & before)
        if gone:
            self._fail(gone)
        if new:
            self._welcome(new)

    def _standing_changed(self, broker: int, standing: str) -> None:
        if standing == REFUSED and broker in self._epochs and broker not in self._suspected:
            log.warning("broker %d refuses connections: it is taken for dead before its session ends", broker)
            self._suspected.add(broker)
            self._peers[broker].forget()
            self._unless_stale(lambda: self._fail({broker}))
        elif standing != REFUSED and broker in self._suspected:
            self._suspected.discard(broker)
            log.info("broker %d is there after all", broker)
            self._unless_stale(lambda: self._welcome({broker}))

    def _unless_stale(self, action: Callable[[], Any]) -> None:
        """What is known may be half read: `take_over` sees to all that live."""
        if not self._stale:
            self.attempt(action)

    def _fail(self, brokers: Collection[int]) -> None:
        self.leadership.died(brokers)
        self.deletions.interrupted(brokers)
        changed = self._settle(lambda: self.leadership.brokers_failed(self._unclean))
        if not changed:
            self.telling.show()
        log.info("brokers %s failed: %d partitions changed", sorted(brokers), changed)

    def _welcome(self, brokers: Collection[int]) -> None:
        self.leadership.started({broker: self._epochs[broker] for broker in brokers})
        self.telling.welcome(brokers)
        self._settle(lambda: self.leadership.brokers_started(self._unclean))
        for name in list(self.leadership.topics):
            self._make_new(name)
        self.deletions.go_on()
        self.moves.resume()
        log.info("brokers %s started", sorted(brokers))

    def replicas_moved(self, partitions: Collection[Partition]) -> None:
        """Replicas of these are offline, or are not any more, on brokers that live."""
        self._settle(lambda: self.leadership.brokers_failed(self._unclean))
        self.telling.show(list(partitions))

    def _unclean(self, topic: str) -> bool:
        return bool(self._setting(topic, "unclean.leader.election.enable"))

    # -- topics

    def topics_changed(self, changed: str | None = None) -> None:
        """Topics were made, or are gone; `changed` has more partitions."""
        if changed is not None:
            self._topic_changed(changed)
            return
        names = set(self._tree.children(znodes.TOPICS, watch=True))
        for name in self.leadership.topics.keys() - names:
            self.leadership.drop_topic(name)
        for name in self._read_topics(sorted(names - self.leadership.topics.keys())):
            self._make_new(name)

    def _topic_changed(self, name: str) -> None:
        """More partitions, or another assignment."""
        if name in self.leadership.topics and self._read_topics([name]):
            self._make_new(name)

    def _make_new(self, name: str) -> None:
        """Leaders for partitions that have none yet; those whose replicas are all away wait for one."""
        self._settle(lambda: self.leadership.new_partitions(name), new=True)

    def _isrs_changed(self) -> None:
        """Leaders have changed ISRs of theirs: tell everybody."""
        changed = [partition for partition in self._forget_notices() if partition in self.leadership.standings]
        self._read_states(changed)
        if changed:
            self.telling.show(changed)
            self.moves.go_on(changed)
        if any(self._waits_for_the_dead(partition) for partition in changed):
            self._settle(lambda: self.leadership.brokers_failed(self._unclean))

    def _waits_for_the_dead(self, partition: Partition) -> bool:
        """Whether its leader, which had not heard yet, has taken somebody into the ISR who is gone."""
        now = self.leadership.standings.get(partition)
        return now is not None and bool(set(now.isr) - self.leadership.there(partition))

    def _forget_notices(self) -> list[Partition]:
        """The partitions that notices under /isr_change_notification name; the notices go."""
        names = self._tree.children(znodes.ISR_CHANGES, watch=True)
        paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
        found = self._tree.get_many(paths)
        self._tree.each([[self.in_office(), Delete(path)] for path in paths])
        named = [partition for node in found if node is not None for partition in notices.decode_partitions(node[0])]
        return list(dict.fromkeys(named))

    # -- decisions

    def _settle(self, decide: Decide, new: bool = False) -> int:
        """Write what `decide` says and tell it, until it says nothing more; how many partitions were changed."""
        with self._done_or_stale():
            return self._settled(decide, new)

    def _settled(self, decide: Decide, new: bool) -> int:
        changed = 0
        for _ in range(_TRIES):
            changes = decide()
            if not changes or self._stale_office():
                return changed
            done, refused = self._write(changes)
            self.telling.changed(done, done if new else ())
            changed += len(done)
            if not refused:
                return changed
            self._read_states(refused)
        log.error("%d partitions are changed by others all the time", len(changes))
        self.reconnected()
        return changed

    def _stale_office(self) -> bool:
        return self._over or not self._office.ours

    def _write(self, changes: Sequence[Change]) -> tuple[list[Partition], list[Partition]]:
        """(written, refused because the node is not what it was thought to be)."""
        self._make_parents(changes)
        done: list[Partition] = []
        refused: list[Partition] = []
        for start in range(0, len(changes), _TOGETHER):
            some = changes[start : start + _TOGETHER]
            for change, result in zip(some, self._tree.each([self._operations(one) for one in some]), strict=True):
                if isinstance(result, TreeError):
                    self.check_refusal(result)
                    refused.append(change.partition)
                else:
                    version = 0 if change.before is None else getattr(result[-1], "version", 0)
                    self.leadership.written(change, version)
                    done.append(change.partition)
        return done, refused

    def refused(self, changes: Sequence[Change]) -> list[Partition]:
        """Write changes that are told by who asks; those that were not what they were thought to be, read again."""
        with self._done_or_stale():
            refused = self._write(changes)[1]
            self._read_states(refused)
        return refused

    def in_office(self) -> Operation:
        """What each transaction of a controller begins with: it is refused once another is elected."""
        return self._fence

    def write_topic(self, name: str, node: TopicNode, version: int) -> Operation:
        """A topic's node, if it is still of that version."""
        return Set(znodes.topic_path(name), znodes.encode_topic(node), version)

    def _operations(self, change: Change) -> list[Operation]:
        in_office = self.in_office()
        path, data = znodes.state_path(*change.partition), znodes.encode_state(change.after.state)
        if change.before is None:
            return [in_office, Create(znodes.partition_path(*change.partition)), Create(path, data)]
        return [in_office, Set(path, data, change.before.version)]

    def _make_parents(self, changes: Sequence[Change]) -> None:
        names = {change.partition[0] for change in changes if change.before is None}
        self._tree.each([[Create(znodes.partitions_path(name))] for name in sorted(names)])

    def check_refusal(self, error: TreeError) -> None:
        """Deposed, away, or only late? TreeUnavailable for the first two."""
        if isinstance(error, TreeUnavailable):
            raise error
        if isinstance(error, (BadVersion, NoNode)) and str(error) == znodes.CONTROLLER_EPOCH:
            log.warning("another controller was elected: this one's time is over")
            if not self._over:
                self._deposed()
            raise TreeUnavailable(str(error)) from error

    # -- for the handlers of requests

    def controlled_shutdown(self, broker: int, epoch: int) -> list[Partition]:
        """Have others lead what `broker` leads, which is about to stop; what it still leads. ApiError."""
        asked.check_shutdown(self.leadership, broker, epoch)
        self.leadership.shutting_down.add(broker)
        stopped = self.leadership.controlled_shutdown(broker).stopped
        self._settle(lambda: self.leadership.controlled_shutdown(broker).changes)
        self.telling.changed((), stop={(partition, broker): False for partition in stopped})
        remaining = self.leadership.led_by(broker)
        log.info("broker %d stops: it still leads %d partitions", broker, len(remaining))
        return remaining

    def elect(self, partitions: Collection[Partition], unclean: bool) -> dict[Partition, ApiError]:
        """Elect preferred leaders, or any that live; the partitions for which that was refused."""
        elections = asked.unclean if unclean else asked.preferred
        refused = elections(self.leadership, partitions).refused
        self._settle(lambda: elections(self.leadership, partitions).changes)
        return refused

    def _rebalance(self) -> None:
        """auto.leader.rebalance.enable: leaders go back to where they are preferred, if too many are elsewhere."""
        if not self._config["auto.leader.rebalance.enable"]:
            return
        moves = asked.imbalanced(self.leadership, self._config["leader.imbalance.per.broker.percentage"])
        if moves:
            log.info("%d partitions go back to their preferred leaders", len(moves))
            self.elect(moves, unclean=False)
