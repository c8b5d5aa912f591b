"""Step 2: rules. A record that breaks some is a bad one; the reason names all that it breaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.sql import REASON, Blame, every, literal, whole


def validated(rows: DataFrame, rules: Mapping[str, str]) -> DataFrame:
    """`rules` are conditions by name; one that is null is broken, too."""
    said = [
        (f"NOT coalesce({whole(rule)}, false)", literal(f"broken rule: {name} ({rule})"))
        for name, rule in rules.items()
    ]
    return blamed(rows, said)


def blamed(rows: DataFrame, blames: Iterable[Blame]) -> DataFrame:
    """Rows that were good until now get what applies to them as their reason."""
    found = list(blames)
    return rows.withColumn(REASON, F.expr(f"coalesce({REASON}, {every(found)})")) if found else rows
