"""Counters by topic: after any sequence of requests and changes they are what the clients of a real worker saw."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.exporter.layout import Layout
from odradek.broker.exporter.traffic import Traffic, TrafficReader
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import region, slots
from odradek.ipc.partition_counts import COUNTS
from odradek.ipc.roles import COORDINATOR, FIRST_WORKER
from odradek.ipc.slots import SlotState
from odradek.protocol import errors
from odradek.storage.log import read

from ...clients.raw import batches, calls
from ...harness.wire import decode_response
from ...workers import leading
from ...workers.inprocess import Bench

TOPICS = ("a", "b")
MOST = 3  # partitions of a topic
topics = st.sampled_from(TOPICS)
indexes = st.integers(0, MOST - 1)


class SharedSlots(Bench):
    """Gives the slots of deleted partitions to new ones, with incarnations that grow, as the controller does."""

    free: list[int] = []
    given = 200_000

    def _slot(self, name: str, index: int) -> list[Any]:
        if not self.free:
            self._next += 1
        number = self.free.pop() if self.free else self._next - 1
        self.given += 1
        (self.root / f"{name}-{index}").mkdir()
        self.shared.slots[number].publish(
            SlotState(incarnation=self.given, generation=self.given, state=slots.LEADER)
        )  # fmt: skip
        return [number, self.given, 0, 0, [0], [0], 0]

    def delete(self, name: str) -> None:
        held = [row[0] for row in self._topics.get(name, {"partitions": []})["partitions"] if row[0] >= 0]
        for index, row in enumerate(self._topics.get(name, {"partitions": []})["partitions"]):
            if row[0] < 0:
                (self.root / f"{name}-{index}").mkdir()  # `Bench.delete` renames it
                row[0] = 99  # a slot that no partition uses
        super().delete(name)
        self.free = [*self.free, *held]

    def move_away(self, name: str, index: int) -> None:
        """Another broker has the partition now."""
        row = self._topics[name]["partitions"][index]
        self.shared.slots[row[0]].update(state=slots.DELETING, incarnation=99_000 + row[0])
        self.free = [*self.free, row[0]]
        row[0] = -1
        os.rename(self.root / f"{name}-{index}", self.root / f"{name}-{index}.{secrets.token_hex(4)}-delete")
        self._publish()

    def partitions(self, name: str) -> list[int]:
        """Those that are here."""
        return [index for index, row in enumerate(self._topics[name]["partitions"]) if row[0] >= 0]

    def exists(self, name: str, index: int) -> bool:
        return index < len(self._topics[name]["partitions"])


class Exporter:
    """What the exporter does with the bench's memory."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._reader = TrafficReader(bench.shared.prefix)
        self.layout = Layout()

    def scrape(self) -> Traffic:
        roles, chunks = (COORDINATOR, FIRST_WORKER), 1
        version, blob = self._bench.shared.metadata.read()
        if version != self.layout.version:
            snapshot = Snapshot.parse(blob, self._bench.values)
            former, self.layout = self.layout, Layout.of(snapshot)
            ids = {topic.id for topic in snapshot.topics.values()}
            self._reader.moved(former, self.layout, ids, roles, chunks)
        return self._reader.read(self.layout, roles, chunks)


class Requests(RuleBasedStateMachine):
    """`expected` is by topic what its clients saw since it was created; `ended`: of deleted topics, and elsewhere."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="odradek-traffic-"))
        self.prefix = f"/odradek-test{secrets.token_hex(4)}-"
        self.bench = SharedSlots(self.folder, self.prefix)
        self.exporter = Exporter(self.bench)
        self.expected: dict[str, Counter[str]] = {}
        self.ended: Counter[str] = Counter()
        self.replicated = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.last: Traffic | None = None
        for topic in TOPICS:
            self.create(topic, 2)
        self.connect()

    def connect(self) -> None:
        self.producer, self.consumer = self.bench.connect(), self.bench.connect()
        self.session, self.epoch = 0, 0

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            region.unlink_all(self.prefix)
            shutil.rmtree(self.folder)

    # -- the metadata

    @rule(topic=topics, partitions=st.integers(1, MOST))
    def create(self, topic: str, partitions: int) -> None:
        self.bench.topic(topic, partitions)
        self.ended += self.expected.pop(topic, Counter())
        self.expected[topic] = Counter()
        self.ends = {key: end for key, end in self.ends.items() if key[0] != topic}

    @rule(topic=topics)
    def grow(self, topic: str) -> None:
        self.bench.grow(topic, MOST)

    @precondition(lambda self: any(self.bench.partitions(topic) for topic in TOPICS))
    @rule(data=st.data())
    def move_away(self, data: st.DataObject) -> None:
        here = [(topic, index) for topic in TOPICS for index in self.bench.partitions(topic)]
        topic, index = data.draw(st.sampled_from(here))
        self.bench.move_away(topic, index)
        self.ends.pop((topic, index), None)

    @rule()
    def restart(self) -> None:
        self.bench.restart()
        self.connect()

    # -- Produce

    def count_of(self, topic: str, index: int) -> Counter[str]:
        """Where a request that reaches the log counts."""
        if index in self.bench.partitions(topic):
            return self.expected[topic]
        return self.ended if self.bench.exists(topic, index) else Counter()

    def produce(self, topic: str, index: int, batch: bytes, **options: Any) -> int:
        asked = calls.produce_request(topic, batch, partition=index, **options)
        error: int = self.producer.call(asked).responses[0].partition_responses[0].error_code
        self.count_of(topic, index)["produce_requests"] += 1
        return error

    @rule(topic=topics, index=indexes, values=st.lists(st.binary(max_size=50), min_size=1, max_size=4))
    def append(self, topic: str, index: int, values: list[bytes]) -> None:
        batch = batches.batch(values)
        error = self.produce(topic, index, batch)
        assert (error == 0) == (index in self.bench.partitions(topic))
        if not error:
            self.expected[topic].update(messages_in=len(values), bytes_in=len(batch))
            self.ends[topic, index] = self.ends.get((topic, index), 0) + len(values)

    @rule(topic=topics, index=indexes)
    def append_what_is_damaged(self, topic: str, index: int) -> None:
        """Kafka does not count CORRUPT_MESSAGE as a failure of the broker."""
        assert self.produce(topic, index, batches.batch([b"x"], break_crc=True))

    @rule(topic=topics, index=indexes)
    def append_what_is_invalid(self, topic: str, index: int) -> None:
        error = self.produce(topic, index, batches.batch([b"x"], count=5, last_delta=4))
        if index in self.bench.partitions(topic):
            assert error == errors.INVALID_RECORD
            self.expected[topic]["failed_produce_requests"] += 1

    @rule(topic=topics, index=indexes)
    def append_with_too_few_in_sync(self, topic: str, index: int) -> None:
        if index in self.bench.partitions(topic):
            leading.publish(self.bench, topic, index, min_isr=2)
            assert self.produce(topic, index, batches.batch([b"x"])) == errors.NOT_ENOUGH_REPLICAS
            leading.publish(self.bench, topic, index, min_isr=1)
            self.expected[topic]["failed_produce_requests"] += 1

    # -- Fetch

    def fetched(self, parts: Any) -> None:
        """Count the records in an answer."""
        for topic in parts:
            for part in topic.partitions:
                self.count_of(topic.topic, part.partition_index)["bytes_out"] += len(part.records or b"")

    @rule(topic=topics, index=indexes, back=st.integers(0, 3), most=st.sampled_from([1, 200, 1_000_000]))
    def fetch(self, topic: str, index: int, back: int, most: int) -> None:
        """The same client repeats it, mostly with another offset alone."""
        offset = max(0, self.ends.get((topic, index), 0) - back)
        asked = calls.fetch_request(topic, offset, partition=index, wait_ms=0, partition_bytes=most)
        answer = self.consumer.call(asked)
        self.count_of(topic, index)["fetch_requests"] += 1
        assert bool(answer.responses[0].partitions[0].records) == (offset < self.ends.get((topic, index), 0))
        self.fetched(answer.responses)

    @rule(topic=topics, index=indexes, offsets=st.lists(st.sampled_from([0, 1, 2, 3, 1000]), min_size=2, max_size=5))
    def fetch_repeatedly(self, topic: str, index: int, offsets: list[int]) -> None:
        """Requests that differ only in the offset are answered without being decoded."""
        if index not in self.bench.partitions(topic):
            return
        client = self.bench.connect()
        for offset in offsets:
            answer = client.call(calls.fetch_request(topic, offset, partition=index, wait_ms=0))
            self.expected[topic]["fetch_requests"] += 1
            self.fetched(answer.responses)

    @rule(topic=topics, index=indexes)
    def change_configs_while_it_waits(self, topic: str, index: int) -> None:
        """A repeated request is read again by another path, and is still one request."""
        if index not in self.bench.partitions(topic):
            return
        client, end = self.bench.connect(), self.ends.get((topic, index), 0)
        self.append(topic, index, [b"x"])
        first, second = (calls.fetch_request(topic, end + n, partition=index, wait_ms=60_000) for n in (0, 1))
        self.fetched(client.call(first).responses)
        client.send(client.frame(second))
        self.bench.turn(2)
        self.bench.configure(topic)
        self.bench.worker.before_events()
        self.bench.turn(2)
        self.append(topic, index, [b"x"])
        (frame,) = client.answers()
        self.fetched(decode_response(second, frame).responses)
        self.expected[topic]["fetch_requests"] += 2

    @rule(index=indexes, offset=st.integers(0, 3))
    def fetch_both_topics(self, index: int, offset: int) -> None:
        asked = [(topic, [calls.part(index, offset)]) for topic in TOPICS]
        answer = self.consumer.call(calls.session_request(asked, wait_ms=0))
        for topic in TOPICS:
            self.count_of(topic, index)["fetch_requests"] += 1
        self.fetched(answer.responses)

    @rule(topic=topics, index=indexes)
    def fetch_and_wait_for_records(self, topic: str, index: int) -> None:
        """However often it looks, it is one request."""
        if index not in self.bench.partitions(topic):
            return
        end = self.ends.get((topic, index), 0)
        waiting = calls.fetch_request(topic, end, partition=index, wait_ms=60_000, min_bytes=100)
        self.consumer.send(self.consumer.frame(waiting))
        self.bench.turn(2)
        for size in (1, 200):
            self.append(topic, index, [b"x" * size])
        (frame,) = self.consumer.answers()
        self.expected[topic]["fetch_requests"] += 1
        self.fetched(decode_response(waiting, frame).responses)

    @rule(topic=topics, index=indexes)
    def fetch_in_a_session(self, topic: str, index: int) -> None:
        """Requests of a session that name their partition, or none: each counts for it."""
        if index not in self.bench.partitions(topic):
            return
        client, session = self.bench.connect(), 0
        for epoch, named in enumerate([True, True, True, False]):
            parts = [(topic, [calls.part(index, 0)])] if named else []
            asked = calls.session_request(parts, session=session, session_epoch=epoch, wait_ms=0)
            answer = client.call(asked)
            session = answer.session_id
            self.expected[topic]["fetch_requests"] += 1
            self.fetched(answer.responses)

    @rule(topic=topics, index=indexes)
    def fetch_what_cannot_be_read(self, topic: str, index: int) -> None:
        if not self.ends.get((topic, index)):
            return
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(read, "fetch", _raise)
            answer = self.bench.connect().call(calls.fetch_request(topic, 0, partition=index, wait_ms=0))
        assert answer.responses[0].partitions[0].error_code == errors.KAFKA_STORAGE_ERROR
        self.expected[topic].update(fetch_requests=1, failed_fetch_requests=1)

    @rule(topic=topics, index=indexes, offset=st.sampled_from([-1, 1000]))
    def fetch_out_of_range(self, topic: str, index: int, offset: int) -> None:
        """Not a failure of the broker."""
        answer = self.consumer.call(calls.fetch_request(topic, offset, partition=index, wait_ms=0))
        assert answer.responses[0].partitions[0].error_code
        self.count_of(topic, index)["fetch_requests"] += 1

    @rule(topic=topics, index=indexes)
    def fetch_as_a_follower(self, topic: str, index: int) -> None:
        if index not in self.bench.partitions(topic):
            return
        leading.lead(self.bench, [2], [2], topic=topic, index=index)
        follower, session = self.bench.connect(), 0
        for epoch in range(4):
            asked = leading.request(
                2, [leading.part(0, index, epoch=0)], topic=topic, session=session, session_epoch=epoch
            )  # fmt: skip
            answer = follower.call(asked)
            session = answer.session_id
            parts = [part for found in answer.responses for part in found.partitions]
            self.replicated += sum(len(part.records or b"") for part in parts)
            self.expected[topic]["fetch_requests"] += 1
            assert not any(part.error_code for part in parts)
        leading.lead(self.bench, [], [], topic=topic, index=index)
        leading.publish(self.bench, topic, index, hw=self.ends.get((topic, index), 0))

    # -- the exporter

    @invariant()
    def the_counters_are_what_clients_saw(self) -> None:
        if not hasattr(self, "exporter"):
            return
        found = self.exporter.scrape()
        for row, topic in enumerate(self.exporter.layout.topics):
            shown = dict(zip(COUNTS, found.topics[row].tolist(), strict=True))
            assert shown == {count: self.expected[topic.name][count] for count in COUNTS}, topic.name
        every = sum(self.expected.values(), Counter(self.ended))
        assert {count: found.of_broker(count) for count in COUNTS} == {count: every[count] for count in COUNTS}
        assert found.replicated == self.replicated
        assert self.last is None or (found.broker >= self.last.broker).all(), "a counter of the broker went down"
        self.last = found


def _raise(*_: object, **__: object) -> None:
    raise ValueError("the log is damaged")


TestRequests = pytest.mark.slow(Requests.TestCase)
TestRequests.settings = settings(max_examples=30, stateful_step_count=25)
