"""The controller process's changes to a partition's slot in a cluster, and followers that fetch on request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from odradek.ipc import replicas, slots

from ..clients.raw import batches, calls
from .inprocess import Bench, Client


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def lead(
    bench: Bench, followers: Sequence[int], isr: Sequence[int], *, epoch: int = 0, again: bool = False,
    min_isr: int = 1, topic: str = "t", index: int = 0,
) -> Any:  # fmt: skip
    """Make broker 0 leader in `epoch`, with the followers `isr` in sync; `again`: it led before. Returns the slot."""
    slot = bench.slot(topic, index)
    replicas.set_followers(slot, followers, isr, now_ms(), followers if again else ())
    state = slot.state()
    began = {} if again else {"epoch_start": state.leo, "led_since": epoch}
    publish(
        bench, topic, index, state=slots.LEADER, leader_epoch=epoch, isr_count=1 + len(isr), hw_quorum=1 + len(isr),
        min_isr=min_isr, **began,
    )  # fmt: skip
    return slot


def publish(bench: Bench, topic: str = "t", index: int = 0, /, **changes: int) -> None:
    """Change the slot's fields and ring the waiting roles, as `Partition.release` does."""
    slot = bench.slot(topic, index)
    slot.update(**changes)
    for role in slot.waiters():
        bench.worker.catalog.log.ring(role)


def shrink(bench: Bench, leaving: int, topic: str = "t", index: int = 0) -> None:
    """Remove `leaving` from the ISR."""
    slot = bench.slot(topic, index)
    replicas.set_isr_status(slot, {leaving: replicas.OUT})
    state = slot.state()
    hw = max(state.hw, min(state.leo, replicas.committed(slot, state.leo)[0]))
    publish(bench, topic, index, isr_count=state.isr_count - 1, hw_quorum=state.hw_quorum - 1, hw=hw)


def produce(client: Client, values: list[bytes], acks: int = -1, timeout_ms: int = 60_000, **options: Any) -> bytes:
    """A Produce frame."""
    fields = {name: options.pop(name) for name in ("producer", "epoch", "sequence") if name in options}
    topic = options.pop("topic", "t")
    request = calls.produce_request(topic, batches.batch(values, **fields), acks=acks, **options)
    request.timeout_ms = timeout_ms
    return client.frame(request)


def part(offset: int, partition: int = 0, *, epoch: int = -1, last_epoch: int = -1, log_start: int = 0) -> Any:
    """One partition of a follower's request."""
    made = calls.part(partition, offset, epoch=epoch)
    made.last_fetched_epoch, made.log_start_offset = last_epoch, log_start
    return made


def request(
    broker: int, parts: list[Any], *, topic: Any = "t", version: int = 12, wait_ms: int = 0, **options: Any
) -> Any:
    """A Fetch request of the follower `broker`."""
    made = calls.session_request([(topic, parts)] if parts else [], version=version, wait_ms=wait_ms, **options)
    if version >= 15:
        made.replica_state = type(made).ReplicaState(replica_id=broker, replica_epoch=-1)
    else:
        made.replica_id = broker
    return made


class Follower:
    """Broker `broker`, which fetches without a fetch session."""

    def __init__(self, bench: Bench, broker: int) -> None:
        self._bench = bench
        self._broker = broker
        self.client = bench.connect()

    def fetch(self, offset: int, partition: int = 0, *, version: int = 12, wait_ms: int = 0, **options: Any) -> Any:
        """The partition's part of the answer."""
        asked = request(self._broker, [part(offset, partition, **options)], version=version, wait_ms=wait_ms)
        return self.client.call(asked).responses[0].partitions[0]
