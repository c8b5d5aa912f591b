"""EndTxn (key 26), versions 0 to 4: commit or abort a producer's transaction (KIP-98).

Answered when the decision is in `__transaction_state`; the markers follow, and the next transaction gets
CONCURRENT_TRANSACTIONS until they are written. v2+ have PRODUCER_FENCED. Left out: v5, which bumps the epoch with each
transaction (KIP-890) and which clients use only if the feature `transaction.version` is 2.
"""

from __future__ import annotations

from typing import Any

from odradek.groups.transactions.events import Producer
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import TRANSACTIONAL_ID, WRITE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator, for_old_producers

FENCED = 2


def handle(coordinator: Coordinator, request: Any, context: Context) -> None:
    """See above."""
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)

    def answer(error: Error) -> None:
        code = for_old_producers(error, context.version, FENCED)
        context.reply(message_class("EndTxnResponse")(throttle_time_ms=0, error_code=code))

    if not context.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        answer(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    coordinator.transactions.end(producer, request.committed, answer, coordinator.now)


API = Api(key=26, name="EndTxn", versions=(0, 4), runs_in=COORDINATOR, handle=handle)
