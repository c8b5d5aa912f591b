"""Decides which offset a group gets in a partition. Pure.

An offset counts in one topic only, known by its id. In a topic that was deleted and created again, as by
`odradek pipeline restore`, the same record has another offset; ListOffsets finds one that is not later by its time:
the first offset with that time or a later one. So with `time` a group may read records again, but skips none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from odradek.broker.commands.backup.restore_options import Recreated
from odradek.broker.commands.backup.restore_plans import Item, NewOffset, Outcome
from odradek.broker.commands.backup.saved_cluster import Partition, Position
from odradek.broker.commands.backup.shown_text import shown


class Log(NamedTuple):
    """A partition of the cluster: its offsets, and whether its topic is that of the backup."""

    start: int
    end: int
    same: bool


def needed_time(saved: Position, log: Log | None, recreated: Recreated, created_ms: int) -> int | None:
    """The time, in ms since 1970, whose first offset is needed; None if none is, or the backup has none."""
    if log is None or log.same or recreated is not Recreated.TIME:
        return None
    return created_ms if saved.at_end else saved.time


def item(
    group: str,
    partition: Partition,
    saved: Position,
    now: Position | None,
    log: Log | None,
    recreated: Recreated,
    found: int | None,
    *,
    overwrite: bool,
) -> Item:
    """What becomes of one offset; `found` is the first offset with the needed time, -1 if there is none."""
    name = f"group {shown(group)}, {shown(partition[0])}-{partition[1]}"
    wanted = _wanted(saved, log, recreated, found)
    if isinstance(wanted, str):
        return Item(name, Outcome.FAILED, wanted)
    if now is not None and (now.offset, now.metadata) == (wanted, saved.metadata):
        return Item(name, Outcome.EQUAL)
    change = NewOffset(group, partition, replace(saved, offset=wanted))
    if now is None:
        return Item(name, Outcome.RESTORED, str(wanted), change)
    if overwrite:
        return Item(name, Outcome.RESTORED, f"{now.offset} becomes {wanted}", change)
    text = "another metadata string here" if now.offset == wanted else f"{now.offset} here, {wanted} by the backup"
    return Item(name, Outcome.DIFFERENT, text)


def _wanted(saved: Position, log: Log | None, recreated: Recreated, found: int | None) -> int | str:
    """The offset, or why there is none."""
    if log is None:
        return "there is no such partition, or it has no leader"
    if log.same or recreated is Recreated.EXACT:
        return _within(saved.offset, log)
    if log.start == log.end and saved.offset:
        return "the log is empty: restore its records first"
    if recreated is Recreated.REFUSE:
        return "the topic is not the one of the backup: give --recreated-topics time, or exact for a copy of its logs"
    if found is None:
        known = saved.at_end or saved.time is not None
        return "no leader returns the offset of its time" if known else "the backup has no time for it"
    return log.end if found < 0 else _within(found, log)


def _within(offset: int, log: Log) -> int | str:
    if log.start <= offset <= log.end:
        return offset
    return f"offset {offset} is outside of the log, which has {log.start} to {log.end}"
