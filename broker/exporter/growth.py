"""How fast partitions grow: from two samples of the broker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odradek.broker.exporter.scrape import Sample
from odradek.ipc import slots

Rates = NDArray[np.float64]


def growth(former: Sample, now: Sample, seconds: float) -> tuple[Rates, Rates]:
    """Records and bytes a second of each partition; a new segment counts whole. Zero after a change of metadata."""
    if former.layout is not now.layout:
        return np.zeros(len(now.layout.names)), np.zeros(len(now.layout.names))
    records = now.column(slots.F_LEO) - former.column(slots.F_LEO)
    is_same = now.column(slots.F_ACTIVE_BASE) == former.column(slots.F_ACTIVE_BASE)
    size = now.column(slots.F_ACTIVE_SIZE) - former.column(slots.F_ACTIVE_SIZE) * is_same
    return records.clip(0) / seconds, size.clip(0) / seconds
