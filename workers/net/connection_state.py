"""The state of a connection: why its next request may not be taken now. Tables without sockets.

A state is a set of reasons, READY is the empty one. Each event has a table from state to next state:

    event       the event                                                       adds                 removes
    TAKE        a request that later ones must not overtake is taken            UNANSWERED, TAKING
    TAKEN       its handler has returned, with or without an answer                                  TAKING
    HOLD        the next request must wait for those in flight                  UNANSWERED
    ANSWER      that request, or the last one in flight, is answered                                 UNANSWERED
    FILL        more than MOST_UNSENT bytes wait for the socket                 FULL
    DRAIN       all bytes are sent                                                                   FULL
    REST        its requests have used up their slice of time                   RESTING
    CONTINUE    other connections have had their turn                                                RESTING
    MUTE        its client exceeds a quota                                      THROTTLED
    UNMUTE      the throttle time is over                                                            THROTTLED
    EXPIRE      it must authenticate again, since its session ends              EXPIRED
    CLOSE       the connection ends                                             only CLOSED remains

CLOSED is final. An EXPIRED connection leaves the loop once its requests are answered (workers.authentication). Whoever
moves a connection to READY continues with the bytes that wait (workers.net.framing), except after TAKEN: the caller of
the handler is in the middle of them.
"""

from __future__ import annotations

READY = 0
UNANSWERED = 1
TAKING = 2
FULL = 4
RESTING = 8
THROTTLED = 16
EXPIRED = 32
CLOSED = 64

REASONS = {
    "UNANSWERED": UNANSWERED, "TAKING": TAKING, "FULL": FULL, "RESTING": RESTING, "THROTTLED": THROTTLED,
    "EXPIRED": EXPIRED,
}  # fmt: skip
STATES = (*range(CLOSED), CLOSED)

Table = tuple[int, ...]


def _table(adds: int = 0, removes: int = 0) -> Table:
    return tuple(state if state == CLOSED else (state | adds) & ~removes for state in STATES)


TAKE = _table(adds=UNANSWERED | TAKING)
TAKEN = _table(removes=TAKING)
HOLD = _table(adds=UNANSWERED)
ANSWER = _table(removes=UNANSWERED)
FILL = _table(adds=FULL)
DRAIN = _table(removes=FULL)
REST = _table(adds=RESTING)
CONTINUE = _table(removes=RESTING)
MUTE = _table(adds=THROTTLED)
UNMUTE = _table(removes=THROTTLED)
EXPIRE = _table(adds=EXPIRED)
CLOSE = tuple(CLOSED for _ in STATES)

EVENTS = {
    "TAKE": TAKE, "TAKEN": TAKEN, "HOLD": HOLD, "ANSWER": ANSWER, "FILL": FILL, "DRAIN": DRAIN, "REST": REST,
    "CONTINUE": CONTINUE, "MUTE": MUTE, "UNMUTE": UNMUTE, "EXPIRE": EXPIRE, "CLOSE": CLOSE,
}  # fmt: skip
