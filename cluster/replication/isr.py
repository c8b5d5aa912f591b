"""A leader's decisions about its ISR (Kafka's Partition.maybeShrinkIsr, maybeExpandIsr; KIP-16).

Pure: takes the leader's rows of followers, returns broker ids. A follower is out of sync when it has not caught up with
the leader's log end for replica.lag.time.max.ms; it is in sync again when it has all records up to the high watermark
and up to the start of the leader's epoch (records in between may be committed without the leader knowing).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from odradek.ipc.replicas import Replica


def joining(
    followers: Iterable[Replica], isr: Collection[int], alive: Collection[int], hw: int, epoch_start: int
) -> list[int]:
    """Followers to add to `isr`."""
    enough = max(hw, epoch_start)
    return [one.broker for one in followers if one.broker not in isr and one.broker in alive and one.leo >= enough]


def leaving(followers: Iterable[Replica], isr: Collection[int], leo: int, now_ms: int, lag_ms: int) -> list[int]:
    """Followers in `isr` that have been behind `leo`, the leader's log end, for longer than `lag_ms`."""
    return [
        one.broker
        for one in followers
        if one.broker in isr and one.leo != leo and now_ms - one.caught_up_ms > lag_ms
    ]  # fmt: skip


def changed(isr: Sequence[int], joining: Sequence[int], leaving: Sequence[int]) -> list[int]:
    """The next ISR."""
    return [broker for broker in isr if broker not in leaving] + [broker for broker in joining if broker not in isr]
