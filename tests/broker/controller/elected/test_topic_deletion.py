"""A callback for a topic's deletion runs once, and is dropped on cancellation: a deletion may wait for days."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from odradek.broker.controller.elected.topic_deletion import Deletions
from odradek.cluster.tree.znodes import TopicNode
from odradek.protocol import errors


def _deletions() -> Deletions:
    def multi(operations: Any) -> None:
        pass

    tree = SimpleNamespace(removal=lambda path: [path], multi=multi)
    context = SimpleNamespace(topics={}, drop_topic=lambda topic: None)
    fenced = SimpleNamespace(epoch_check="epoch check")
    term: Any = SimpleNamespace(tree=tree, context=context, fenced=fenced)
    return Deletions(term, read_topics=lambda: None)


def test_cancelled_waiter_is_dropped() -> None:
    deletions, told = _deletions(), []
    forget = [deletions.when_deleted("t", lambda error, n=n: told.append(n)) for n in range(3)]  # type: ignore[misc]  # a default in a lambda
    forget[1]()
    forget[1]()
    assert len(deletions._waiting["t"]) == 2
    deletions._finish("t")
    assert told == [0, 2]
    forget[0]()


def test_waiter_may_cancel_all_in_its_callback() -> None:
    deletions, told, forget = _deletions(), list[object](), list[Callable[[], object]]()

    def done(error: object) -> None:
        told.append(error)
        for each in forget:
            each()

    forget += [deletions.when_deleted("t", done), deletions.when_deleted("t", done)]
    deletions._finish("t")
    assert told == [None, None]


def test_broker_that_dies_after_its_response_is_asked_again() -> None:
    """A log directory may have failed before the response, and its log returns with the directory."""
    stopped: list[dict[Any, bool]] = []
    deletions = _deletions()
    context = deletions._context
    context.topics = {"t": SimpleNamespace(replicas={0: [1, 2]})}  # type: ignore[dict-item]  # a test double
    context.live, context.deleting = {1: 0, 2: 0}, {"t"}
    answers = []

    def stop(replicas: dict[Any, bool], shown: object, answered: Any) -> None:
        stopped.append(replicas)
        answers.append(answered)

    deletions._term.broker_requests = SimpleNamespace(stop_replicas=stop)  # type: ignore[assignment]  # a test double
    deletions._term.attempt = lambda action: action()  # type: ignore[method-assign]  # a test double
    gone: list[object] = []
    deletions.when_deleted("t", gone.append)
    deletions.start_ready()
    answers[0](2, 0, {})
    deletions.interrupted([2])
    answers[0](1, 0, {})
    assert not gone
    deletions.start_ready()
    assert stopped == [{(("t", 0), 1): True, (("t", 0), 2): True}] * 2
    for broker in (1, 2):
        answers[1](broker, 0, {})
    assert gone == [None]
    deletions.start_ready()
    context.topics.clear()  # an administrator removes the topics before all brokers have responded
    deletions.interrupted([1])
    assert not deletions._pending


class Scene:
    """A controller that deletes topics of two brokers, and its StopReplica requests."""

    def __init__(self) -> None:
        self.deletions = _deletions()
        self.stopped: list[str] = []  # topics, in order
        self.answers: list[Any] = []
        self.marked: list[str] = []
        term: Any = self.deletions._term
        term.tree.children = lambda path, watch: list(self.marked)
        term.broker_requests = SimpleNamespace(stop_replicas=self._stop)
        term.attempt = lambda action: action()
        self.context: Any = term.context
        self.context.live, self.context.deleting, self.context.malformed_topics = {1: 0, 2: 0}, set(), set()
        self.context.drop_topic = self._drop

    def _stop(self, replicas: dict[Any, bool], shown: object, answered: Any) -> None:
        self.stopped.append(next(iter(replicas))[0][0])
        self.answers.append(answered)

    def _drop(self, topic: str) -> None:
        self.marked.remove(topic)
        del self.context.topics[topic]

    def delete(self, *topics: str) -> None:
        for topic in topics:
            self.context.topics[topic] = TopicNode(None, {0: [1, 2]})
            self.marked.append(topic)
            self.deletions.changed()


def test_each_of_many_topics_is_requested_once() -> None:
    """Requests for other topics, and the end of each deletion, also change the set of deletions."""
    scene, topics = Scene(), [f"t{number}" for number in range(20)]
    scene.delete(*topics)
    for answered in scene.answers:
        answered(1, 0, {})
        answered(2, 0, {})
        scene.deletions.changed()
    assert scene.stopped == topics
    assert not scene.context.topics and not scene.deletions._pending


def test_a_deletion_that_a_broker_could_not_do_begins_again_with_the_next_change() -> None:
    scene = Scene()
    scene.delete("t")
    scene.answers[0](1, 0, {})
    scene.answers[0](2, errors.KAFKA_STORAGE_ERROR, {})
    assert scene.stopped == ["t"]
    scene.deletions.changed()
    assert scene.stopped == ["t", "t"]


def test_a_deletion_of_a_topic_that_has_other_replicas_by_now_begins_again() -> None:
    scene = Scene()
    scene.delete("t")
    scene.context.topics["t"] = TopicNode(None, {0: [1, 2], 1: [2, 1]})
    scene.deletions.changed()
    assert scene.stopped == ["t", "t"]


def test_cancelled_deletion_is_forgotten() -> None:
    scene = Scene()
    scene.delete("t")
    scene.marked.clear()
    scene.deletions.changed()
    assert not scene.deletions._pending
