"""Report rows behind the watermark: Spark leaves them out of windows, and deduplication drops them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@contextmanager
def told(spark: SparkSession) -> Iterator[None]:
    """Within the block, log a warning for each batch with late rows."""
    listener = _listener()
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def late(progress: dict[str, Any]) -> int:
    """The dropped rows of a batch; with windows, groups of them that Spark had aggregated before."""
    return sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in progress.get("stateOperators", []))


def _listener() -> Any:
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            progress = json.loads(event.progress.json)
            if count := late(progress):
                watermark = progress.get("eventTime", {}).get("watermark")
                _log.warning("%s: %d rows came after the watermark %s", progress.get("name"), count, watermark)

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    return Listener()
