"""FindCoordinator (key 10), versions 0 to 6.

The coordinator of a group is the leader of its partition of `__consumer_offsets`. The topic is made when the first
group asks; that answer waits until it is there and loaded, which spares clients a retry, and is
COORDINATOR_NOT_AVAILABLE if it takes too long. v1+ have a key type, v4+ ask for many keys at once (KIP-699).
Transactional ids are refused, as there are no transactions yet: with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is
the code that every client gives up on at once, and a message that tells the truth. Share groups (v6) get
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.groups.errors import Error
from odradek.protocol.errors import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import Coordinator

GROUP, TRANSACTION = 0, 1
OFFSETS_TOPIC = "__consumer_offsets"
MANY_KEYS = 4


class Node(NamedTuple):
    """Where a key's coordinator is, or why nobody knows."""

    error: int
    message: str | None = None
    id: int = -1
    host: str = ""
    port: int = -1


NOT_AVAILABLE = Node(Error.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available yet.")
NO_TRANSACTIONS = Node(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker does not have transactions yet.")
NO_SUCH_TYPE = Node(Error.INVALID_REQUEST, "This broker only coordinates groups.")


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    keys = request.coordinator_keys if context.version >= MANY_KEYS else [request.key]
    kind = request.key_type if context.version >= 1 else GROUP
    if kind != GROUP:
        return _response([(key, NO_TRANSACTIONS if kind == TRANSACTION else NO_SUCH_TYPE) for key in keys])

    def ready(there: bool) -> None:
        find = _leader_of if there else lambda *_: NOT_AVAILABLE
        context.reply(_response([(key, find(coordinator, key, context.listener)) for key in keys]))

    coordinator.when_offsets_topic(ready)
    return None


def _leader_of(coordinator: Coordinator, group: str, listener: str) -> Node:
    """The leader of the group's partition, under the name that this listener's clients know it by."""
    snapshot = coordinator.snapshot
    partition = snapshot.partition(OFFSETS_TOPIC, coordinator.groups.partition_of(group))
    broker = snapshot.brokers.get(partition.leader) if partition else None
    if broker is None or listener not in broker.endpoints:
        return NOT_AVAILABLE
    host, port = broker.endpoints[listener]
    return Node(Error.NONE, None, broker.id, host, port)


def _response(found: list[tuple[str, Node]]) -> Any:
    """Both shapes at once: the first key's for v0-v3, all of them for v4+."""
    response = message_class("FindCoordinatorResponse")
    rows = [
        response.Coordinator(
            key=key, error_code=node.error, error_message=node.message, node_id=node.id, host=node.host, port=node.port
        )
        for key, node in found
    ]
    first = found[0][1] if found else NOT_AVAILABLE
    return response(
        error_code=first.error,
        error_message=first.message,
        node_id=first.id,
        host=first.host,
        port=first.port,
        coordinators=rows,
    )


API = Api(key=10, name="FindCoordinator", versions=(0, 6), runs_in=COORDINATOR, handle=handle)
