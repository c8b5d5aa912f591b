"""Load on the controller and the coordinator: topics are created and deleted, offsets committed, answers checked."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce, producer_id
from ..harness.process import wait_until
from ..harness.wire import Wire
from .load import Client

GROUP = "churn"
_EXISTS, _UNKNOWN = 36, 3
_TURNS = 3  # per connection; new connections keep the acceptor busy
_LIVES = 3  # topics that exist at a time


class Churn(Client):
    """Creates a topic, commits an offset, deletes an older topic, and so on."""

    def __init__(self, bootstrap: str, topic: str, stem: str, pause: float = 0.05) -> None:
        super().__init__(bootstrap, 0)
        self._topic, self._stem, self._pause = topic, stem, pause
        self.there: set[str] = set()  # created, and no deletion was requested
        self.gone: set[str] = set()  # deleted
        self.committed = -1  # the last commit that was acknowledged
        self._turns = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, EOFError), Wire(self.bootstrap, 20) as wire:
                _find_coordinator(wire)  # the first request creates the offsets topic
                for _ in range(_TURNS):
                    if self._stop.is_set():
                        return
                    self._turn(wire)
                    time.sleep(self._pause)
            time.sleep(self._pause)

    def _turn(self, wire: Wire) -> None:
        number, self._turns = self._turns, self._turns + 1
        name = f"{self._stem}-{number}"
        if self._make(wire, name) in (0, _EXISTS):
            self.there.add(name)
            with contextlib.suppress(AssertionError):  # no producer id: the controller is not running
                identity, epoch = producer_id(wire)
                produce(wire, name, batch([b"first"], producer=identity, epoch=epoch, sequence=0))
        if self._commit(wire, number) == 0:
            self.committed = number
        old = f"{self._stem}-{number - _LIVES}"
        self.there.discard(old)
        if number >= _LIVES and self._delete(wire, old) in (0, _UNKNOWN):
            self.gone.add(old)

    def _make(self, wire: Wire, name: str) -> int:
        from kafka.protocol.admin import CreateTopicsRequest as Request

        row = Request.CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        return wire.call(Request[4](topics=[row], timeout_ms=10_000, validate_only=False)).topics[0].error_code

    def _delete(self, wire: Wire, name: str) -> int:
        from kafka.protocol.admin import DeleteTopicsRequest as Request

        return wire.call(Request[3](topic_names=[name], timeout_ms=10_000)).responses[0].error_code

    def _commit(self, wire: Wire, offset: int) -> int:
        from kafka.protocol.consumer import OffsetCommitRequest as Request

        part = Request.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topics = [Request.OffsetCommitRequestTopic(name=self._topic, partitions=[part])]
        request = Request[2](
            group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1, topics=topics
        )
        return wire.call(request).topics[0].partitions[0].error_code

    def faults(self, broker: Any) -> list[str]:
        """Acknowledged changes that are missing."""
        with broker.wire() as wire:
            names = _topics(wire)
            offset = wait_until(lambda: _committed(wire, self._topic), what="the group's offset")[0]
        found = [f"topic {name} was created and does not exist" for name in self.there - names]
        found += [f"topic {name} was deleted and still exists" for name in self.gone & names]
        if not self.committed <= offset < self._turns:
            found.append(f"offset {self.committed} was committed, {offset} is there")
        return found


def _find_coordinator(wire: Wire) -> None:
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    wire.call(Request[0](key=GROUP))


def _topics(wire: Wire) -> set[str]:
    from kafka.protocol.metadata import MetadataRequest as Request

    return {topic.name for topic in wire.call(Request[4](topics=None, allow_auto_topic_creation=False)).topics}


def _committed(wire: Wire, topic: str) -> tuple[int] | None:
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    asked = [Request.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    answer = wire.call(Request[2](group_id=GROUP, topics=asked))
    part = answer.topics[0].partitions[0] if answer.topics else None
    return None if answer.error_code or part is None or part.error_code else (part.committed_offset,)
