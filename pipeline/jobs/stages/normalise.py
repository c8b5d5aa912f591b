"""Step 3: columns get new values, all out of the columns as they were before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def normalised(rows: DataFrame, columns: Mapping[str, str], drop: Iterable[str]) -> DataFrame:
    """`columns` are expressions by name; the columns `drop` go afterwards."""
    return rows.withColumns({name: F.expr(expression) for name, expression in columns.items()}).drop(*drop)
