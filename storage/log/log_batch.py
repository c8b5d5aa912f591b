"""A record batch to append to a partition, and what a transactional one or a marker brings along."""

from __future__ import annotations

from typing import NamedTuple

from odradek.protocol import errors


class VerificationGuard(NamedTuple):
    """The partition's state at the verification request to the coordinator: no marker may have come since."""

    generation: int  # of the producer table
    log_end: int


NOT_ASKED = VerificationGuard(-1, -1)


class Marker(NamedTuple):
    """The content of our own control batch. `only_open`: see storage.log.control_batch."""

    commit: bool
    coordinator_epoch: int
    only_open: bool = False


class Batch:
    """One record batch of magic 2 to append to a partition, and the result.

    In: `view` (writable, the whole batch), `count` records, `max_timestamp` ms, producer fields (id -1 when not
    idempotent), `guard` of a client's transactional batch (storage.log.transactions.may_open). Out: `error`,
    `base_offset`, `log_start`. Class attributes hold the values that most batches do not change: `append_time` (-1
    unless LogAppendTime, or a retry), `message` and `record_errors` of a refusal, `transactional`, `marker` (only in
    our own control batches, storage.log.transactions).
    """

    __slots__ = (
        "__dict__", "base_offset", "count", "epoch", "error", "log_start", "max_timestamp", "producer_id", "sequence",
        "view",
    )  # fmt: skip

    append_time = -1
    transactional = False
    guard: VerificationGuard | None = None
    marker: Marker | None = None
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()

    def __init__(
        self, view: memoryview, count: int, max_timestamp: int, producer_id: int = -1, epoch: int = -1,
        sequence: int = -1,
    ) -> None:  # fmt: skip
        self.view = view
        self.count = count
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.error = errors.NONE
        self.base_offset = -1
        self.log_start = -1

    def refuse(self, error: int, message: str | None = None) -> None:
        """Mark the batch as not appended."""
        self.error = error
        self.base_offset = -1
        if message is not None:
            self.message = message
