"""The windows that an audit judges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from odradek.pipeline.errors import OptionError


@dataclass(frozen=True)
class Period:
    """Whole windows from `begin` to before `end`; all in ms since 1970."""

    begin: int
    end: int
    window: int

    @classmethod
    def before(cls, now: int, last: int, grace: int, window: int) -> Period:
        """The windows of the `last` milliseconds that ended at least `grace` ago. OptionError where there is none."""
        begin, end = (at - at % window for at in (max(now - last, 0), max(now - grace, 0)))
        if begin >= end:
            raise OptionError(
                f"nothing to judge: no window ends between --last ({last} ms) and --grace ({grace} ms) ago"
            )
        return cls(begin, end, window)

    def __contains__(self, at: int) -> bool:
        return self.begin <= at < self.end

    def window_of(self, at: int) -> int:
        """The start of the window that this time is in."""
        return at - at % self.window


def utc(ms: int) -> str:
    """ISO 8601, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
