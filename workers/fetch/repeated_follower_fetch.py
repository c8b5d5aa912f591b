"""A follower's repeated fetch (workers.fetch.repeated_fetch) in a session (KIP-227) with any number of partitions.

While only one partition is written to, its followers' requests name it alone, each time with its new offset. Such a
request is not decoded, and is answered like a consumer's, with two differences: it reports the follower's progress, and
it reads up to the log end. Everything that is not plain takes the slow path of workers.fetch.follower_fetch: an
objection of any kind, other partitions that have changed, a throttle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import replicas
from odradek.ipc.slots import F_EPOCH_NOTED, F_LEO, F_LOG_START
from odradek.workers.dispatch.partition_check import refusal
from odradek.workers.fetch.fetch_targets import NOT_PLAIN, FetchTarget
from odradek.workers.fetch.follower_fetch import FollowerFetch
from odradek.workers.fetch.repeated_in_session import InSession

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot
    from odradek.protocol.fetch import FetchPart
    from odradek.storage.log.partition import Partition
    from odradek.workers.fetch.fetch_targets import Found
    from odradek.workers.fetch.follower_fetch import Following
    from odradek.workers.fetch.sessions import Session


class FollowerTarget(FetchTarget):
    """A partition as seen by all followers whose last record has the same epoch."""

    __slots__ = ("_last_epoch",)

    def __init__(self, partition: Partition, version: int, part: FetchPart, committed: bool, most: int) -> None:
        super().__init__(partition, version, part, False, most)
        self._last_epoch = part.last_epoch

    def _upto(self, values: tuple[int, ...], offset: int) -> int:
        """As `Following._objection`, without the check that the broker is a follower."""
        if (
            refusal(self.partition, values, self._epoch)
            or not values[F_LOG_START] <= offset <= values[F_LEO]
            or 0 <= self._last_epoch != values[F_EPOCH_NOTED]
        ):
            return NOT_PLAIN
        return values[F_LEO]


class RepeatedFollowerFetch(InSession, FollowerFetch):
    """A follower's last request, waiting or answered."""

    __slots__ = ("_known",)

    def _join(self) -> Following:
        """The session's partitions, as the remembered request left them."""
        assert self.session is not None
        following: Following | None = self.session.following
        assert following is not None
        return following

    def _is_there(self, session: Session) -> bool:
        return session.following is self._following and self._key in session.parts

    def _goes_on(self, epoch: int, offset: int) -> bool:
        if not super()._goes_on(epoch, offset):
            return False
        self._known = self._following.ask(self._session.parts[self._key])
        self.services.followers.told(self)
        return True

    def start(self) -> None:
        self._following.arrived()
        super().start()

    def _is_alone(self) -> bool:
        """Whether only this partition needs an answer, and the broker is one of its followers."""
        following = self._following
        return following.rests_but(self._known) and replicas.find(self._target.partition.slot, following.broker) >= 0

    def _at_end(self) -> bool:
        return super()._at_end() and self._is_alone()

    def _find(self) -> Found | None:
        if self._is_alone():
            return super()._find()
        self._found = None
        return None

    def look(self) -> bool:
        found = super().look()
        if not found and self._found is not None:
            self._rest()
        return found

    def _park(self) -> None:
        self._rest()
        super()._park()

    def _rest(self) -> None:
        """No more records now: the follower may still need a new high watermark or log start soon."""
        if self._session.told.get(self._key) != self._target.known:
            self.services.followers.untold(self)

    def _watched(self) -> list[Slot]:
        return self._following.slots()

    def _reply(self, found: Found) -> None:
        if found[0]:
            self._following.served(self._key)
        super()._reply(found)
