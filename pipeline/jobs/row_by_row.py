"""Whether an expression has one value for each row.

Spark plans some by more than a projection: aggregates, generators such as `explode`, and windows of times, which leave
out the rows without a time and repeat those that are in several windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def keeps_rows(before: DataFrame, after: DataFrame) -> bool:
    """Whether `after`, which is `before` with expressions, has each of its rows once."""
    return _steps(_plan(before)) == _steps(_plan(after))


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _steps(plan: Any) -> list[str]:
    """All steps but projections, by name."""
    name, inputs = plan.nodeName(), plan.children()
    below = [step for at in range(inputs.size()) for step in _steps(inputs.apply(at))]
    return below if name == "Project" else [name, *below]
