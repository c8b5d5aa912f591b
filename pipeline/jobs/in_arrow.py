"""Apply a function to a frame's Arrow batches, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def mapped(
    df: DataFrame, step: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """DataFrame.mapInArrow, which in PySpark 4.0 requires pandas without using it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(
        step, schema, name=type(step).__name__, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    jdf: Any = df._jdf
    return DataFrame(jdf.mapInArrow(function(*df.columns)._jc, False, None), df.sparkSession)
