"""InitProducerId (key 22), versions 0 to 5: a producer id for an idempotent producer (KIP-98).

Without a transactional id every call gives a fresh id with epoch 0, as in Kafka, whatever id the client had. A worker
takes ids from a block of a thousand that the controller has made durable; what is left of it dies with the worker.
With a transactional id: there are no transactions yet, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED makes clients give up
at once rather than try for a minute. Version 6 (two-phase commit) is unstable in Kafka and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.protocol import errors
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context

if TYPE_CHECKING:
    from odradek.workers.worker import Worker


def handle(worker: Worker, request: Any, context: Context) -> Any:
    """Answers at once from the block, or when a new block has come."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            return _response(errors.INVALID_REQUEST)
        return _response(errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    worker.producer_ids.take(lambda producer_id: context.reply(_given(producer_id)))
    return None


def _given(producer_id: int) -> Any:
    if producer_id < 0:
        return _response(errors.COORDINATOR_NOT_AVAILABLE)
    return _response(errors.NONE, producer_id, 0)


def _response(error: int, producer_id: int = -1, epoch: int = -1) -> Any:
    return message_class("InitProducerIdResponse")(
        throttle_time_ms=0, error_code=error, producer_id=producer_id, producer_epoch=epoch
    )


API = Api(key=22, name="InitProducerId", versions=(0, 5), handle=handle)
