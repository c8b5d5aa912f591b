"""InitProducerId (key 22), versions 0 to 5: a producer id and epoch (KIP-98, KIP-360).

Without a transactional id every call returns a new id with epoch 0, as in Kafka, whatever id the client had. A worker
takes ids from a block of a thousand that the controller has made durable; the rest of the block dies with the worker.
With a transactional id the coordinator serves the request: it returns the id's next epoch, which fences the previous
producer, and aborts that producer's open transaction; the client gets CONCURRENT_TRANSACTIONS until the abort is
complete. v3+ send the producer's id and epoch, so that only a producer that is not fenced may continue; one without the
other gets INVALID_REQUEST. v4+ have PRODUCER_FENCED. Version 6 (two-phase commit) is unstable in Kafka and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.groups.transactions.events import InitResult, Producer
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.protocol.wire import uvarint
from odradek.workers.dispatch.api import COORDINATOR, WORKER, Api
from odradek.workers.dispatch.authorization import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator, for_old_producers

if TYPE_CHECKING:
    from odradek.workers.produce.produce_services import ProduceServices

OWN_EPOCH, FENCED = 3, 4
_COMPACT = 2  # from this version on the transactional id has a varint length, 0 for null


def route(version: int, body: bytes) -> str:
    """Where a request is handled: its first field is the transactional id."""
    is_null = uvarint(body, 0)[0] == 0 if version >= _COMPACT else body[0] > 0x7F  # any negative length
    return WORKER if is_null else COORDINATOR


def handle(services: Any, request: Any, context: Context) -> Any:
    """Runs in a worker or the coordinator, as `route` selects."""
    if error := _refusal(request.transactional_id, context):
        return _response(InitResult(error), context)
    if context.version >= OWN_EPOCH and (request.producer_id == -1) != (request.producer_epoch == -1):
        return _response(InitResult(Error.INVALID_REQUEST), context)
    if request.transactional_id is None:
        return _give(services, context)
    return _init(services, request, context)


def _refusal(transactional_id: str | None, context: Context) -> Error:
    """The error of a client that may not have a producer id: any topic that it may write to is enough (KIP-679)."""
    if transactional_id is not None:
        allowed = context.allows(WRITE, TRANSACTIONAL_ID, transactional_id)
        return Error.NONE if allowed else Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.rights.allows_any(WRITE, TOPIC) or context.allows(IDEMPOTENT_WRITE, CLUSTER):
        return Error.NONE
    return Error.CLUSTER_AUTHORIZATION_FAILED


def _give(services: ProduceServices, context: Context) -> None:
    """Answers at once from the block, or when a new block has arrived."""

    def allocated(producer_id: int) -> None:
        failed = InitResult(Error.COORDINATOR_NOT_AVAILABLE)
        context.reply(_response(failed if producer_id < 0 else InitResult(Error.NONE, producer_id, 0), context))

    services.producer_ids.take(allocated)


def _init(coordinator: Coordinator, request: Any, context: Context) -> None:
    producer = Producer(request.transactional_id)
    if context.version >= OWN_EPOCH:
        producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)

    def answer(result: InitResult) -> None:
        context.reply(_response(result, context))

    coordinator.transactions.init_producer_id(producer, request.transaction_timeout_ms, answer, coordinator.now)


def _response(result: InitResult, context: Context) -> Any:
    return message_class("InitProducerIdResponse")(
        throttle_time_ms=0,
        error_code=for_old_producers(result.error, context.version, FENCED),
        producer_id=result.producer_id,
        producer_epoch=result.epoch,
    )


API = Api(key=22, name="InitProducerId", versions=(0, 5), handle=handle, route=route)
