"""The services for Produce, in addition to those for every API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.workers.dispatch.services import Services

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection
    from odradek.workers.produce.batching import Batching
    from odradek.workers.produce.produce_targets import ProduceTargets
    from odradek.workers.produce.producer_ids import ProducerIds
    from odradek.workers.produce.record_check import RecordCheck
    from odradek.workers.produce.verification import Verification


class ProduceServices(Services, Protocol):
    """What Produce and InitProducerId need of a worker."""

    batching: Batching
    targets: ProduceTargets
    record_check: RecordCheck
    verification: Verification
    producer_ids: ProducerIds

    def spend(self, connection: Connection) -> None:
        """Account for an expensive request (workers.net.time_slices)."""

    def kept(self, view: memoryview, at: int, end: int) -> tuple[memoryview, int, int]:
        """view[at:end] where it outlives this round (workers.net.framing)."""
