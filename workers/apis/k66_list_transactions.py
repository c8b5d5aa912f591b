"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this broker (KIP-664).

Filters are state names, producer ids, from v1 on for how many ms the transaction must have been going on, and from v2
on a pattern for the transactional id (KIP-1152); a row has to pass all that are given. State names that nobody knows
are handed back.
"""

from __future__ import annotations

import re
from typing import Any

from odradek.groups.errors import Error
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import Coordinator

DURATION, PATTERN = 1, 2
INVALID_REGULAR_EXPRESSION = 128


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    """COORDINATOR_LOAD_IN_PROGRESS while not all of them are known."""
    response = message_class("ListTransactionsResponse")
    longer_ms = request.duration_filter if context.version >= DURATION else -1
    try:
        pattern = re.compile((context.version >= PATTERN and request.transactional_id_pattern) or ".*", re.DOTALL)
    except re.error:
        return response(error_code=INVALID_REGULAR_EXPRESSION, unknown_state_filters=[], transaction_states=[])
    error, unknown, found = coordinator.transactions.listing(
        request.state_filters, request.producer_id_filters, longer_ms, coordinator.now
    )
    rows = [
        response.TransactionState(
            transactional_id=row.transactional_id, producer_id=row.producer_id, transaction_state=row.state
        )
        for row in found
        if pattern.fullmatch(row.transactional_id)
    ]
    return response(error_code=Error(error), unknown_state_filters=unknown, transaction_states=rows)


API = Api(key=66, name="ListTransactions", versions=(0, 2), runs_in=COORDINATOR, handle=handle)
