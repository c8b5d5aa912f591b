"""Cached columns of the slot table for repeated comparisons: read again only when a slot was published since."""

from __future__ import annotations

from odradek.ipc.slots import SlotTable


class Columns:
    """One process's cache of slot table columns."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._cached: dict[tuple[int, int], tuple[bytes, list[int]]] = {}

    def get(self, field: int, chunk: int) -> list[int]:
        """As `SlotTable.column`; the same list as last time when nothing was published. Callers must not change it.

        This reads the sequences first: values published while it reads the column are read again next time.
        """
        sequences = self._table.sequences(chunk)
        known = self._cached.get((field, chunk))
        if known is None or known[0] != sequences:
            known = self._cached[field, chunk] = sequences, self._table.column(field, chunk)
        return known[1]
