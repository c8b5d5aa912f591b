"""Log lines that any client can cause, and that must not fill the disk: a few in each period for each key.

The lines that are left out are counted; `tick`, which must be called now and then, logs how many they were.
"""

from __future__ import annotations

import logging


class BoundedLog:
    """Bounds the lines of one kind to `most` in `period_s` for each key, such as a listener."""

    def __init__(self, log: logging.Logger, level: int, what: str, most: int, period_s: int) -> None:
        """`what`: of the lines left out, `failed authentications`."""
        self._log, self._level, self._what = log, level, what
        self._most, self._period_s = most, period_s
        self._period = 0
        self._lines: dict[str, int] = {}

    def write(self, time_s: float, key: str, text: str, *words: object) -> None:
        """Log a line, or count it; `time_s`: monotonic."""
        self.tick(time_s)
        self._lines[key] = lines = self._lines.get(key, 0) + 1
        if lines <= self._most:
            self._log.log(self._level, text, *words)

    def tick(self, time_s: float) -> None:
        """Begin another period, if it is time."""
        if int(time_s) // self._period_s == self._period:
            return
        self._period = int(time_s) // self._period_s
        lines, self._lines = self._lines, {}
        for key, count in lines.items():
            if count > self._most:
                self._log.log(self._level, self._text(key, count - self._most))

    def _text(self, key: str, left_out: int) -> str:
        where = f" on {key}" if key else ""
        period = "a second" if self._period_s == 1 else f"{self._period_s} s"
        return f"{left_out} more {self._what}{where} within {period} are not logged"
