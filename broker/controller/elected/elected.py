"""The elected controller: carries out the decisions of `cluster.decisions.controller_state` while this broker is
controller.

    events from watches of the tree and connections to peers → facts into ControllerContext → decisions
    → conditional writes of state nodes → LeaderAndIsr to brokers with a replica, UpdateMetadata to all

The tree is the truth (broker.controller.elected.state_loader, broker.controller.elected.fenced_writes): after a refused
write the state is read and decided again. A crash between a write and its requests is harmless: the next controller
reloads the state and sends it to every broker.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from odradek.broker.controller.elected import admin_znodes
from odradek.broker.controller.elected.broker_requests import BrokerRequests
from odradek.broker.controller.elected.brokers import Brokers
from odradek.broker.controller.elected.controller_node import ControllerLease
from odradek.broker.controller.elected.fenced_writes import FencedWrites
from odradek.broker.controller.elected.leader_election import Elections
from odradek.broker.controller.elected.offline_replicas import OfflineReplicas
from odradek.broker.controller.elected.reassignment import Reassignments
from odradek.broker.controller.elected.settled_epochs import SettledEpochs
from odradek.broker.controller.elected.state_loader import LoadedState
from odradek.broker.controller.elected.term import Decide
from odradek.broker.controller.elected.topic_changes import Topics
from odradek.broker.controller.elected.topic_deletion import Deletions
from odradek.broker.controller.elected.topic_ids import TopicIds
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.broker.interbroker.peers import PeerPool
from odradek.cluster.decisions.broker_request_batch import Replica
from odradek.cluster.decisions.controller_state import ControllerContext, StateChange
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Event, Tree, TreeError
from odradek.cluster.tree.znodes import MalformedNode, Partition

log = logging.getLogger(__name__)

_TRIES = 10
_RETRY_S = 0.25

Setting = Callable[[str, str], Any]  # a topic's effective config


class Elected:
    """One controller term. Its methods raise TreeUnavailable; `tick` then starts over from the tree."""

    def __init__(
        self, config: Any, tree: Tree, lease: ControllerLease, controller_requests: ControllerRequests,
        peer_pool: PeerPool, setting: Setting, on_fenced: Callable[[], None], on_unclean: Callable[[], None],
    ) -> None:  # fmt: skip
        """`on_fenced()` ends the term; `on_unclean()` counts an unclean leader election."""
        self._tree = tree
        self._lease = lease
        self._setting = setting
        self._on_fenced = on_fenced
        self._over = False
        self._stale = True
        self._retry_at = 0.0
        self._own = config["broker.id"]
        self.fenced = FencedWrites(tree, lease.epoch_version, self._fence, on_unclean)
        self._loaded = LoadedState(tree, lease.epoch, TopicIds(tree, self.fenced, controller_requests.topic_id))
        self._settled_epochs = SettledEpochs(tree, self.fenced)
        self.brokers = Brokers(config, tree, peer_pool, self._broker_lost, self._broker_found)
        self.offline = OfflineReplicas(self)
        self.broker_requests = BrokerRequests(
            self._own, self._loaded, controller_requests, self.brokers, self.offline.record_response
        )
        self.elections = Elections(self, config)
        self.reassignments = Reassignments(self)
        self.deletions = Deletions(self, self._read_topics)
        self.topics = Topics(self, self._loaded, self.elections, self.reassignments, self.deletions)

    # -- life

    @property
    def tree(self) -> Tree:
        """The metadata tree."""
        return self._tree

    @property
    def context(self) -> ControllerContext:
        """The known state."""
        return self._loaded.context

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called in a millisecond."""
        return self.broker_requests.waiting or (self.offline.waiting and not self._stale)

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds)."""
        return min(self.brokers.due(), self._retry_at if self._stale else self.elections.due)

    def tick(self, now: float) -> None:
        """Reconnect to lost peers; start over if something failed."""
        self.brokers.tick(now)
        self.broker_requests.tick(now)
        if self._stale and now >= self._retry_at:
            self._retry_at = now + _RETRY_S
            self.take_over()
        if self.offline.waiting and not self._stale:
            with self._done_or_stale():
                self.offline.settle()
        if not self._stale:
            self.elections.tick(now)

    def reconnected(self) -> None:
        """ZooKeeper is connected again: start over, because watches and events were lost."""
        self._stale, self._retry_at = True, 0.0

    def close(self) -> None:
        """End the term; later responses from brokers have no effect."""
        self._over = True
        self.brokers.close()
        self.broker_requests.tick(math.inf)

    def _fence(self) -> None:
        if not self._over:
            self._on_fenced()

    def attempt(self, action: Callable[[], Any]) -> None:
        """Run an action that follows a response or a lost connection; if ZooKeeper is unavailable, start over later."""
        if self._over:
            return
        try:
            action()
        except (TreeError, MalformedNode) as error:
            log.warning("%r", error)
            self.reconnected()

    def take_over(self) -> None:
        """Reload the state, send it to every broker, and elect leaders where they are gone."""
        began = time.monotonic()
        self._stale = True
        self._loaded.reload()
        self._loaded.take_notices(self.fenced.epoch_check)
        self._read_brokers()
        self._settled_epochs.read()
        self.context.started(self.brokers.alive())
        self.context.died(self.brokers.suspected, suspected=True)
        self.deletions.read()
        self._stale = False
        with self._done_or_stale():
            self._begin()
        log.info(
            "controller %d, epoch %d: %d brokers, %d partitions, ready after %.0f ms",
            self._own, self._lease.epoch, len(self.context.live), len(self.context.partition_states),
            (time.monotonic() - began) * 1000,
        )  # fmt: skip

    def _begin(self) -> None:
        """Decide and send requests, based on the state just read."""
        resumed = self._loaded.restarted_leaders()  # first: where the ISR changes, the epoch does as well
        self._exclude(self._loaded.restarted_members(self._settled_epochs.unsettled(self.context.live)))
        self.settle(lambda: self.context.raise_epochs(resumed))
        self.broker_requests.send_full_state(set(self.context.live))
        self.replace_failed()
        self._record_settled_epochs()
        self.topics.make_all_new()
        self.deletions.start_ready()
        self.reassignments.resume()
        self.offline.check()
        self._run_admin_requests()

    @contextmanager
    def _done_or_stale(self) -> Iterator[None]:
        """Start over soon after a failure in ZooKeeper, which may happen without a lost connection."""
        try:
            yield
        except (TreeError, MalformedNode):
            self._stale = True
            raise

    def _exclude(self, replicas: dict[int, set[Partition]]) -> None:
        """Treat these replicas of live brokers as offline: out of the ISR, and no leader if another replica can be."""
        self.context.offline = replicas
        if replicas:
            self.replace_failed()
        self.context.offline = {}

    def event(self, event: Event) -> None:
        """Handle a fired watch."""
        if not self._stale:
            with self._done_or_stale():
                self._node_changed(event.path)

    def _node_changed(self, path: str) -> None:
        if path == znodes.BROKER_IDS:
            self.brokers_changed()
        elif path.startswith(znodes.BROKER_IDS + "/"):
            self._registration_changed(znodes.decode_broker_id(path.removeprefix(znodes.BROKER_IDS + "/")))
        elif path == znodes.TOPICS:
            self.topics.changed()
        elif path == znodes.DELETE_TOPICS:
            self.deletions.changed()
        elif path == znodes.ISR_CHANGES:
            self.topics.isrs_changed()
        elif path == znodes.LOG_DIR_EVENTS:
            self.offline.check()
        elif path in admin_znodes.PATHS:
            self._run_admin_requests()
        elif path.startswith(znodes.TOPICS + "/"):
            self.topics.topic_changed(path.removeprefix(znodes.TOPICS + "/"))

    def _read_topics(self) -> None:
        self.topics.changed()

    def _run_admin_requests(self) -> None:
        admin_znodes.run(self.tree, self.elections, self.reassignments)

    # -- brokers

    def brokers_changed(self) -> None:
        """Handle registrations that appeared or disappeared."""
        gone, come, changed = self._read_brokers()
        if gone:
            self._fail(gone)
        if come:
            self._welcome(come)
        for broker in changed:
            self._announce(broker)

    def _registration_changed(self, broker: int) -> None:
        if self.brokers.read_changed(broker):
            self._announce(broker)

    def _announce(self, broker: int) -> None:
        """Send the others the endpoints that a live broker has now; to it all, as its connection may be a new one."""
        log.info("broker %d changed its listeners", broker)
        self.broker_requests.send_full_state({broker})

    def _read_brokers(self) -> tuple[set[int], set[int], set[int]]:
        gone, come, changed = self.brokers.read()
        for broker in gone:
            self.offline.forget(broker)
        return gone, come, changed

    def _broker_lost(self, broker: int) -> None:
        self._unless_stale(lambda: self._fail({broker}, suspected=True))

    def _broker_found(self, broker: int) -> None:
        self._unless_stale(lambda: self._welcome({broker}))

    def _unless_stale(self, action: Callable[[], Any]) -> None:
        """A stale state may be half read: `take_over` then handles all live brokers."""
        if not self._stale:
            self.attempt(action)

    def _fail(self, brokers: Collection[int], suspected: bool = False) -> None:
        self.context.died(brokers, suspected)
        self.deletions.interrupted(brokers)
        changed = self.replace_failed()
        if not changed:
            self.broker_requests.send_metadata()
        log.info("brokers %s failed: %d partitions changed", sorted(brokers), changed)

    def _welcome(self, brokers: Collection[int]) -> None:
        self.context.started({broker: self.brokers.epochs[broker] for broker in brokers})
        self.broker_requests.send_full_state(brokers)
        self.settle(lambda: self.context.brokers_started(self._unclean))
        self._record_settled_epochs()
        self.topics.make_all_new()
        self.deletions.start_ready()
        self.reassignments.resume()
        log.info("brokers %s started", sorted(brokers))

    def _record_settled_epochs(self) -> None:
        """Record the epochs of the live brokers, whose state changes are written; nothing if the view is stale."""
        if not self._stale and not self._term_ended():
            self._settled_epochs.record(self.context.live, self.brokers.epochs)

    def replace_failed(self) -> int:
        """Elect leaders and shrink ISRs where brokers have failed; the number of changed partitions."""
        return self.settle(lambda: self.context.brokers_failed(self._unclean))

    def configs_changed(self, topics: Collection[str]) -> None:
        """unclean.leader.election.enable may have changed for these topics: elect leaders for leaderless partitions."""
        if not self._stale:
            waiting = [name for name in topics if self._unclean(name)]
            self.settle(lambda: self.context.brokers_started(self._unclean, waiting))

    def _unclean(self, topic: str) -> bool:
        return bool(self._setting(topic, "unclean.leader.election.enable"))

    # -- decisions

    def settle(self, decide: Decide, new: bool = False, stop: Mapping[Replica, bool] | None = None) -> int:
        """Write the changes of `decide` and send them, until it returns none; the number of changed partitions."""
        with self._done_or_stale():
            return self._settled(decide, new, stop)

    def _settled(self, decide: Decide, new: bool, stop: Mapping[Replica, bool] | None) -> int:
        changed = 0
        for _ in range(_TRIES):
            changes = decide()
            if not changes or self._term_ended():
                return changed
            done, refused = self.fenced.write(self.context, changes)
            self.broker_requests.send_changes(done, done if new else (), stop)
            changed += len(done)
            if not refused:
                return changed
            self._loaded.read_states(refused)
        log.error("%d partitions changed concurrently on every attempt: giving up for now", len(changes))
        self.reconnected()
        return changed

    def _term_ended(self) -> bool:
        return self._over or not self._lease.held

    def refused(self, changes: Sequence[StateChange]) -> list[Partition]:
        """Write changes that the caller sends; returns the partitions whose state had changed, read again."""
        with self._done_or_stale():
            refused = self.fenced.write(self.context, changes)[1]
            self._loaded.read_states(refused)
        return refused
