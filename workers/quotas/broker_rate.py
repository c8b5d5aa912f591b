"""A client quota's rate over all workers of this broker.

A worker adds to the rate under the lock of its row (ipc.quotas). To keep that rare, it collects up to a thousandth of
what the quota allows in a window before it adds; the rate is off by no more than that for each worker. While the quota
is exceeded, it adds each request's amount, since each gets its throttle time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.security.quotas.rates import Rate, Window

if TYPE_CHECKING:
    from odradek.ipc.quotas import Digest, QuotaTable

_COLLECTED = 1000  # the part of a window's amount that a worker may collect
_AGAIN_MS = 1000  # between two searches for a free row
_NO_ROW = -1


class BrokerRate:
    """The rate of one quota; amounts are whole numbers, `bound` is the amount a second that the quota allows."""

    def __init__(self, table: QuotaTable | None, digest: Digest, window: Window, bound: float) -> None:
        """Without a table, or while all its rows are in use, this worker counts alone."""
        self._table = table
        self._digest = digest
        self._window = window
        self._bound = bound
        self.most_collected = bound * window.whole_ms / 1000 / _COLLECTED
        self._collected = 0
        self._alone = Rate(window)
        self._rate = self._alone
        self._row = _NO_ROW
        self._search_ms = 0
        self._exceeded_ms = 0  # until when the quota is exceeded

    def record(self, amount: int, now_ms: int) -> int:
        """Add `amount`, which may be negative to take back what did not happen; returns the throttle time in ms."""
        self._collected += amount
        if abs(self._collected) < self.most_collected and now_ms >= self._exceeded_ms:
            return 0
        return self._add(now_ms) if self._lock(now_ms) else 0

    def _add(self, now_ms: int) -> int:
        try:
            amount, self._collected = self._collected, 0
            self._rate.record(amount, now_ms)
            throttle_ms = self._rate.throttle_ms(self._bound, now_ms)
            self._exceeded_ms = now_ms + throttle_ms
            return throttle_ms
        finally:
            if self._row != _NO_ROW and self._table is not None:
                self._table.unlock(self._row)

    def _lock(self, now_ms: int) -> bool:
        """Lock the quota's row, if there is one; False when it is busy: the next request adds this one's amount."""
        table = self._table
        if table is None or (self._row == _NO_ROW and now_ms < self._search_ms):
            return True
        if self._row == _NO_ROW:
            self._find_row(table, now_ms)
            return self._row == _NO_ROW or self._lock_row(table)
        return self._lock_row(table)

    def _lock_row(self, table: QuotaTable) -> bool:
        if not table.lock(self._row):
            return False
        if table.belongs_to(self._row, self._digest):
            return True
        table.unlock(self._row)  # it was idle, and another quota has taken it
        self._row, self._rate, self._search_ms = _NO_ROW, self._alone, 0
        return False

    def _find_row(self, table: QuotaTable, now_ms: int) -> None:
        row = table.claim(self._digest, lambda samples: Rate(self._window, samples).idle(now_ms))
        self._row = _NO_ROW if row is None else row
        self._rate = self._alone if row is None else Rate(self._window, table.samples(row))
        self._search_ms = now_ms + _AGAIN_MS
