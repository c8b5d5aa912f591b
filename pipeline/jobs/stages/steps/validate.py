"""Step 2: rules. A record that breaks a rule is bad; the reason names all broken rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.declaration.sql import REASON, Blame, every, literal, whole


def validated(rows: DataFrame, rules: Mapping[str, str]) -> DataFrame:
    """`rules` are conditions by name; a null result breaks the rule as well."""
    said = [
        (f"NOT coalesce({whole(rule)}, false)", literal(f"broken rule: {name} ({rule})"))
        for name, rule in rules.items()
    ]
    return blamed(rows, said)


def blamed(rows: DataFrame, blames: Iterable[Blame]) -> DataFrame:
    """Rows that were good until now get all blames that apply as their reason."""
    found = list(blames)
    return rows.withColumn(REASON, F.expr(f"coalesce({REASON}, {every(found)})")) if found else rows
