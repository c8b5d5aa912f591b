"""A stream's reader for PySpark 4.0 and 4.1, which give a Python source neither the last offset nor a limit.

So the reader remembers where it is. A new stream is asked for its newest offset first and for the initial one
afterwards. One that goes on from a checkpoint is told the last seen offset before, by planning an empty batch there.
With Trigger.AvailableNow there is one batch, which maxOffsetsPerTrigger would cut short.
"""

from __future__ import annotations

from typing import Any

from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.stream import StreamReader


class FormerStreamReader(StreamReader):
    """Of a stream; Spark's planner process keeps it while the stream runs."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a new stream begins, or the first batch that is done again began. DataLoss where that is unknown."""
        if self._start is None:
            self._start = self._begin() if self._at is None else self._began(self._at)
        return offsets.as_json(self._start)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Where the next batch ends; where the last one did as long as there is nothing to do."""
        if self._at is None:
            self._at = self._start = self._begin()
        available = self._available(self._at)
        return offsets.as_json(self._next(self._at, available, self._options.max_offsets, may_wait=True))
