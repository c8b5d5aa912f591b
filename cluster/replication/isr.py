"""Who is in sync: a leader's decision about its followers (Kafka's Partition.maybeShrinkIsr, maybeExpandIsr; KIP-16).

Pure: rows of what the leader knows in, broker ids out. A follower is out of sync when it had not all records that there
were for replica.lag.time.max.ms; it is in sync again when it has everything up to the high watermark and up to where
the leader's epoch began (what lies between may be committed by now without the leader knowing).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from odradek.ipc.replicas import Replica


def joining(
    followers: Iterable[Replica], isr: Collection[int], alive: Collection[int], hw: int, epoch_start: int
) -> list[int]:
    """Followers to be taken into `isr`."""
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
