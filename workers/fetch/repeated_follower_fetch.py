"""A follower's repeated fetch (workers.fetch.repeated_fetch) in a session (KIP-227) with any number of partitions.

While only one partition is written to, its followers' requests name it alone, each time with its new offset. Such a
request is not decoded, and is answered like a consumer's, with two differences: it reports the follower's progress, and
it reads up to the log end. Everything that is not plain takes the slow path of workers.fetch.follower_fetch: an
objection of any kind, other partitions that have changed, a throttle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import replicas
from odradek.ipc.slots import F_LATEST_EPOCH, F_LEO, F_LOG_START
from odradek.workers.dispatch.partition_check import refusal
from odradek.workers.fetch.fetch_targets import NOT_PLAIN, FetchTarget
from odradek.workers.fetch.follower_fetch import FollowerFetch
from odradek.workers.fetch.repeated_session_fetch import RepeatedSessionFetch

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot
    from odradek.protocol.fetch import FetchPartition
    from odradek.storage.log.partition import Partition
    from odradek.workers.fetch.fetch_sessions import FetchSession
    from odradek.workers.fetch.fetch_targets import Found
    from odradek.workers.fetch.follower_fetch import FollowerPartitions


class FollowerTarget(FetchTarget):
    """A partition as seen by all followers whose last record has the same epoch."""

    __slots__ = ("_last_epoch",)

    def __init__(self, partition: Partition, version: int, part: FetchPartition, committed: bool, most: int) -> None:
        super().__init__(partition, version, part, False, most)
        self._last_epoch = part.last_epoch

    def _upto(self, values: tuple[int, ...], offset: int) -> int:
        """As `FollowerPartitions._check_offset`, without the check that the broker is a follower."""
        if (
            refusal(self.partition, values, self._epoch)
            or not values[F_LOG_START] <= offset <= values[F_LEO]
            or 0 <= self._last_epoch != values[F_LATEST_EPOCH]
        ):
            return NOT_PLAIN
        return values[F_LEO]


class RepeatedFollowerFetch(RepeatedSessionFetch, FollowerFetch):
    """A follower's last request, waiting or answered."""

    __slots__ = ("_followed",)

    def _join(self) -> FollowerPartitions:
        """The session's partitions, as the remembered request left them."""
        assert self.session is not None
        follower_partitions: FollowerPartitions | None = self.session.follower_partitions
        assert follower_partitions is not None
        return follower_partitions

    def _is_current(self, session: FetchSession) -> bool:
        return session.follower_partitions is self._follower_partitions and self._key in session.parts

    def _continues(self, epoch: int, offset: int) -> bool:
        if not super()._continues(epoch, offset):
            return False
        self._followed = self._follower_partitions.update_one(self._session.parts[self._key])
        self.services.followers.cancel_progress(self)
        return True

    def start(self) -> None:
        self._follower_partitions.arrived()
        super().start()

    def _is_alone(self) -> bool:
        """Whether only this partition needs an answer, and the broker is one of its followers."""
        partitions = self._follower_partitions
        return (
            partitions.others_are_idle(self._followed)
            and replicas.find(self._target.partition.slot, partitions.broker) >= 0
        )

    def _at_end(self) -> bool:
        return super()._at_end() and self._is_alone()

    def _find(self) -> Found | None:
        if self._is_alone():
            return super()._find()
        self._found = None
        return None

    def try_complete(self) -> bool:
        found = super().try_complete()
        if not found and self._found is not None:
            self._schedule_progress()
        return found

    def _delay(self) -> None:
        self._schedule_progress()
        super()._delay()

    def _schedule_progress(self) -> None:
        """No more records now: the follower may still need a new high watermark or log start soon."""
        if self._session.last_sent.get(self._key) != self._target.known:
            self.services.followers.schedule_progress(self)

    def _watched(self) -> list[Slot]:
        return self._follower_partitions.slots()

    def _reply(self, found: Found) -> None:
        if found[0]:
            self._follower_partitions.move_to_end(self._key)
        super()._reply(found)
