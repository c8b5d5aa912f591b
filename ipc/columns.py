"""Fields of all slots, for who compares them again and again: read only where a slot has been published since."""

from __future__ import annotations

from odradek.ipc.slots import SlotTable


class Columns:
    """One process's memory of columns of the slots' table."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._known: dict[tuple[int, int], tuple[bytes, list[int]]] = {}

    def get(self, field: int, chunk: int) -> list[int]:
        """As `SlotTable.column`; the same list as the last time where nothing was published. Not to be changed.

        The sequences are read first: what is published while the column is read is read once more the next time.
        """
        sequences = self._table.sequences(chunk)
        known = self._known.get((field, chunk))
        if known is None or known[0] != sequences:
            known = self._known[field, chunk] = sequences, self._table.column(field, chunk)
        return known[1]
