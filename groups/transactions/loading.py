"""Rebuilds transactional ids from `__transaction_state`: the last record of each counts, a null value deletes."""

from __future__ import annotations

import logging

from odradek.groups.fields import RecordError
from odradek.groups.transactions import records
from odradek.groups.transactions.transaction import Metadata
from odradek.protocol.errors import CORRUPT_MESSAGE
from odradek.protocol.records import batch_v2
from odradek.protocol.records.errors import RecordError as BatchError

log = logging.getLogger(__name__)


class TransactionReplay:
    """Pass the batches of one partition to `feed` in order, then read `transactions`."""

    def __init__(self) -> None:
        self.transactions: dict[str, Metadata] = {}

    def feed(self, batch: bytes) -> None:
        """Apply one batch; log and skip unreadable data, so that the rest still loads."""
        try:
            self._feed(batch)
        except BatchError as error:
            log.error("__transaction_state: skipped the batch at %d: %s", int.from_bytes(batch[:8], "big"), error)
        except Exception:
            log.exception("__transaction_state: skipped the batch at %d", int.from_bytes(batch[:8], "big"))

    def _feed(self, batch: bytes) -> None:
        header = batch_v2.header(batch)
        if not batch_v2.crc_is_right(batch):
            raise BatchError(CORRUPT_MESSAGE, "its checksum is wrong")
        if header.is_control:
            return
        for offset, _timestamp, key, value, _headers in batch_v2.iterate(batch):
            self._record(offset, key, value)

    def _record(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            transactional_id = records.decode_key(key or b"")
            if transactional_id is None:
                return
            if value is None:
                self.transactions.pop(transactional_id, None)
            else:
                self.transactions[transactional_id] = records.decode_value(value)
        except RecordError as error:
            log.error("__transaction_state: skipped the record at %d: %s", offset, error)
