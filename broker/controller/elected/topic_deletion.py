"""Topic deletion in the elected controller (Kafka's TopicDeletionManager).

A broker or tool creates a node under /admin/delete_topics. Once every broker with a replica is up, the controller sends
all of them a StopReplica that deletes their replicas; then it deletes the topic's nodes. If a broker dies meanwhile,
the deletion restarts when it is back, even if it had answered: a repaired disk may have a log that was missing before.
The deletion also restarts with the next deletion request if a broker failed to do it or the topic has other replicas by
then. In no case is a replica left that could reappear. Any broker may create a topic of that name as soon as the old
one is gone: nothing is left of the old topic that could delete the new one.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.controller.elected.term import Term
from odradek.broker.controller.replicas.controller_requests import Errors
from odradek.cluster.decisions.controller_state import ControllerContext
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Delete, NoNode, Operation, TreeError, TreeUnavailable

if TYPE_CHECKING:
    from odradek.cluster.tree.znodes import TopicNode

log = logging.getLogger(__name__)

_TOGETHER = 500  # deletions of nodes in one transaction: ZooKeeper accepts 1 MiB

Done = Callable[[ApiError | None], None]


@dataclass
class _Begun:
    """A topic as it was when the requests were sent, and the brokers that have not answered."""

    node: TopicNode
    missing: set[int]
    refused: bool = False  # by one of them


class Deletions:
    """Topics being deleted."""

    def __init__(self, term: Term, read_topics: Callable[[], None]) -> None:
        """`read_topics` reads which topics there are: one may be deleted as soon as it was created."""
        self._term = term
        self._read_topics = read_topics
        self._pending: dict[str, _Begun] = {}
        self._malformed_topics: set[str] = set()  # topics to delete whose nodes are malformed
        self._waiting: dict[str, dict[int, Done]] = {}
        self._numbers = itertools.count()

    @property
    def _context(self) -> ControllerContext:
        return self._term.context

    def when_deleted(self, topic: str, done: Done) -> Callable[[], object]:
        """Call `done(None)` when the topic's nodes are gone, unless the returned function is called before."""
        number = next(self._numbers)
        waiting = self._waiting.setdefault(topic, {})
        waiting[number] = done
        return partial(waiting.pop, number, None)

    def read(self) -> None:
        """Read which topics to delete; all deletions restart."""
        self._pending.clear()
        self._read_marks()

    def _read_marks(self) -> None:
        names = self._term.tree.children(znodes.DELETE_TOPICS, watch=True)
        self._malformed_topics = self._context.malformed_topics.intersection(names)
        for name in names:
            if name not in self._context.topics and name not in self._malformed_topics:
                self._drop_node(f"{znodes.DELETE_TOPICS}/{name}")
        self._context.deleting = {name for name in names if name in self._context.topics}

    def changed(self) -> None:
        """Handle new deletion requests."""
        self._read_topics()
        self._restart_requested()

    def readable(self, topics: Collection[str]) -> None:
        """The nodes of these topics are valid now: deletion may have been requested before."""
        if not self._malformed_topics.isdisjoint(topics):
            self._restart_requested()

    def _restart_requested(self) -> None:
        """Start the requested deletions. Those in progress continue: else each request would resend all others."""
        self._read_marks()
        for topic, begun in list(self._pending.items()):
            deleting = topic in self._context.deleting
            if not deleting or begun.refused or self._context.topics[topic] != begun.node:
                del self._pending[topic]
        self.start_ready()

    def interrupted(self, brokers: Collection[int]) -> None:
        """Brokers died: deletions that involve them restart later.

        Even if they had answered: a log on a failed disk is back after a restart with the disk repaired.
        """
        for topic in list(self._pending):
            if topic not in self._context.topics or not self._brokers(topic).isdisjoint(brokers):
                del self._pending[topic]

    def start_ready(self) -> None:
        """Start deleting every topic whose brokers are all live."""
        for topic in sorted(self._context.deleting - self._pending.keys()):
            brokers = self._brokers(topic)
            if brokers <= self._context.live.keys():
                self._begin(topic, brokers)
            else:
                log.info("deletion of topic %s waits for brokers %s", topic, brokers - self._context.live.keys())

    def _brokers(self, topic: str) -> set[int]:
        node = self._context.topics.get(topic)
        return {broker for some in node.replicas.values() for broker in some} if node else set()

    def _begin(self, topic: str, brokers: set[int]) -> None:
        node = self._context.topics[topic]
        self._pending[topic], replicas = _Begun(node, set(brokers)), node.replicas
        stop = {((topic, index), broker): True for index, some in replicas.items() for broker in some}
        shown = [(topic, index) for index in replicas]
        self._term.broker_requests.stop_replicas(stop, shown, lambda *answer: self._answered(topic, *answer))
        if not brokers:
            self._term.attempt(lambda: self._finish(topic))

    def _answered(self, topic: str, broker: int, error: int, errors: Errors) -> None:
        begun = self._pending.get(topic)
        if begun is None:
            return
        if error or errors:
            log.warning("broker %d failed to delete topic %s: %d %s", broker, topic, error, errors)
            begun.refused = True
            return
        begun.missing.discard(broker)
        if not begun.missing:
            self._term.attempt(lambda: self._finish(topic))

    def _finish(self, topic: str) -> None:
        """Delete the mark together with the topic's node, after all else: the name may be reused from then on."""
        paths = (f"{znodes.DELETE_TOPICS}/{topic}", znodes.topic_path(topic))
        removals = [self._term.tree.removal(path) for path in paths]
        below = [operation for removal in removals for operation in removal[:-1]]
        for start in range(0, len(below), _TOGETHER):
            self._delete(below[start : start + _TOGETHER])
        self._drop_node(f"{znodes.TOPIC_CONFIGS}/{topic}")
        self._delete([removal[-1] for removal in removals if removal])
        self._context.drop_topic(topic)
        self._pending.pop(topic, None)
        log.info("deleted topic %s", topic)
        for done in list(self._waiting.pop(topic, {}).values()):
            done(None)

    def _delete(self, operations: Sequence[Operation]) -> None:
        """Fenced: another controller may have finished already, and a new topic may have the name."""
        try:
            self._term.tree.multi([self._term.fenced.epoch_check, *operations])
        except TreeError as error:
            self._term.fenced.check_refusal(error)
            raise TreeUnavailable(f"{error!r}: the topic to delete has changed") from error

    def _drop_node(self, path: str) -> None:
        try:
            self._term.tree.multi([self._term.fenced.epoch_check, Delete(path)])
        except TreeError as error:  # another client may have added children
            self._term.fenced.check_refusal(error)
            if not isinstance(error, NoNode):
                log.warning("cannot delete %s: %r", path, error)
