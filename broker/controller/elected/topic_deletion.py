"""Deleting topics, as the elected controller does it (Kafka's TopicDeletionManager).

Somebody makes a node under /admin/delete_topics. Once every broker with a replica is there, all are told that the topic
is going and each deletes its replicas; then the topic's nodes go. If a broker dies in between, it begins again when
that broker is back, even if it had answered: it may have a log now that it had not then, as a disk was mended. It also
begins again with the next request for a deletion if a broker could not do it, or the topic has other replicas by then.
Whatever happens, no replica of the topic is left that could come back to life. Any broker may make a topic of that name
as soon as there is none: nothing of the former is left then that would take it away again.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.controller.replicas.controller_requests import Errors
from odradek.cluster.decisions.controller_state import Leadership
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Delete, NoNode, Operation, TreeError, TreeUnavailable

if TYPE_CHECKING:
    from odradek.broker.controller.elected.elected import Elected
    from odradek.cluster.tree.znodes import TopicNode

log = logging.getLogger(__name__)

_TOGETHER = 500  # deletions of nodes in one transaction: ZooKeeper takes a MiB

Done = Callable[[ApiError | None], None]


@dataclass
class _Begun:
    """A topic as it was when its brokers were told, and those that have not answered."""

    node: TopicNode
    missing: set[int]
    refused: bool = False  # by one of them


class Deletions:
    """Topics on their way out."""

    def __init__(self, elected: Elected) -> None:
        self._elected = elected
        self._pending: dict[str, _Begun] = {}
        self._unread: set[str] = set()  # topics that shall go, whose nodes make no sense
        self._waiting: dict[str, dict[int, Done]] = {}
        self._numbers = itertools.count()

    @property
    def _leadership(self) -> Leadership:
        return self._elected.leadership

    def when_gone(self, topic: str, done: Done) -> Callable[[], object]:
        """Call `done(None)` when the topic's nodes are gone, unless what this returns is called before."""
        number = next(self._numbers)
        waiting = self._waiting.setdefault(topic, {})
        waiting[number] = done
        return partial(waiting.pop, number, None)

    def read(self) -> None:
        """Which topics shall go; whatever was begun begins again."""
        self._pending.clear()
        self._read_marks()

    def _read_marks(self) -> None:
        names = self._elected.tree.children(znodes.DELETE_TOPICS, watch=True)
        self._unread = self._leadership.unread.intersection(names)
        for name in names:
            if name not in self._leadership.topics and name not in self._unread:
                self._drop_node(f"{znodes.DELETE_TOPICS}/{name}")
        self._leadership.deleting = {name for name in names if name in self._leadership.topics}

    def changed(self) -> None:
        """Somebody asks for deletions."""
        self._elected.topics.changed()
        self._look_again()

    def readable(self, topics: Collection[str]) -> None:
        """The nodes of these make sense: they are among the topics now, and may have been to go before."""
        if not self._unread.isdisjoint(topics):
            self._look_again()

    def _look_again(self) -> None:
        """Begin what is asked for now. What is under way goes on: else each request has all others told again."""
        self._read_marks()
        for topic, begun in list(self._pending.items()):
            deleting = topic in self._leadership.deleting
            if not deleting or begun.refused or self._leadership.topics[topic] != begun.node:
                del self._pending[topic]
        self.go_on()

    def interrupted(self, brokers: Collection[int]) -> None:
        """Brokers died: what they have a part in begins again later.

        Also where they had answered: a log on a disk that had failed is back with the next start on a mended one.
        """
        for topic in list(self._pending):
            if topic not in self._leadership.topics or not self._brokers(topic).isdisjoint(brokers):
                del self._pending[topic]

    def go_on(self) -> None:
        """Begin with every topic all of whose brokers are there."""
        for topic in sorted(self._leadership.deleting - self._pending.keys()):
            brokers = self._brokers(topic)
            if brokers <= self._leadership.live.keys():
                self._begin(topic, brokers)
            else:
                log.info("deletion of topic %s waits for brokers %s", topic, brokers - self._leadership.live.keys())

    def _brokers(self, topic: str) -> set[int]:
        node = self._leadership.topics.get(topic)
        return {broker for some in node.replicas.values() for broker in some} if node else set()

    def _begin(self, topic: str, brokers: set[int]) -> None:
        node = self._leadership.topics[topic]
        self._pending[topic], replicas = _Begun(node, set(brokers)), node.replicas
        stop = {((topic, index), broker): True for index, some in replicas.items() for broker in some}
        shown = [(topic, index) for index in replicas]
        self._elected.telling.stop(stop, shown, lambda *answer: self._answered(topic, *answer))
        if not brokers:
            self._elected.attempt(lambda: self._finish(topic))

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
            self._elected.attempt(lambda: self._finish(topic))

    def _finish(self, topic: str) -> None:
        """The mark goes with the topic's node, and all else before: from then on there may be another of that name."""
        paths = (f"{znodes.DELETE_TOPICS}/{topic}", znodes.topic_path(topic))
        removals = [self._elected.tree.removal(path) for path in paths]
        below = [operation for removal in removals for operation in removal[:-1]]
        for start in range(0, len(below), _TOGETHER):
            self._delete(below[start : start + _TOGETHER])
        self._drop_node(f"{znodes.TOPIC_CONFIGS}/{topic}")
        self._delete([removal[-1] for removal in removals if removal])
        self._leadership.drop_topic(topic)
        self._pending.pop(topic, None)
        log.info("deleted topic %s", topic)
        for done in list(self._waiting.pop(topic, {}).values()):
            done(None)

    def _delete(self, operations: Sequence[Operation]) -> None:
        """In office only: another controller may be done with it, and the name given to a new topic."""
        try:
            self._elected.tree.multi([self._elected.fenced.in_office, *operations])
        except TreeError as error:
            self._elected.fenced.check_refusal(error)
            raise TreeUnavailable(f"{error!r}: what was to be deleted has changed") from error

    def _drop_node(self, path: str) -> None:
        try:
            self._elected.tree.multi([self._elected.fenced.in_office, Delete(path)])
        except TreeError as error:  # it may have children that somebody made
            self._elected.fenced.check_refusal(error)
            if not isinstance(error, NoNode):
                log.warning("cannot delete %s: %r", path, error)
