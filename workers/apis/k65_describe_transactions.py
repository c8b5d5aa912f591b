"""DescribeTransactions (key 65), version 0: state, producer and partitions of transactional ids (KIP-664).

An id that is named twice is answered once: it may have many partitions. Each id is one step (broker.process.steps).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """An unused id gets TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST; their numeric fields are 0."""
    states = []
    for name in dict.fromkeys(request.transactional_ids):
        states.append(_state(coordinator, name, context))
        yield
    context.reply(message_class("DescribeTransactionsResponse")(throttle_time_ms=0, transaction_states=states))


def _state(coordinator: Coordinator, transactional_id: str, context: Context) -> Any:
    row = message_class("DescribeTransactionsResponse").TransactionState
    if not context.allows(DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        return row(error_code=Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=transactional_id)
    error, found = coordinator.transactions.describe(transactional_id)
    if error:
        return row(error_code=error, transactional_id=transactional_id)
    seen = sorted(tp for tp in found.partitions if context.sees(DESCRIBE, TOPIC, tp[0]))
    by_topic = groupby(seen, lambda tp: tp[0])
    return row(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[row.TopicData(topic=name, partitions=[index for _, index in rows]) for name, rows in by_topic],
    )


API = Api(key=65, name="DescribeTransactions", versions=(0, 0), runs_in=COORDINATOR, handle=handle)
