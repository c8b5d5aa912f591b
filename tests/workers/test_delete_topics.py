"""DeleteTopics: an answered request leaves nothing in memory, however long its timeout is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.process.timeouts import Timeouts
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import NONE, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from odradek.security.quotas.mutations import MutationQuota
from odradek.workers.apis import k20_delete_topics
from odradek.workers.dispatch.context import at_once

FOR_EVER_MS = 2**31 - 1
TOPICS: dict[str, Any] = {
    "t": {"id": "ab" * 16, "internal": False, "config": {}, "partitions": [[0, 1, 0, 0, [0], [0], 0]]}
}
OTHER = {"t": {**TOPICS["t"], "id": "cd" * 16}}


class _Context:
    version = 1

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.begin = at_once

    def allows(self, *_: Any) -> bool:
        return True

    sees = allows

    def changed(self, what: str) -> None:
        """There is no log."""

    def reply(self, answer: Any) -> None:
        self._answers.append([(topic.name, topic.error_code) for topic in answer.responses])


class _Controller:
    """A controller whose deletions and clock the test controls."""

    config = {"delete.topic.enable": True}
    snapshot = Snapshot(raw_snapshot(1, "x", 0, [], TOPICS, {}))

    def __init__(self) -> None:
        self.timeouts = Timeouts()
        self.deletions: list[Callable[[ApiError | None], None]] = []
        self.owner = SimpleNamespace(delete_topic=self._delete)

    def _delete(self, name: str, done: Callable[[ApiError | None], None]) -> Callable[[], None]:
        self.deletions.append(done)
        return lambda: self.deletions.remove(done) if done in self.deletions else None

    def mutations(self, _context: object) -> MutationQuota:
        return MutationQuota(None, lambda: 0, strict=True)

    def after(self, milliseconds: int, action: Callable[[], None]) -> Callable[[], object]:
        return self.timeouts.add(milliseconds, action)

    def when_published(self, action: Callable[[], None]) -> None:
        action()


@pytest.fixture
def controller() -> _Controller:
    return _Controller()


def _ask(controller: _Controller, name: str, answers: list[Any]) -> weakref.ref[_Context]:
    context = _Context(answers)
    request = SimpleNamespace(topic_names=[name], timeout_ms=FOR_EVER_MS)
    at_once(k20_delete_topics.handle(controller, request, context))  # type: ignore[arg-type]  # a test double
    return weakref.ref(context)


def test_answered_request_is_freed(controller: _Controller) -> None:
    answers: list[Any] = []
    refused, served = _ask(controller, "unknown", answers), _ask(controller, "t", answers)
    assert served() is not None
    controller.deletions.pop()(None)
    assert [code == NONE for ((_, code),) in answers] == [False, True]
    gc.collect()
    assert (refused(), served(), len(controller.timeouts)) == (None, None, 0)


@pytest.mark.parametrize(("topics", "error"), [({}, UNKNOWN_TOPIC_OR_PARTITION), (OTHER, UNKNOWN_TOPIC_ID)])
def test_topic_deleted_by_another_request_meanwhile_is_an_error(
    controller: _Controller, topics: Any, error: int
) -> None:
    """The deletion is between two steps of this request, which must not delete a recreated topic of the same name."""
    answers: list[Any] = []
    request = SimpleNamespace(topics=[SimpleNamespace(name=None, topic_id=UUID(TOPICS["t"]["id"]))], timeout_ms=0)
    context: Any = _Context(answers)
    context.version = k20_delete_topics.BY_ID
    work = k20_delete_topics.handle(controller, request, context)  # type: ignore[arg-type]  # a test double
    for _ in range(3):
        next(work)
    controller.snapshot = Snapshot(raw_snapshot(2, "x", 0, [], topics, {}))
    at_once(work)
    assert (answers, controller.deletions) == ([[("t", error)]], [])


def test_deletion_that_ends_after_the_timeout_is_answered_once(controller: _Controller) -> None:
    answers: list[Any] = []
    served = _ask(controller, "t", answers)
    late = controller.deletions[0]
    controller.timeouts.due(FOR_EVER_MS)
    assert controller.deletions == []
    late(None)
    del late
    gc.collect()
    assert served() is None
    assert answers == [[("t", REQUEST_TIMED_OUT)]]
