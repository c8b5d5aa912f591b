"""Transaction verification: asks the coordinator before a batch opens a transaction in a partition (KIP-890).

Without it a batch that arrives after its transaction's end, or from a client that never added the partition, opens a
hanging transaction: the last stable offset stops, and read_committed consumers stall. The append finds such batches
under the partition's lock and leaves them out (storage.log.transactions.may_open). They wait here, outside the receive
buffer, for one verification per producer and partition; later batches of that producer queue behind them. Then they are
appended before all other batches that wait for the partition, so that their sequences stay in order.

The request goes to this broker's coordinator process, which forwards it if another broker coordinates. If the outcome
is not known now, the answer is NOT_ENOUGH_REPLICAS, as in Kafka: every client retries it without refreshing metadata.
So is the answer to batches beyond `MOST_HELD` bytes of a worker: batches wait here even after their clients are gone.
If the partition does not know the producer, its later batches are refused until it has resent the refused ones
(storage.producers.lowest_sequences).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cluster import internal
from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol import errors

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.services import Services
    from odradek.workers.produce.batching import Batching, PendingBatch

ABORTABLE = 11  # the first version of Produce with TRANSACTION_ABORTABLE
ENABLED = "transaction.partition.verification.enable"
EXPIRATION_MS = "producer.id.expiration.ms"
MOST_HELD = 64 << 20
_BESIDE = 1 << 10  # bytes of a batch and its request without the records, roughly

_NOT_NOW = {
    errors.CONCURRENT_TRANSACTIONS,
    errors.NETWORK_EXCEPTION,
    errors.COORDINATOR_LOAD_IN_PROGRESS,
    errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_COORDINATOR,
}
_NOT_ADDED = {errors.TRANSACTION_ABORTABLE, errors.INVALID_TXN_STATE}


class VerificationRequest(NamedTuple):
    """Whether the transaction of this producer has this partition."""

    partition: Partition
    transactional_id: bytes
    producer_id: int
    epoch: int


class Verification:
    """A worker's batches that wait for the coordinator's answer."""

    def __init__(self, services: Services, batching: Batching) -> None:
        self._services = services
        self._batching = batching
        self._waiting: dict[VerificationRequest, list[PendingBatch]] = {}
        self._held = 0  # bytes of all waiting batches
        self._snapshot: Snapshot | None = None  # the one that `_enabled` was read from
        self._enabled = False

    @property
    def enabled(self) -> bool:
        """The setting in force: looked up once per snapshot, read for each transactional batch."""
        snapshot = self._services.snapshot
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._enabled = bool(self._setting(ENABLED))
        return self._enabled

    def _setting(self, name: str) -> Any:
        return self._services.snapshot.broker_config(name, self._services.config["broker.id"])

    def hold(self, partition: Partition, batches: list[PendingBatch]) -> None:
        """Hold the batches that the append left out, in this order."""
        for batch in batches:
            if self._held + batch.size + _BESIDE > MOST_HELD:
                self._refuse(partition, [batch], errors.COORDINATOR_NOT_AVAILABLE)
            else:
                self._hold(partition, batch)

    def _hold(self, partition: Partition, batch: PendingBatch) -> None:
        batch.view = memoryview(bytearray(batch.view))
        self._held += batch.size + _BESIDE
        transactional_id: bytes = batch.target.transactional_id or b""
        request = VerificationRequest(partition, transactional_id, batch.producer_id, batch.epoch)
        waiting = self._waiting.setdefault(request, [])
        waiting.append(batch)
        if len(waiting) == 1:
            self._request(request)

    def _request(self, request: VerificationRequest) -> None:
        partition, raw_id, producer_id, epoch = request
        body = {
            "transactional_id": raw_id.decode("utf-8", "replace"),  # as InitProducerId reads it
            "producer": [producer_id, epoch],
            "partition": [partition.topic, partition.index],
        }

        def answered(flags: int, data: bytes) -> None:
            found = internal.decode(data)["error"] if flags == forward.OK else errors.COORDINATOR_NOT_AVAILABLE
            self._decided(request, found)

        forwarded = Forwarded(0, internal.VERIFY, 0, None, "", "", internal.encode(body))
        self._services.send_to(self._services.coordinator, forwarded, answered)

    def _decided(self, request: VerificationRequest, error: int) -> None:
        """Append the batches, with the guard of the first one, or refuse them."""
        batches = self._waiting.pop(request)
        self._held -= sum(batch.size + _BESIDE for batch in batches)
        if error:
            self._refuse(request.partition, batches, error)
            return
        for batch in batches:
            batch.guard = batches[0].guard
        self._batching.go_on(request.partition, batches)

    def _refuse(self, partition: Partition, batches: list[PendingBatch], error: int) -> None:
        until_s = time.monotonic() + self._setting(EXPIRATION_MS) / 1000
        for batch in batches:
            partition.lowest_sequences.record(batch.producer_id, batch.epoch, batch.sequence, until_s)
            batch.refuse(_for_client(error, batch.target.version), _why(error))
        self._batching.finish(batches)


def _for_client(error: int, version: int) -> int:
    """The error that Kafka answers in this version of Produce for the coordinator's error."""
    if error in _NOT_NOW:
        return errors.NOT_ENOUGH_REPLICAS
    if error in _NOT_ADDED:
        return errors.TRANSACTION_ABORTABLE if version >= ABORTABLE else errors.INVALID_TXN_STATE
    return errors.INVALID_PRODUCER_EPOCH if error == errors.PRODUCER_FENCED else error


def _why(error: int) -> str | None:
    if error in _NOT_NOW:
        return f"The coordinator cannot say yet whether the partition is part of the transaction (error {error})"
    return "The partition is not part of the transaction" if error in _NOT_ADDED else None
