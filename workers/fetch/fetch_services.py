"""The services for Fetch, in addition to those for every API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.workers.dispatch.services import Services

if TYPE_CHECKING:
    from odradek.workers.fetch.fetch_sessions import FetchSessionCache
    from odradek.workers.fetch.fetch_targets import FetchTargets
    from odradek.workers.fetch.follower_progress import FollowerProgress


class FetchServices(Services, Protocol):
    """What Fetch needs of a worker. `by_rack`: consumers may be sent to a follower in their rack (KIP-392)."""

    fetch_targets: FetchTargets
    sessions: FetchSessionCache
    followers: FollowerProgress
    fetch_max_bytes: int
    by_rack: bool
    conversions: int  # number of down-converted Fetch requests
