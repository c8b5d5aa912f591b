"""The stream reader for PySpark 4.0 and 4.1, which pass a Python source neither the last offset nor a limit.

So the reader remembers its position. For a new stream Spark asks first for the newest offset, then for the initial one.
For a stream that resumes from a checkpoint Spark first plans an empty batch at the last offset. With
Trigger.AvailableNow there is one batch, which maxOffsetsPerTrigger would cut short.
"""

from __future__ import annotations

from typing import Any

from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.stream import StreamReader


class FormerStreamReader(StreamReader):
    """The reader of one stream; Spark's planner process keeps it while the stream runs."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a new stream begins, or where the interrupted first batch began. DataLoss where that is unknown."""
        if self._start is None:
            self._start = self._begin() if self._at is None else self._began(self._at)
        return offsets.as_json(self._start)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # 4.2 passes more
        """Where the next batch ends; the end of the last one while there is nothing to do."""
        if self._at is None:
            self._at = self._start = self._begin()
        available = self._available(self._at)
        return offsets.as_json(self._next(self._at, available, self._options.max_offsets, may_wait=True))
