"""Step 4: of the rows with equal values in some columns one passes, as long as the watermark remembers it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame


def deduplicated(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Rows with a watermark; drops none where `by` is empty."""
    return rows.dropDuplicatesWithinWatermark(list(by)) if by else rows
