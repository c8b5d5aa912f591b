"""A leader for a replicator: a socket server over lists of batches, with the sessions and codecs of a worker.

Its faults are adjustable: errors by partition, replaced or withheld responses. Also, the broker that follows it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.broker import config as configuration
from odradek.broker.process.process import Process, role_locks
from odradek.broker.replicator import replicator
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.cluster.replication import throttles
from odradek.cluster.replication.fetch_session import Key
from odradek.ipc import roles, slots
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol import errors, fetch
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.protocol.library import message_class
from odradek.protocol.records import batch_v2
from odradek.storage.log import opening
from odradek.storage.log.partition import Partition
from odradek.storage.segment.epochs import EpochCache, diverges
from odradek.workers.fetch.fetch_sessions import FetchSession, FetchSessionCache

TOPIC, TOPIC_ID = "t", bytes([1]) * 16
LEADER, OWN = 1, 0


@dataclass
class LeaderLog:
    """One partition at its leader: batches with their end offsets."""

    epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, end, bytes
    epochs: EpochCache = field(default_factory=EpochCache)
    hw: int = -1  # -1: the log end
    error: int = 0
    lie: Callable[[FetchResult], FetchResult] | None = None  # from the true result to the one that is sent

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, count: int = 1, value: bytes = b"x" * 100, epoch: int | None = None) -> None:
        """Append a batch of `count` records."""
        now, first = time.time_ns() // 1_000_000, self.end
        data = bytearray(batch_v2.build([(n, now, None, value, ()) for n in range(count)]))
        used = self.epoch if epoch is None else epoch
        struct.pack_into(">q", data, 0, first)
        struct.pack_into(">i", data, 12, used)
        self.epochs.assign(used, first)
        self.batches.append((first, first + count, bytes(data)))

    def content(self) -> bytes:
        return b"".join(data for _, _, data in self.batches)

    def answer(self, key: Key, part: FetchPartition, limit: int) -> FetchResult:
        true = self._true(key, part, limit)
        return true if self.lie is None else self.lie(true)

    def _true(self, key: Key, part: FetchPartition, limit: int) -> FetchResult:
        hw = self.end if self.hw < 0 else self.hw
        result = FetchResult(key[0], key[1], 0, hw, hw, self.start)
        error = self.error or self._refusal(part)
        if error:
            return result._replace(error=error, hw=-1, log_start=-1)
        diverging = diverges(self.epochs, part.last_epoch, part.offset, self.end)
        if diverging is not None:
            return result._replace(diverging=diverging)
        if part.offset > self.end:
            return result._replace(error=errors.OFFSET_OUT_OF_RANGE, hw=-1, log_start=-1)
        return result._replace(payloads=self._read(part.offset, min(limit, part.max_bytes)))

    def _refusal(self, part: FetchPartition) -> int:
        if part.leader_epoch != self.epoch:
            return errors.FENCED_LEADER_EPOCH if part.leader_epoch < self.epoch else errors.UNKNOWN_LEADER_EPOCH
        return errors.OFFSET_OUT_OF_RANGE if part.offset < self.start else 0

    def _read(self, offset: int, limit: int) -> list[bytes]:
        found: list[bytes] = []
        for _, end, data in self.batches:
            if end > offset and (not found or sum(map(len, found)) + len(data) <= limit):
                found.append(data)
        return found


class PlayedLeader:
    """Broker LEADER. `logs` may change under `lock`; `requests` has all fetches so far."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.logs: dict[Key, LeaderLog] = {}
        self.requests: list[FetchRequest] = []
        self.first_epochs: list[int] = []  # the session epoch in each connection's first fetch
        self.sought: list[int] = []  # timestamps requested by ListOffsets
        self.connections = 0
        self.silent = False  # no responses
        self.mangle: Callable[[bytes], bytes] = lambda frame: frame
        self.session_error = 0
        self.sessions = FetchSessionCache(100)
        self._closed = False
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> tuple[str, int]:
        return self._sock.getsockname()[:2]

    def log(self, index: int = 0) -> LeaderLog:
        return self.logs.setdefault((TOPIC_ID, index), LeaderLog())

    def append(self, index: int = 0, **arguments: object) -> None:
        with self.lock:
            self.log(index).append(**arguments)  # type: ignore[arg-type]  # of several types
            self.lock.notify_all()

    def changed(self) -> None:
        """Retry the delayed fetches."""
        with self.lock:
            self.lock.notify_all()

    def hang_up(self) -> None:
        """Close all connections."""
        for sock in self._open:
            with socket_errors():
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._sock.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._sock.close()
        self.hang_up()
        self.changed()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, socket_errors():
            stream = sock.makefile("rb")
            first = True
            while head := stream.read(4):
                frame = stream.read(struct.unpack(">i", head)[0])
                answer = self._answer(frame, first)
                first = False
                if not self.silent:
                    sock.sendall(self.mangle(answer))

    def _answer(self, frame: bytes, first: bool) -> bytes:
        key, version, correlation, size = struct.unpack_from(">hhih", frame)
        at = 10 + size
        if key == 2:
            return self._list_offsets(frame, version)
        assert (key, version, frame[at]) == (1, 13, 0)
        request = fetch.parse(memoryview(frame), at + 1, len(frame), version)
        with self.lock:
            self.requests.append(request)
            self.first_epochs += [request.session_epoch] if first else []
            return b"".join(self._fetch(request, correlation))

    def _fetch(self, request: FetchRequest, correlation: int) -> list[Any]:
        error, session = self.sessions.open(request, True, 0.0)
        error, self.session_error = error or self.session_error, 0
        if error:
            return fetch.response(13, correlation, [], error)
        if session is None:
            parts = {(part.topic, part.partition): part for part in request.parts}
            return fetch.response(13, correlation, self._results(parts, request.max_bytes))
        deadline = time.monotonic() + request.max_wait_ms / 1000
        while not (results := self._news(session, request.max_bytes)) and session.epoch and not self._closed:
            if not self.lock.wait(max(0.0, deadline - time.monotonic())):
                break
        session.last_sent |= {(one.topic, one.partition): (one.hw, one.log_start) for one in results}
        session.advance()
        return fetch.response(13, correlation, results, 0, session.id)

    def _news(self, session: FetchSession, limit: int) -> list[FetchResult]:
        return [
            one
            for one in self._results(session.parts, limit)
            if one.payloads
            or one.error
            or one.diverging
            or session.last_sent.get((one.topic, one.partition)) != (one.hw, one.log_start)
        ]

    def _results(self, parts: dict[Key, FetchPartition], limit: int) -> list[FetchResult]:
        results = []
        for key, part in parts.items():
            log = self.logs.get(key)
            if log is None:
                results.append(FetchResult(*key, errors.UNKNOWN_TOPIC_ID, -1, -1, -1))
            else:
                results.append(log.answer(key, part, limit))
                limit -= sum(map(len, results[-1].payloads))  # type: ignore[arg-type]  # bytes, no file slices
        return results

    def _list_offsets(self, frame: bytes, version: int) -> bytes:
        request = message_class("ListOffsetsRequest").decode(frame, version=version, header=True, framed=False)
        response = message_class("ListOffsetsResponse")
        topic_class = response.ListOffsetsTopicResponse
        topics = []
        with self.lock:
            for topic in request.topics:
                parts = []
                for one in topic.partitions:
                    log = self.log(one.partition_index)
                    self.sought.append(one.timestamp)
                    parts.append(topic_class.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, error_code=log.error, timestamp=-1,
                        offset=log.end if one.timestamp == -1 else log.start, leader_epoch=log.epoch,
                    ))  # fmt: skip
                topics.append(topic_class(name=topic.name, partitions=parts))
        body = bytes(response(throttle_time_ms=0, topics=topics).encode(version=version))
        head = struct.pack(">i", request.header.correlation_id)
        return struct.pack(">i", len(head) + len(body)) + head + body


class socket_errors:
    """Suppresses the errors of a closed connection in a thread."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, (OSError, struct.error))


class Follower:
    """Broker OWN without its other processes: shared memory, slots, logs, and the replicator's loop, turned by hand."""

    def __init__(self, folder: Path, leaders: dict[int, tuple[str, int]], count: int = 1, **settings: object) -> None:
        """`settings` have `_` for `.` in their names."""
        self.data, self.run_dir = folder / "data", folder / "run"
        for path in (self.data, self.run_dir):
            path.mkdir()
        given = {"replica.fetch.backoff.ms": "200", **{name.replace("_", "."): str(v) for name, v in settings.items()}}
        own = {"log.dirs": str(self.data), "odradek.run.dir": str(self.run_dir), "broker.id": str(OWN)}
        self.config = configuration.resolve({**own, **given})
        self.config = self.config.with_clean([False])
        self.shared = Shared.create(f"/odradek-test-{time.monotonic_ns()}-", 1, max(16, count))
        self.leaders = leaders
        self.count = count
        self.epochs = dict.fromkeys(range(count), 0)
        self.isr = [OWN, LEADER]
        self.topic_config: dict[str, str] = {}
        self.led_by = dict.fromkeys(range(count), LEADER)
        for index in range(count):
            (self.data / f"{TOPIC}-{index}").mkdir()
            self.shared.slots[index].publish(
                SlotState(
                    incarnation=index + 1, state=slots.RECOVERING, hw_quorum=2, led_since=-1, recovers_to=slots.FOLLOWER
                )
            )
        self.publish()
        self.replicator = replicator.Replicator(
            Process(roles.REPLICATOR, self.run_dir, self.config, role_locks(self.config), self.shared)
        )
        self.catalog = self.replicator._catalog
        self.catalog.follow()
        opening.open_all(self.catalog.log, self.catalog.names(), self.catalog.log_dirs(), lambda: None)

    def publish(self) -> None:
        """Publish the metadata of this test."""
        rows = [
            [index, index + 1, self.led_by[index], self.epochs[index], [OWN, LEADER], self.isr, 0]
            for index in range(self.count)
        ]
        topic = {"id": TOPIC_ID.hex(), "internal": False, "config": self.topic_config, "partitions": rows}
        brokers = [
            {"id": broker, "rack": None, "endpoints": {"PLAINTEXT": list(address)}}
            for broker, address in {OWN: ("127.0.0.1", 1), **self.leaders}.items()
        ]
        version = self.shared.metadata.version + 1
        raw = raw_snapshot(version, "c", 0, brokers, {TOPIC: topic} if self.count else {}, {})
        self.shared.metadata.publish(version, json.dumps(raw).encode())

    def lead(self, index: int, leader: int, epoch: int) -> None:
        """Set the leader in the slot, as the controller does."""
        self.epochs[index], self.led_by[index] = epoch, leader
        self.change(index, leader_epoch=epoch, state=slots.FOLLOWER)
        self.publish()

    def change(self, index: int = 0, **changes: int) -> None:
        with self.partition(index).locked():
            self.partition(index).slot.update(**changes)

    def partition(self, index: int = 0) -> Partition:
        found = self.catalog.log.get(TOPIC, index)
        assert found is not None
        return found

    def state(self, index: int = 0) -> SlotState:
        return self.partition(index).state()

    def content(self, index: int = 0) -> bytes:
        folder = self.data / f"{TOPIC}-{index}"
        names = sorted(path for path in folder.iterdir() if path.suffix == ".log")
        return b"".join(path.read_bytes() for path in names)

    def count_of(self, column: str) -> int:
        return self.shared.processes.get(roles.REPLICATOR, column)

    def turn_until(self, condition: Callable[[], object], what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
            self.turn()

    def turn(self) -> None:
        self.replicator.turn(min(20.0, self.replicator._poll_timeout_ms()))

    def close(self) -> None:
        self.replicator.close()
        for end in (self.replicator._signals._read, self.replicator._signals._write):
            os.close(end)
        self.shared.destroy()


def caught_up(follower: Follower, leader: PlayedLeader, *indexes: int) -> Callable[[], bool]:
    return lambda: all(
        (follower.state(index).leo, follower.state(index).hw) == (leader.log(index).end,) * 2
        for index in indexes or [0]
    )


def throttle(follower: Follower, text: str, isr: list[int]) -> None:
    follower.isr, follower.topic_config = isr, {throttles.FOLLOWER.replicas: text}
    follower.publish()


Maker = Callable[..., Follower]
Jump = Callable[[int], None]
LONG_POLL = {"replica_fetch_wait_max_ms": 20_000}
"""For a follower whose idle fetch must not return before there are new records."""
