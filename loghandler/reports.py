"""What a handler says about drops and failures, and when: a state machine that is given the time.

On stderr: the first drops and the first failure at once, further ones once in `interval` seconds each, and when it
sends again after a failure that it has said. A failure counts after a second without success: a leader that moves is
none. In the topic: a record with the drops since the last such record, once in `interval` seconds, when a broker takes
records.

Owner: a Sender, under its lock. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import Counter

FAILURE_SECONDS = 1.0


class Reports:
    """Failures and what was said of them, for one topic."""

    def __init__(self, topic: str, interval: float) -> None:
        self._start = f"odradek.logging: topic {topic}: "
        self._interval = interval
        self._failing_since: float | None = None
        self._why = ""
        self._refusal = ""
        self._failure_said = False
        self._next_failure = 0.0  # no line about a failure before this time
        self._next_drops = 0.0  # no line about drops before this time
        self._next_report = 0.0
        self._said: Counter[str] = Counter()  # drops that lines have counted, by reason
        self.said_drops = 0  # their sum
        self._reachable = False

    # -- events

    def failed(self, why: str, now: float) -> None:
        """An attempt to send failed, and is repeated."""
        self._reachable = False
        self._why = why
        if self._failing_since is None:
            self._failing_since = now

    def answered(self) -> None:
        """A broker accepted or refused records."""
        self._reachable = True
        self._failing_since = None

    def refused(self, why: str) -> None:
        """A broker refused records, which are dropped."""
        self._refusal = why
        self.answered()

    # -- stderr

    def line(self, dropped: Counter[str], waiting: int, now: float) -> str | None:
        """The line to print now, if one is due; `dropped` are all drops by reason, `waiting` the records that wait."""
        if self._failure_said and self._failing_since is None:
            self._failure_said = False
            return self._drops_line("sends again", dropped)
        if self._line_at(dropped, now) > now:
            return None
        self._next_drops = now + self._interval
        if not self._fails_at(now):
            return self._drops_line("", dropped)
        self._next_failure = now + self._interval
        self._failure_said = True
        wait = "1 record waits" if waiting == 1 else f"{waiting} records wait"
        return self._drops_line(f"cannot send: {self._why}; {wait}", dropped)

    def last_line(self, dropped: Counter[str]) -> str | None:
        """The line at the handler's end, if something was dropped that no line has counted."""
        why = f"cannot send: {self._why}" if self._failing_since is not None else ""
        return self._drops_line(why, dropped) if dropped != self._said else None

    def seconds(self, dropped: Counter[str], now: float) -> float | None:
        """How long `line` returns None if nothing else happens; None: for ever."""
        due = self._line_at(dropped, now)
        return None if due == float("inf") else max(0.0, due - now)

    def _line_at(self, dropped: Counter[str], now: float) -> float:
        if self._failure_said and self._failing_since is None:
            return now
        due = float("inf") if dropped == self._said else self._next_drops
        if self._failing_since is not None:
            due = min(due, max(self._failing_since + FAILURE_SECONDS, self._next_failure))
        return due

    def _fails_at(self, now: float) -> bool:
        return self._failing_since is not None and self._failing_since + FAILURE_SECONDS <= now

    def _drops_line(self, what: str, dropped: Counter[str]) -> str:
        new, refusal = dropped - self._said, self._refusal
        self._said, self._refusal = dropped.copy(), ""
        self.said_drops = dropped.total()
        return self._start + "; ".join(filter(None, (what, drops_text(new), refusal)))

    # -- the topic

    def report_due(self, unreported: int, now: float) -> bool:
        """Whether to send a record about that many drops now."""
        return unreported > 0 and self._reachable and now >= self._next_report

    def report_seconds(self, unreported: int, now: float) -> float | None:
        """How long `report_due` returns False if nothing else happens; None: for ever."""
        return max(0.0, self._next_report - now) if unreported > 0 and self._reachable else None

    def hurry(self) -> None:
        """Make a record about drops due at once: the handler is about to be closed."""
        self._next_report = 0.0

    def report_made(self, now: float) -> None:
        """A record about drops is on its way."""
        self._next_report = now + self._interval


def drops_text(dropped: Counter[str]) -> str:
    """`3 records dropped: 2 …, 1 …`, the most first; empty for none."""
    total = dropped.total()
    if not total:
        return ""
    what = "1 record dropped: " if total == 1 else f"{total} records dropped: "
    return what + ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())
