"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this broker (KIP-664).

Filters are state names, producer ids, from v1 on for how many ms the transaction must have been going on, and from v2
on a pattern for the transactional id (KIP-1152); a row has to pass all that are given. State names that nobody knows
are handed back.
"""

from __future__ import annotations

from typing import Any

from odradek.groups.errors import Error
from odradek.groups.transactions.events import Summary
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import Coordinator
from odradek.workers.patterns import Pattern, Refused

DURATION, PATTERN = 1, 2
INVALID_REGULAR_EXPRESSION = 128


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    """COORDINATOR_LOAD_IN_PROGRESS while not all of them are known."""
    response = message_class("ListTransactionsResponse")
    longer_ms = request.duration_filter if context.version >= DURATION else -1
    error, unknown, found = coordinator.transactions.listing(
        request.state_filters, request.producer_id_filters, longer_ms, coordinator.now
    )
    try:
        found = _matching(found, request.transactional_id_pattern if context.version >= PATTERN else None)
    except Refused:
        return response(error_code=INVALID_REGULAR_EXPRESSION, unknown_state_filters=[], transaction_states=[])
    rows = [
        response.TransactionState(
            transactional_id=row.transactional_id, producer_id=row.producer_id, transaction_state=row.state
        )
        for row in found
    ]
    return response(error_code=Error(error), unknown_state_filters=unknown, transaction_states=rows)


def _matching(found: list[Summary], text: str | None) -> list[Summary]:
    """Those whose transactional id the pattern matches; none or an empty one lets all pass."""
    if not text:
        return found
    pattern = Pattern(text)
    return [row for row in found if pattern.fullmatch(row.transactional_id)]


API = Api(
    key=66, name="ListTransactions", versions=(0, 2), runs_in=COORDINATOR, handle=handle, rows="transaction_states"
)
