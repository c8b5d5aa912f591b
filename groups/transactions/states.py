"""The states of a transactional id and the effect of each event in each state, as tables; docs/states.md draws them.

Numbers and names are Kafka's: the numbers occur in `__transaction_state`, the names in DescribeTransactions.
PrepareEpochFence is only an intermediate step, and Dead is only written as a tombstone.
"""

from __future__ import annotations

import enum

from odradek.protocol.errors import Error


class State(enum.IntEnum):
    """A transactional id's state; `title` is the name that clients see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


BY_TITLE = {state.title: state for state in State}

_AT_REST = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

FROM: dict[State, frozenset[State]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING, State.PREPARE_EPOCH_FENCE}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _AT_REST,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}
"""The valid predecessors of each state."""

COMPLETED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
"""The next state of a prepared transaction when all its markers are written."""

NEVER_WRITTEN = frozenset({State.DEAD, State.PREPARE_EPOCH_FENCE})
"""The states that no record has; no transactional id stays in them, so the tables below omit them."""

EXPIRES = _AT_REST
"""The states in which a transactional id may expire."""

INIT: dict[State, State | Error] = {
    State.EMPTY: State.EMPTY,
    State.COMPLETE_COMMIT: State.EMPTY,
    State.COMPLETE_ABORT: State.EMPTY,
    State.ONGOING: State.PREPARE_EPOCH_FENCE,  # abort it first; the producer must retry
    State.PREPARE_COMMIT: Error.CONCURRENT_TRANSACTIONS,
    State.PREPARE_ABORT: Error.CONCURRENT_TRANSACTIONS,
}
"""InitProducerId: the next state, or the error."""

ADD: dict[State, State | Error] = {
    State.EMPTY: State.ONGOING,
    State.ONGOING: State.ONGOING,
    State.COMPLETE_COMMIT: State.ONGOING,
    State.COMPLETE_ABORT: State.ONGOING,
    State.PREPARE_COMMIT: Error.CONCURRENT_TRANSACTIONS,
    State.PREPARE_ABORT: Error.CONCURRENT_TRANSACTIONS,
}
"""AddPartitionsToTxn and AddOffsetsToTxn."""

COMMIT: dict[State, State | Error] = {
    State.EMPTY: Error.INVALID_TXN_STATE,
    State.ONGOING: State.PREPARE_COMMIT,
    State.PREPARE_COMMIT: Error.CONCURRENT_TRANSACTIONS,
    State.PREPARE_ABORT: Error.INVALID_TXN_STATE,
    State.COMPLETE_COMMIT: Error.NONE,  # a retry
    State.COMPLETE_ABORT: Error.INVALID_TXN_STATE,
}
"""EndTxn that commits."""

ABORT: dict[State, State | Error] = {
    State.EMPTY: Error.INVALID_TXN_STATE,
    State.ONGOING: State.PREPARE_ABORT,
    State.PREPARE_COMMIT: Error.INVALID_TXN_STATE,
    State.PREPARE_ABORT: Error.CONCURRENT_TRANSACTIONS,
    State.COMPLETE_COMMIT: Error.INVALID_TXN_STATE,
    State.COMPLETE_ABORT: Error.NONE,
}
"""EndTxn that aborts."""
