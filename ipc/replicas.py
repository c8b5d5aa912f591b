"""The follower state that a partition's leader keeps: rows in the partition's slot.

Layout    : words 100..155 of a slot (ipc.slots), ROWS rows of seven words:
              0 broker id + 1, 0 when the row is free   1 ISR status: OUT, JOINING or IN of the ISR
              2 its log end   3 its log start   4 time of its last caught-up state (ms, CLOCK_MONOTONIC)
              5 the leader's log end at its last fetch   6 time of that fetch (ms)
Owner     : the partition.
Writers   : the process that holds the partition's lock: the controller process, and the worker that serves a follower's
            fetch. A row may belong to another follower just after the lock is released, and log ends decide the high
            watermark. `record_fetch` therefore takes the slot's fields, which come with the lock.
Lock      : the partition's (storage.log.partition: `acquire`).
Crash rule: single words, each valid by itself: a follower keeps its row while it is a follower, and `set_followers`
            writes the followers that the high watermark waits for before those that it no longer waits for. The high
            watermark is published after the row that allows it, and never goes back: a death in between only leaves it
            too low until the follower's next fetch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc.slots import F_STATE, LEADER

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields, Slot

FIRST, WIDTH, ROWS = 100, 7, 8
OUT, JOINING, IN = range(3)
_SILENT_MS = 1000  # twice replica.fetch.wait.max.ms by default
UNKNOWN = -1  # log end of a follower that has not fetched from this leader yet
_ID, _ISR_STATUS, _LEO, _LOG_START, _CAUGHT_UP, _SEEN_LEO, _SEEN_MS = range(WIDTH)


class Replica(NamedTuple):
    """One follower as its leader sees it. Offsets in records, times in ms of CLOCK_MONOTONIC."""

    broker: int
    isr_status: int
    leo: int
    log_start: int
    caught_up_ms: int
    seen_leo: int
    seen_ms: int


def read(slot: Slot) -> list[Replica]:
    """All followers of the slot's partition."""
    words, at = slot.words, slot.at + FIRST
    rows = (words[at + row * WIDTH : at + (row + 1) * WIDTH].tolist() for row in range(ROWS))
    return [Replica(row[0] - 1, *row[1:]) for row in rows if row[0]]


def find(slot: Slot, broker: int) -> int:
    """The index of `broker`'s row in the slot table's words; -1 when it is not a follower."""
    words, at, key = slot.words, slot.at + FIRST, broker + 1
    for row in range(at, at + ROWS * WIDTH, WIDTH):
        if words[row] == key:
            return row
    return -1


def set_followers(slot: Slot, followers: Iterable[int], isr: Iterable[int], now_ms: int, keep: Container[int]) -> None:
    """Set the rows for a leader of `followers`; those in `isr` are IN. Caller holds the lock.

    `keep`: the followers whose known state the leader keeps; the state of others starts as unknown, and each of those
    has replica.lag.time.max.ms from now on. ValueError for more than ROWS followers.
    """
    followers, members = list(followers), set(isr)
    if len(followers) > ROWS:
        raise ValueError(f"{len(followers) + 1} replicas: at most {ROWS + 1} are possible")
    known = {replica.broker: replica for replica in read(slot) if replica.broker in keep}
    rows = _rows(slot, followers)
    for broker in sorted(followers, key=lambda broker: broker not in members):
        former = known.get(broker) or Replica(broker, OUT, UNKNOWN, UNKNOWN, now_ms, 0, 0)
        _enter(slot, rows[broker], former._replace(isr_status=IN if broker in members else OUT))
    for row in _all(slot):
        if row not in rows.values():
            slot.words[row] = 0


def _rows(slot: Slot, followers: Iterable[int]) -> dict[int, int]:
    """A row for each follower: its own if it has one, else a free row, else a former follower's row."""
    rows = {broker: row for broker in followers if (row := find(slot, broker)) >= 0}
    others = sorted(set(_all(slot)) - set(rows.values()), key=lambda row: (slot.words[row] != 0, row))
    return rows | dict(zip((broker for broker in followers if broker not in rows), others, strict=False))


def _all(slot: Slot) -> range:
    return range(slot.at + FIRST, slot.at + FIRST + ROWS * WIDTH, WIDTH)


def _enter(slot: Slot, row: int, replica: Replica) -> None:
    """Write a row word by word, the log end first and the broker id last.

    When no row is free, this reuses a former follower's row. That row then has the old id with UNKNOWN for a moment,
    and keeps it if this process dies: the high watermark then waits until the row is complete. No log end counts for
    another follower.
    """
    values = (replica.broker + 1, *replica[1:])
    for word in (_LEO, _LOG_START, _CAUGHT_UP, _SEEN_LEO, _SEEN_MS, _ISR_STATUS, _ID):
        slot.words[row + word] = values[word]


def set_isr_status(slot: Slot, statuses: Mapping[int, int]) -> None:
    """Set the ISR status of some followers. Caller holds the lock."""
    for broker, isr_status in statuses.items():
        row = find(slot, broker)
        if row >= 0:
            slot.words[row + _ISR_STATUS] = isr_status


def record_fetch(
    slot: Slot, values: Fields, row: int, offset: int, log_start: int, leo: int, now_ms: int
) -> None:  # fmt: skip
    """Record a fetch from `offset` by the follower of `row`: it has all records below. `leo` is the leader's log end.

    Caller holds the lock and passes the slot's fields as `values`; ValueError when this is not the leader. A follower
    is caught up when it has what the leader has now, or had at the follower's previous fetch (Kafka's
    Replica.updateFetchStateOrThrow).
    """
    if values[F_STATE] != LEADER:
        raise ValueError("followers fetch from leaders only")
    words = slot.words
    if offset >= leo:
        words[row + _CAUGHT_UP] = max(words[row + _CAUGHT_UP], now_ms)
    elif offset >= words[row + _SEEN_LEO]:
        words[row + _CAUGHT_UP] = max(words[row + _CAUGHT_UP], words[row + _SEEN_MS])
    words[row + _LEO] = offset
    words[row + _LOG_START] = log_start
    words[row + _SEEN_LEO] = leo
    words[row + _SEEN_MS] = now_ms


def any_silent(slot: Slot, now_ms: int) -> bool:
    """Whether a follower in the ISR has not fetched for longer than a fetch waits: it may be the leader by now."""
    return any(one.isr_status == IN and now_ms - one.seen_ms > _SILENT_MS for one in read(slot))


def isr_status(slot: Slot, broker: int) -> int:
    """The ISR status of `broker`; OUT when it is not a follower."""
    row = find(slot, broker)
    return OUT if row < 0 else slot.words[row + _ISR_STATUS]


def log_end(slot: Slot, row: int) -> int:
    """The log end of the follower of `row`."""
    return slot.words[row + _LEO]


def committed(slot: Slot, leo: int) -> tuple[int, int]:
    """The offset up to which the whole quorum has the log, and the quorum's size, including the leader.

    The quorum is the replicas that the high watermark waits for. `leo` is the leader's own log end. Publish both
    together: a controller process that dies between writing the rows and the slot leaves the old size in the slot.
    """
    at, hw_quorum = slot.at + FIRST, 1
    rows = slot.words[at : at + ROWS * WIDTH].tolist()  # every fetch calls this: it makes no Replica
    for row in range(0, ROWS * WIDTH, WIDTH):
        if rows[row] and rows[row + _ISR_STATUS] != OUT:
            hw_quorum += 1
            if rows[row + _LEO] < leo:
                leo = rows[row + _LEO]
    return leo, hw_quorum
