"""Well-behaved group members while other clients misbehave: none of their requests may fail.

One group for each partition of `__consumer_offsets`, each with one member that sends heartbeats, produces a record,
reads it, and commits and fetches its offset, always in its first generation.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from odradek.groups.records import partition_for
from odradek.protocol.library import message_class

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..harness.wire import Wire

SESSION_MS = 1_800_000  # no session expires on a stalled machine
PATIENCE_S = 240
SUBSCRIPTION = b"\0\0\0\0\0\0"


class Member:
    """One group of one member on a connection of its own."""

    def __init__(self, broker: Any, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.wire: Wire = broker.wire(PATIENCE_S)
        self.id, self.generation, self.committed = "", -1, 0
        self.id = self._join().member_id  # MEMBER_ID_REQUIRED
        self.generation = self._joined(self._join())
        self._sync()

    def _join(self) -> Any:
        request = message_class("JoinGroupRequest")
        protocol = request.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
        asked = request[5](
            group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id=self.id,
            group_instance_id=None, protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        return self.wire.call(asked)

    def _joined(self, answer: Any) -> int:
        assert answer.error_code == 0, answer
        return answer.generation_id

    def _sync(self) -> None:
        request = message_class("SyncGroupRequest")
        part = request.SyncGroupRequestAssignment(member_id=self.id, assignment=b"all")
        asked = request[3](
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=None,
            assignments=[part],
        )  # fmt: skip
        answer = self.wire.call(asked)
        assert (answer.error_code, answer.assignment) == (0, b"all"), answer

    def once(self) -> None:
        """One round of all requests of a member."""
        self._heartbeat()
        self._produce_and_read()
        self._commit()
        self._fetch()

    def _heartbeat(self) -> None:
        asked = message_class("HeartbeatRequest")[3](
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=None
        )
        answer = self.wire.call(asked)
        assert answer.error_code == 0, answer

    def _produce_and_read(self) -> None:
        value = b"%d" % self.committed
        answer = produce(self.wire, self.topic, batch([value]))
        assert answer.error_code == 0, answer
        answer = fetch(self.wire, self.topic, answer.base_offset)
        assert (answer.error_code, parse(answer.records)[0].value) == (0, value), answer

    def _commit(self) -> None:
        request = message_class("OffsetCommitRequest")
        topic = request.OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.committed + 1, committed_leader_epoch=-1, committed_metadata="m"
        )
        asked = request[7](
            group_id=self.group, generation_id_or_member_epoch=self.generation, member_id=self.id,
            group_instance_id=None, topics=[topic(name=self.topic, partitions=[row])],
        )  # fmt: skip
        error = self.wire.call(asked).topics[0].partitions[0].error_code
        assert error == 0, f"OffsetCommit of {self.group}: {error}"
        self.committed += 1

    def _fetch(self) -> None:
        request = message_class("OffsetFetchRequest")
        topics = [request.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        answer = self.wire.call(request[7](group_id=self.group, topics=topics, require_stable=True))
        row = answer.topics[0].partitions[0]
        assert (answer.error_code, row.error_code, row.committed_offset) == (0, 0, self.committed), answer


class BackgroundGroups:
    """A member in each partition of `__consumer_offsets`, in one thread, until `finish`."""

    def __init__(self, broker: Any, partitions: int, pause: float = 0.01) -> None:
        topic = create_topic(broker, "background-groups")
        with broker.wire(60) as wire:
            find_coordinator(wire, "background")
        self._members = [Member(broker, group, topic) for group in names(partitions)]
        self._pause = pause
        self.rounds = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                for member in self._members:
                    member.once()
                self.rounds += 1
        except BaseException as error:  # `check` raises it in the thread of the test
            self._error = error

    def check(self) -> None:
        """Raise the error of a member, if any."""
        if self._error is not None:
            raise AssertionError(f"a background member failed after {self.rounds} rounds") from self._error

    def await_more(self, more: int = 2, seconds: float = PATIENCE_S) -> None:
        """Wait for `more` further rounds."""
        wanted, deadline = self.rounds + more, time.monotonic() + seconds
        while self.rounds < wanted:
            self.check()
            assert time.monotonic() < deadline, f"the members are stuck after {self.rounds} rounds"
            time.sleep(0.01)

    def finish(self) -> None:
        """Wait for further rounds, and stop."""
        self.await_more()
        self._stop.set()
        self._thread.join(60)
        self.check()
        for member in self._members:
            member.wire.close()


def find_coordinator(wire: Wire, key: str, kind: int = 0) -> None:
    """Wait for `__consumer_offsets`, or with kind 1 `__transaction_state`; the first request creates it."""
    asked = message_class("FindCoordinatorRequest")[1](key=key, key_type=kind)
    deadline = time.monotonic() + 60
    while (answer := wire.call(asked)).error_code:
        assert time.monotonic() < deadline, answer


def names(partitions: int) -> list[str]:
    """A group for each partition of `__consumer_offsets`."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(partition_for(f"background-{number}", partitions), f"background-{number}")
        number += 1
    return [found[at] for at in range(partitions)]
