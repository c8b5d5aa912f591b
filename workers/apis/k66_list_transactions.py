"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this broker (KIP-664).

Filters are state names, producer ids, from v1 on the minimum duration of the transaction in ms, and from v2 on a
pattern for the transactional id (KIP-1152); a row has to pass all given filters. The answer lists unknown state names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.groups.transactions.events import Summary
from odradek.protocol.errors import INVALID_REGULAR_EXPRESSION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import DESCRIBE, TRANSACTIONAL_ID
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator
from odradek.workers.dispatch.patterns import InvalidPattern, Pattern

DURATION, PATTERN = 1, 2


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """COORDINATOR_LOAD_IN_PROGRESS until all ids are loaded. Rows are made in steps (broker.process.steps)."""
    response = message_class("ListTransactionsResponse")
    longer_ms = request.duration_filter if context.version >= DURATION else -1
    error, unknown, found = coordinator.transactions.listing(
        request.state_filters, request.producer_id_filters, longer_ms, coordinator.now
    )
    rows: list[Any] = []
    try:
        matches = _matcher(request.transactional_id_pattern if context.version >= PATTERN else None)
        for piece in pieces(found):
            yield
            rows += [
                _row(response.TransactionState, row)
                for row in piece
                if matches(row.transactional_id) and context.sees(DESCRIBE, TRANSACTIONAL_ID, row.transactional_id)
            ]
    except InvalidPattern:
        refused = response(error_code=INVALID_REGULAR_EXPRESSION, unknown_state_filters=[], transaction_states=[])
        context.reply(refused)
        return
    context.reply(response(error_code=error, unknown_state_filters=unknown, transaction_states=rows))


def _matcher(text: str | None) -> Callable[[str], bool]:
    """The test of a transactional id against the pattern; no pattern or an empty one accepts all."""
    return Pattern(text).fullmatch if text else lambda _: True


def _row(row_class: Any, row: Summary) -> Any:
    return row_class(transactional_id=row.transactional_id, producer_id=row.producer_id, transaction_state=row.state)


API = Api(key=66, name="ListTransactions", versions=(0, 2), runs_in=COORDINATOR, handle=handle)
