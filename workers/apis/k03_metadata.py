"""Metadata (key 3), versions 0 to 13: brokers, and the leaders of topics.

In v0 an empty list, in v1+ a null one asks for all topics; those that the client may not describe are left out. v4+ can
forbid the creation of missing topics (lower versions allow it), which also needs auto.create.topics.enable; as in Kafka
the first answer is LEADER_NOT_AVAILABLE and the client asks again, but here every worker knows the topic by then. v8-10
have cluster operations, v8+ topic operations. v10+ have topic ids in answers, v12+ in requests, where topics by name
count only if none is named by id. v0 leaves out replicas on unavailable brokers, with REPLICA_NOT_AVAILABLE; v5+ lists
them separately.
Equal requests on one listener, from clients with the same rights, get equal answers: they are encoded once for each
snapshot. Each topic is a step (Services.begin), and so is each piece of the encoding.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from odradek.cluster import internal
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules import topicnames
from odradek.ipc import forward
from odradek.protocol import errors, requests, responses
from odradek.protocol.library import message_class
from odradek.workers.dispatch import topology
from odradek.workers.dispatch.api import WAIT, Api
from odradek.workers.dispatch.authorization import CLUSTER, CREATE, DESCRIBE, TOPIC, Rights
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services

CAN_FORBID_CREATION, OPERATIONS, IDS_IN_REQUESTS, LAST_CLUSTER_OPERATIONS = 4, 8, 12, 10
_CACHED_BYTES = 32 << 20


class Query(NamedTuple):
    """A decoded request, with its bytes as the key of the answer cache."""

    request: Any
    body: bytes


class _Codec:
    """Keeps the request's bytes; passes on answers that are already encoded."""

    def decode(self, version: int, body: memoryview) -> Query:
        return Query(requests.decode(message_class("MetadataRequest"), version, body), bytes(body))

    def decoding(self, version: int, body: memoryview) -> Generator[None, None, Query]:
        return Query((yield from requests.decoding(message_class("MetadataRequest"), version, body)), bytes(body))

    def encode(self, version: int, response: Any) -> bytes:
        return response if isinstance(response, bytes) else responses.encoded(response, version)


Key = tuple[int, str, Rights, bytes]  # version, listener, what the client may do, the request


class _Cache:
    """Encoded answers of one snapshot."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._answers: dict[Key, bytes] = {}
        self._bytes = 0
        self._making: set[Key] = set()

    def keep(self, snapshot: Snapshot, key: Key, answer: bytes) -> None:
        """Cache `answer`, which must be complete, unless it was made from older metadata."""
        if snapshot is self._snapshot:
            self._answers[key] = answer
            self._bytes += len(key[3]) + len(answer)

    def of(self, snapshot: Snapshot) -> dict[Key, bytes]:
        """The answers for `snapshot`; drops those for another one."""
        if self._snapshot is not snapshot or self._bytes > _CACHED_BYTES:
            self._snapshot, self._answers, self._bytes, self._making = snapshot, {}, 0, set()
        return self._answers

    def making(self, key: Key, work: Iterator[object]) -> Iterator[object]:
        """Run `work`, which makes the answer for `key`; first wait while another request makes the same answer."""
        while key in (making := self._making):
            yield WAIT
        making.add(key)
        try:
            yield from work
        finally:
            making.discard(key)


_cache = _Cache()


def handle(services: Services, query: Query, context: Context) -> Any:
    if _names_badly(query.request, context.version):
        return _refused(query.request)
    key = _key(query, context)
    answer = _cache.of(services.snapshot).get(key)
    if answer is not None:
        return answer
    return _cache.making(key, _made(services, query, context))


def _key(query: Query, context: Context) -> Key:
    return context.version, context.listener, context.rights, query.body


def _made(services: Services, query: Query, context: Context) -> Iterator[None]:
    """Answer, after creating missing topics."""
    missing = yield from _to_create(services, query.request, context)
    if not missing:
        yield from _cached(services, query, context, {})
        return

    def created(flags: int, body: bytes) -> None:
        context.begin(_created(services, query, context, flags, body))

    services.forward(internal.AUTO_CREATE, 0, internal.encode({"topics": sorted(missing)}), created)


def _names_badly(request: Any, version: int) -> bool:
    """Whether a topic has no name, or has an id, in a version before topic ids."""
    if version >= IDS_IN_REQUESTS or request.topics is None:
        return False
    return any(topic.name is None or topology.requested_id(topic) for topic in request.topics)


def _refused(request: Any) -> Any:
    """The answer to an invalid request, as in Kafka: without a look at any topic."""
    response = message_class("MetadataResponse")
    topics = [
        response.MetadataResponseTopic(
            error_code=errors.INVALID_REQUEST, name=topic.name or "", is_internal=False, partitions=[],
            topic_id=UUID(bytes=topology.requested_id(topic) or bytes(16)),
        )
        for topic in request.topics
    ]  # fmt: skip
    return response(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _created(services: Services, query: Query, context: Context, flags: int, body: bytes) -> Iterator[None]:
    outcomes = internal.decode(body)["errors"] if flags == forward.OK else {}
    codes = {name: code or errors.LEADER_NOT_AVAILABLE for name, (code, _) in outcomes.items()}
    yield from _cached(services, query, context, codes)


def _cached(services: Services, query: Query, context: Context, codes: dict[str, int]) -> Iterator[None]:
    """Reply, and cache the answer unless it contains errors."""
    snapshot = services.snapshot
    key = _key(query, context)
    encoded = _cache.of(snapshot).get(key)
    if encoded is None:
        response = yield from _answer(services, query.request, context, codes)
        encoded = yield from responses.encoding(response, context.version)
        if not any(topic.error_code for topic in response.topics):
            _cache.keep(snapshot, key, encoded)
    context.reply(encoded)


def _wants_all(request: Any, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _to_create(services: Services, request: Any, context: Context) -> Generator[None, None, set[str]]:
    """The requested topics that do not exist, have a valid name, and are to be created."""
    version = context.version
    allowed = version < CAN_FORBID_CREATION or request.allow_auto_topic_creation
    if not allowed or _wants_all(request, version) or not services.config["auto.create.topics.enable"]:
        return set()
    missing = set()
    for topic in request.topics:
        name = topic.name
        unknown = name is not None and not topology.requested_id(topic) and name not in services.snapshot.topics
        if unknown and topicnames.problem(name) is None and _may_create(context, name):
            missing.add(name)
        yield
    return missing


def _may_create(context: Context, name: str) -> bool:
    """Whether the client may have this missing topic created."""
    return context.sees(DESCRIBE, TOPIC, name) and (
        context.sees(CREATE, CLUSTER) or context.allows(CREATE, TOPIC, name)
    )


def _answer(
    services: Services, request: Any, context: Context, codes: dict[str, int]
) -> Generator[None, None, Any]:  # fmt: skip
    response = message_class("MetadataResponse")
    snapshot, version, listener = services.snapshot, context.version, context.listener
    topics = []
    if _wants_all(request, version):
        for name in snapshot.topics:
            if context.sees(DESCRIBE, TOPIC, name):
                topics.append(_topic(snapshot, name, listener, version))
            yield
    else:
        creates = services.config["auto.create.topics.enable"] and (
            version < CAN_FORBID_CREATION or request.allow_auto_topic_creation
        )
        for topic in _once(request.topics):
            topics.append(_requested_topic(snapshot, topic, context, creates, codes))
            yield
    if version >= OPERATIONS and _asks(request, "topic"):
        for topic in topics:
            if topic.error_code != errors.TOPIC_AUTHORIZATION_FAILED and topic.name is not None:
                topic.authorized_operations = set(context.rights.operations(TOPIC, topic.name))
    brokers = [
        response.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in topology.nodes(snapshot, listener)
    ]
    answer = response(
        brokers=brokers, cluster_id=snapshot.cluster_id, controller_id=snapshot.controller_id, topics=topics
    )
    if OPERATIONS <= version <= LAST_CLUSTER_OPERATIONS and _asks(request, "cluster"):
        answer.authorized_operations = set(topology.cluster_operations(context))
    return answer


def _asks(request: Any, what: str) -> bool:
    return bool(getattr(request, f"include_{what}_authorized_operations", False))


def _once(topics: list[Any]) -> list[Any]:
    """Each topic once, as Kafka answers, in the order of the request; only those with an id if there are any."""
    by_id = {topic_id: topic for topic in topics if (topic_id := topology.requested_id(topic))}
    return list((by_id or {topic.name: topic for topic in topics}).values())


def _requested_topic(
    snapshot: Snapshot, requested: Any, context: Context, creates: bool, codes: dict[str, int]
) -> Any:  # fmt: skip
    topic_id = topology.requested_id(requested) if context.version >= IDS_IN_REQUESTS else None
    name = snapshot.by_id(topic_id) if topic_id else requested.name or ""
    if name is None:
        return _missing(None, errors.UNKNOWN_TOPIC_ID, UUID(bytes=topic_id))
    if not context.allows(DESCRIBE, TOPIC, name):
        return _hidden(name, topic_id)
    if name in snapshot.topics and name not in codes:
        return _topic(snapshot, name, context.listener, context.version)
    if topic_id:
        return _missing(None, errors.UNKNOWN_TOPIC_ID, UUID(bytes=topic_id))
    code = codes.get(name)
    if not code and creates and not _may_create(context, name):
        code = errors.TOPIC_AUTHORIZATION_FAILED
    return _missing(name, code or topology.unknown_topic(name), topology.NO_ID)


def _hidden(name: str, topic_id: bytes | None) -> Any:
    """A topic that the client may not describe: the answer has only what the request names it by."""
    found = _missing(None if topic_id else name, errors.TOPIC_AUTHORIZATION_FAILED, UUID(bytes=topic_id or bytes(16)))
    found.is_internal = False
    return found


def _missing(name: str | None, code: int, topic_id: UUID) -> Any:
    topic_class = message_class("MetadataResponse").MetadataResponseTopic
    internal_ = name in topicnames.INTERNAL
    return topic_class(error_code=code, name=name, topic_id=topic_id, is_internal=internal_, partitions=[])


def _topic(snapshot: Snapshot, name: str, listener: str, version: int) -> Any:
    topic_class = message_class("MetadataResponse").MetadataResponseTopic
    topic = snapshot.topics[name]
    return topic_class(
        error_code=errors.NONE,
        name=name,
        topic_id=UUID(bytes=topic.id),
        is_internal=topic.internal,
        partitions=[
            _partition(snapshot, index, info, listener, version) for index, info in enumerate(topic.partitions)
        ],
    )


def _partition(snapshot: Snapshot, index: int, info: Any, listener: str, version: int) -> Any:
    code, leader = topology.leadership(snapshot, info, listener)
    if version < 6 and code == errors.LISTENER_NOT_FOUND:
        code = errors.LEADER_NOT_AVAILABLE
    replicas, isr = info.replicas, info.isr
    if version == 0:
        replicas, isr = (topology.online(snapshot, ids, listener) for ids in (replicas, isr))
        if not code and (len(replicas), len(isr)) != (len(info.replicas), len(info.isr)):
            code = errors.REPLICA_NOT_AVAILABLE
    return message_class("MetadataResponse").MetadataResponseTopic.MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=topology.offline(snapshot, info, listener),
    )


API = Api(key=3, name="Metadata", versions=(0, 13), handle=handle, codec=_Codec())
