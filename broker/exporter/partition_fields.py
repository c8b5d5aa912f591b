"""The fields of many partitions at once, from the slot table, without a lock.

Shapes: `read` returns one row for each slot asked for and one column for each of ipc.slots.FIELDS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odradek.ipc.slots import CHUNK, COPIES, FIELDS, SEQUENCE, STRIDE, SlotTable

Numbers = NDArray[np.int64]


def read(table: SlotTable, numbers: Numbers) -> Numbers:
    """The current fields of the slots `numbers`: each row was current at some moment of the call."""
    found = np.empty((len(numbers), len(FIELDS)), np.int64)
    chunks = numbers // CHUNK
    for chunk in np.unique(chunks).tolist():
        places = np.flatnonzero(chunks == chunk)
        found[places] = _of_chunk(table, chunk, numbers[places] % CHUNK)
    return found


def _of_chunk(table: SlotTable, chunk: int, rows: Numbers) -> Numbers:
    if chunk * CHUNK >= table.capacity:
        table.attach()
    words = np.frombuffer(table.words(chunk), np.int64).reshape(CHUNK, STRIDE)
    before = words[rows, SEQUENCE]
    copies = [words[rows, first : first + len(FIELDS)] for first in COPIES]
    values: Numbers = np.where((before & 1)[:, None], copies[1], copies[0])
    for at in np.flatnonzero(words[rows, SEQUENCE] != before).tolist():  # published meanwhile
        values[at] = table[chunk * CHUNK + int(rows[at])].read()
    return values
