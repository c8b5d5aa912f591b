"""Step 3: columns get new values, all computed from the previous columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def normalised(rows: DataFrame, columns: Mapping[str, str], drop: Iterable[str]) -> DataFrame:
    """`columns` are expressions by name; the columns `drop` are removed afterwards."""
    return rows.withColumns({name: F.expr(expression) for name, expression in columns.items()}).drop(*drop)
