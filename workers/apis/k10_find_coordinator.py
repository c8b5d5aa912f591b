"""FindCoordinator (key 10), versions 0 to 6.

The coordinator of a group is the leader of its partition of `__consumer_offsets`. The topic is created when the first
client asks; that answer waits until it exists and is loaded, which saves clients a retry, and is
COORDINATOR_NOT_AVAILABLE if it takes too long. v1+ have a key type, v4+ ask for many keys at once (KIP-699). The same
holds for transactional ids and `__transaction_state`. Share groups (v6) get INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from odradek.cluster.rules.topicnames import OFFSETS, TRANSACTIONS
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.security.acls.acl_types import ResourceType
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import DESCRIBE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

GROUP, TRANSACTION = 0, 1
MANY_KEYS = 4


class CoordinatorNode(NamedTuple):
    """The address of a key's coordinator, or the error."""

    error: int
    message: str | None = None
    id: int = -1
    host: str = ""
    port: int = -1


NOT_AVAILABLE = CoordinatorNode(Error.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available yet.")
NO_SUCH_TYPE = CoordinatorNode(Error.INVALID_REQUEST, "This broker only coordinates groups and transactions.")
NO_ID = CoordinatorNode(Error.INVALID_REQUEST, "A transactional id must not be empty.")


RESOURCE = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
DENIED = {
    GROUP: CoordinatorNode(Error.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: CoordinatorNode(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    keys = request.coordinator_keys if context.version >= MANY_KEYS else [request.key]
    kind = request.key_type if context.version >= 1 else GROUP
    if kind not in (GROUP, TRANSACTION):
        return _answering(keys, lambda _: NO_SUCH_TYPE, context)
    denied = {key for key in keys if not context.allows(DESCRIBE, RESOURCE[kind], key)}
    if keys and len(denied) == len(set(keys)):
        return _answering(keys, lambda _: DENIED[kind], context)

    def ready(exists: bool) -> None:
        def find(key: str) -> CoordinatorNode:
            if key in denied:
                return DENIED[kind]
            return LEADER[kind](coordinator, key, context.listener) if exists else NOT_AVAILABLE

        context.begin(_answering(keys, find, context))

    wait = coordinator.when_offsets_topic if kind == GROUP else coordinator.when_transactions_topic
    wait(ready, [key for key in keys if key not in denied])
    return None


def _of_group(coordinator: Coordinator, group: str, listener: str) -> CoordinatorNode:
    return _leader(coordinator, OFFSETS, coordinator.groups.partition_of(group), listener)


def _of_transactions(coordinator: Coordinator, transactional_id: str, listener: str) -> CoordinatorNode:
    if not transactional_id:
        return NO_ID
    return _leader(coordinator, TRANSACTIONS, coordinator.transactions.partition_of(transactional_id), listener)


LEADER = {GROUP: _of_group, TRANSACTION: _of_transactions}


def _leader(coordinator: Coordinator, topic: str, index: int, listener: str) -> CoordinatorNode:
    """The partition's leader, with its address for this listener."""
    snapshot = coordinator.snapshot
    partition = snapshot.partition(topic, index)
    broker = snapshot.brokers.get(partition.leader) if partition else None
    if broker is None or listener not in broker.endpoints:
        return NOT_AVAILABLE
    host, port = broker.endpoints[listener]
    return CoordinatorNode(Error.NONE, None, broker.id, host, port)


def _answering(keys: list[str], find: Callable[[str], CoordinatorNode], context: Context) -> Iterator[None]:
    """Fills both forms: the first key's for v0-v3, all keys for v4+. Many keys take many steps (process.steps)."""
    response = message_class("FindCoordinatorResponse")
    rows: list[Any] = []
    for piece in pieces(keys):
        rows += [_row(response.Coordinator, key, find(key)) for key in piece]
        yield
    first = find(keys[0]) if keys else NOT_AVAILABLE
    answer = response(
        error_code=first.error,
        error_message=first.message,
        node_id=first.id,
        host=first.host,
        port=first.port,
        coordinators=rows,
    )
    context.reply(answer)


def _row(row: Any, key: str, node: CoordinatorNode) -> Any:
    return row(
        key=key, error_code=node.error, error_message=node.message, node_id=node.id, host=node.host, port=node.port
    )


API = Api(key=10, name="FindCoordinator", versions=(0, 6), runs_in=COORDINATOR, handle=handle)
