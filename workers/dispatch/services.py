"""What a worker offers to the handlers of its requests. Handlers take these services, and do not know the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.ipc.forward import Forwarded
    from odradek.ipc.partition_counts import PartitionCounts
    from odradek.ipc.shm import Shared
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.authorization import Authorization
    from odradek.workers.dispatch.catalog import Catalog
    from odradek.workers.dispatch.purgatory import Purgatory
    from odradek.workers.dispatch.unregistered_brokers import UnregisteredBrokers
    from odradek.workers.forwarding.upstream import Upstream
    from odradek.workers.net.connection import Connection
    from odradek.workers.net.pager import Pager
    from odradek.workers.net.sending import Sender
    from odradek.workers.quotas.request_quotas import RequestQuotas


class Services(Protocol):
    """The services for every API. `snapshot` is the metadata in force, which no handler may keep beyond a step.

    `quotas`: the client quotas, if there are any. `draining`: the worker stops, so no request may wait for more
    records. `coordinator` and `controller` are the processes to `ask`.
    """

    role: int
    shared: Shared
    counts: PartitionCounts
    config: Mapping[str, Any]
    snapshot: Snapshot
    catalog: Catalog
    authorization: Authorization
    sender: Sender
    pager: Pager
    purgatory: Purgatory
    unregistered: UnregisteredBrokers
    coordinator: Upstream
    controller: Upstream
    quotas: RequestQuotas | None
    draining: bool

    def partition_of(self, topic: bytes, index: int, by_id: bool) -> Partition | None:
        """The partition by the topic's name or id in its wire form; None when it is not on this broker."""

    def drop(self, connection: Connection, why: str) -> None:
        """End a connection."""

    def again(self, work: Callable[[], bool], connection: Connection | None = None) -> None:
        """Call `work` every millisecond until it returns True. If it raises, drop `connection`, which would hang."""

    def begin(self, work: Iterator[object]) -> None:
        """Run `work` in steps: as many as fit into one time slice now, the rest in the next turns.

        A step that yields WAIT ends its slice: the next step has to wait for something. `work` handles its own errors.
        """

    def send_to(self, process: Upstream, request: Forwarded, answered: Callable[[int, bytes], None]) -> None:
        """Send a request to the coordinator or the controller; calls `answered(flags, body)` once."""

    def forward(self, api_key: int, version: int, body: bytes, answered: Callable[[int, bytes], None]) -> None:
        """Send the controller a request of this worker's own; calls `answered(flags, body)` once."""
