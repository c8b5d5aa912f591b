"""DeleteTopics (key 20), versions 0 to 6: by name, v6 also by id.

Answered when the logs are unreachable and every live worker knows of the deletion, or with REQUEST_TIMED_OUT when that
takes longer than the request allows; the deletion continues. v5+ have error messages. With delete.topic.enable=false:
INVALID_REQUEST before v3, TOPIC_DELETION_DISABLED from v3 on. v5+ may answer THROTTLING_QUOTA_EXCEEDED (KIP-599). Many
topics take many steps (broker.process.steps).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, mutate, throttled
from odradek.workers.dispatch.api import CONTROLLER, Api, pieces
from odradek.workers.dispatch.authorization import DELETE, DESCRIBE, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.topology import NO_ID, requested_id, topic_uuid

BY_ID, DISABLED_HAS_CODE = 6, 3


NameAndId = tuple[str | None, UUID]
"""A topic's name and id in a request; None and NO_ID where the request does not give them."""


class RequestedTopic(NamedTuple):
    """A topic as a request names it; `name` is None for an unknown id."""

    name: str | None
    topic_id: UUID
    refusal: str | None = None  # the error message if it is named in an invalid way
    by_id: bool = False


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    requested = yield from _requested(request, context.version, controller.snapshot)
    yield from _Deletion(controller, requested, context).start(request.timeout_ms)


def _requested(request: Any, version: int, snapshot: Snapshot) -> Generator[None, None, list[RequestedTopic]]:
    named: Counter[NameAndId] = Counter()
    for some in pieces(request.topic_names if version < BY_ID else request.topics):
        named.update((one, NO_ID) if version < BY_ID else (one.name, _uuid(one)) for one in some)
        yield
    found: list[RequestedTopic] = []
    for ways in pieces(list(named)):
        found += filter(None, (_meant(one, named, snapshot) for one in ways))
        yield
    return found


def _uuid(topic: Any) -> UUID:
    topic_id = requested_id(topic)
    return NO_ID if topic_id is None else UUID(bytes=topic_id)


def _meant(one: NameAndId, named: Counter[NameAndId], snapshot: Snapshot) -> RequestedTopic | None:
    """The topic; None for an id whose topic is also named by name: the answer to the name covers both."""
    name, topic_id = one
    if name is None and topic_id == NO_ID:
        return RequestedTopic(None, NO_ID, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_ID:
        return RequestedTopic(name, topic_id, "You may not specify both topic name and topic id.")
    if named[one] > 1:
        return RequestedTopic(name, topic_id, f"Duplicate topic {'id' if name is None else 'name'}.")
    return _by_id(topic_id, named, snapshot) if name is None else _by_name(name, named, snapshot)


def _by_id(topic_id: UUID, named: Counter[NameAndId], snapshot: Snapshot) -> RequestedTopic | None:
    name = snapshot.by_id(topic_id.bytes)
    return None if name is not None and named[name, NO_ID] == 1 else RequestedTopic(name, topic_id, by_id=True)


def _by_name(name: str, named: Counter[NameAndId], snapshot: Snapshot) -> RequestedTopic:
    topic_id = topic_uuid(snapshot, name)
    twice = (None, topic_id) in named and topic_id != NO_ID
    return RequestedTopic(
        name, topic_id, "The provided topic name maps to an ID that was already supplied." if twice else None
    )


class _Deletion:
    """One request: the outcome of each topic, and the answer when all are done or the timeout expires."""

    def __init__(self, controller: Controller, requested: list[RequestedTopic], context: Context) -> None:
        self._controller = controller
        self._requested = requested
        self._context = context
        self._quota = controller.mutations(context)
        self._errors: dict[RequestedTopic, ApiError | None] = {}  # of the finished deletions
        self._begun = False  # all deletions have begun
        self._answered = False
        self._cancels: list[Callable[[], object]] = []

    def start(self, timeout_ms: int) -> Iterator[None]:
        for some in pieces(self._requested):
            refusals = {topic: self._refusal(topic) for topic in some}
            self._errors |= {topic: error for topic, error in refusals.items() if error is not None}
            yield
        for topic in [topic for topic in self._requested if topic not in self._errors]:
            self._delete(topic)
            yield
        self._begun = True
        self._cancels.append(self._controller.after(max(0, timeout_ms), self._answer))
        self._maybe_answer()

    def _refusal(self, topic: RequestedTopic) -> ApiError | None:
        if not self._controller.config["delete.topic.enable"]:
            old = self._context.version < DISABLED_HAS_CODE
            return ApiError(INVALID_REQUEST if old else TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if topic.refusal:
            return ApiError(INVALID_REQUEST, topic.refusal)
        if topic.name is None:
            return ApiError(UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if self._is_hidden(topic) or not self._context.allows(DELETE, TOPIC, topic.name):
            return ApiError(TOPIC_AUTHORIZATION_FAILED, None)
        if topic.name not in self._controller.snapshot.topics:
            return ApiError(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return None

    def _is_hidden(self, topic: RequestedTopic) -> bool:
        """Whether it is named by its id, and the client may not describe it, nor learn its name."""
        return topic.by_id and topic.name is not None and not self._context.sees(DESCRIBE, TOPIC, topic.name)

    def _delete(self, topic: RequestedTopic) -> None:
        """Delete a topic, unless another request has deleted, and perhaps recreated, it meanwhile."""
        if error := self._refusal(topic) or self._replaced(topic):
            self._errors[topic] = error
            return
        try:
            mutate(self._quota, len(self._controller.snapshot.topics[str(topic.name)]))
            self._cancels.append(self._controller.owner.delete_topic(str(topic.name), self._done(topic)))
        except ApiError as error:
            self._errors[topic] = error

    def _replaced(self, topic: RequestedTopic) -> ApiError | None:
        now = topic_uuid(self._controller.snapshot, str(topic.name))
        if self._context.version < BY_ID or topic.topic_id in (NO_ID, now):
            return None
        return ApiError(UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")

    def _done(self, topic: RequestedTopic) -> Callable[[ApiError | None], None]:
        def done(error: ApiError | None) -> None:
            self._errors[topic] = error
            if error is None:
                self._context.changed(f"deleted topic {topic.name}")
            self._maybe_answer()

        return done

    def _maybe_answer(self) -> None:
        if self._begun and len(self._errors) == len(self._requested):
            self._controller.when_published(self._answer)

    def _answer(self) -> None:
        if self._answered:
            return
        self._answered = True
        self._context.begin(self._answering())

    def _answering(self) -> Iterator[None]:
        for some in pieces(self._cancels):
            for cancel in some:
                cancel()
            yield
        results: list[Any] = []
        for requested in pieces(self._requested):
            results += [self._result(topic) for topic in requested]
            yield
        response = message_class("DeleteTopicsResponse")(responses=results)
        self._context.reply(throttled(response, self._quota))

    def _result(self, topic: RequestedTopic) -> Any:
        error = self._errors.get(topic, ApiError(REQUEST_TIMED_OUT, None))
        denied = error is not None and error.code == TOPIC_AUTHORIZATION_FAILED
        return message_class("DeleteTopicsResponse").DeletableTopicResult(
            name=None if self._is_hidden(topic) else topic.name,
            topic_id=NO_ID if denied and not topic.by_id else topic.topic_id,
            error_code=error.code if error else NONE,
            error_message=error.message if error else None,
        )


API = Api(key=20, name="DeleteTopics", versions=(0, 6), runs_in=CONTROLLER, handle=handle)
