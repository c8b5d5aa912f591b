"""AddOffsetsToTxn (key 25), versions 0 to 4: a producer is about to commit a group's offsets in its transaction.

The group's partition of `__consumer_offsets` becomes part of the transaction, so that it gets a marker like the others.
v2+ have PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import Any

from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.transactions.events import Producer
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import GROUP, READ, TRANSACTIONAL_ID, WRITE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator, for_old_producers

FENCED = 2


def handle(coordinator: Coordinator, request: Any, context: Context) -> None:
    """Answers when the partition is in `__transaction_state`."""
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)

    def answer(error: Error) -> None:
        code = for_old_producers(error, context.version, FENCED)
        context.reply(message_class("AddOffsetsToTxnResponse")(throttle_time_ms=0, error_code=code))

    if not context.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        answer(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not context.allows(READ, GROUP, request.group_id):
        answer(Error.GROUP_AUTHORIZATION_FAILED)
        return

    def ready(exists: bool) -> None:
        if not exists:
            answer(Error.COORDINATOR_NOT_AVAILABLE)
            return
        partition = OFFSETS, coordinator.groups.partition_of(request.group_id)
        coordinator.transactions.add(producer, [partition], answer, coordinator.now)

    coordinator.when_offsets_topic(ready)


API = Api(key=25, name="AddOffsetsToTxn", versions=(0, 4), runs_in=COORDINATOR, handle=handle)
