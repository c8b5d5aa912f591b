"""A worker in the test's process, with its own shared memory and directories; clients use socket pairs."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek.cluster.configs import configdef, quota_windows
from odradek.cluster.configs.admitted import Admitted
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.ipc import quotas, region, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.roles import worker_role
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.security.quotas.rates import Rate
from odradek.workers.worker import Worker

from ..harness.wire import decode_response, header

SECONDS = 60  # for an answer: a disk may take its time
BROKERS = [{"id": 0, "rack": None, "endpoints": {"PLAINTEXT": ["h", 1]}}]


class _Config(dict[str, Any]):
    log_dirs: tuple[str, ...] = ()
    protocols: dict[str, str] = {"PLAINTEXT": "PLAINTEXT"}
    originals: dict[str, str] = {}
    between_brokers = "PLAINTEXT"
    clustered = False
    clean: tuple[bool, ...] = (True,)


class Client:
    """The other end of a connection."""

    def __init__(self, sock: socket.socket, bench: Bench) -> None:
        self.sock = sock
        self._bench = bench
        self._bytes = b""
        self.closed = False
        self._correlation = 0

    def send(self, data: bytes) -> None:
        """Send all of `data`; while the socket is full, read and let the worker run."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self.read()
                self._bench.turn()

    def frame(self, request: Any) -> bytes:
        """A `kafka.protocol` request as a frame."""
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id="c")
        return bytes(request.encode(header=True, framed=True))

    def read(self) -> None:
        """Read the bytes that have arrived."""
        try:
            while data := self.sock.recv(1 << 20):
                self._bytes += data
            self.closed = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.closed = True

    def frames(self) -> list[bytes]:
        """The complete answers so far, without their sizes."""
        self.read()
        found = []
        while len(self._bytes) >= 4 and len(self._bytes) >= 4 + (size := struct.unpack_from(">i", self._bytes)[0]):
            found.append(self._bytes[4 : 4 + size])
            self._bytes = self._bytes[4 + size :]
        return found

    def answers(self, count: int = 1) -> list[bytes]:
        """Run the worker until `count` answers are there."""
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found += self.frames()
            if len(found) >= count or self.closed:
                return found
            self._bench.turn()
        raise AssertionError(f"{len(found)} answers of {count}")

    def call(self, request: Any) -> Any:
        """Send the request and decode the answer."""
        self.send(self.frame(request))
        (answer,) = self.answers()
        return decode_response(request, answer)

    def gone(self) -> bool:
        """Whether the worker closes the connection."""
        for _ in range(50):
            self.read()
            if self.closed:
                return True
            self._bench.turn()
        return False


class Bench:
    """The worker, and the parts of its controller and of other processes."""

    def __init__(self, root: Path, prefix: str, originals: dict[str, str] | None = None, **config: Any) -> None:
        """`originals`: settings as text; each security protocol gets a listener of its name."""
        self.root = root
        self._run = root / "run"
        self._run.mkdir(mode=0o700)
        self.shared = Shared.create(prefix, 5, 100)
        self.values = _Config({name: configdef.broker_default(name) for name in configdef.BROKER})
        self.values.update({"broker.id": 0, **{name.replace("_", "."): value for name, value in config.items()}})
        self.values.log_dirs = (str(root),)
        if originals is not None:
            self.values.originals = originals
            self.values.protocols = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        self._topics: dict[str, Any] = {}
        self._dynamic: dict[str, dict[str, str]] = {}
        self._quotas: dict[str, dict[str, float]] = {}
        quotas.create(prefix, 5, Rate.size(quota_windows.client_window(self.values)))
        self.admitted = Admitted("PLAINTEXT", ["h"])
        self._version = 0
        self._next = 0
        self.locks = PartitionLocks(self._run / "partition.lock")
        self._publish()
        process = SimpleNamespace(
            role=worker_role(0), run_dir=self._run, shared=self.shared, config=self.values, running=lambda: None,
            draining=lambda: None, beat=lambda: None,
        )  # fmt: skip
        self._clients: list[Client] = []
        self._begin(process)

    def _begin(self, process: Any) -> None:
        self.worker = Worker(process)
        self.worker.load()
        self.worker.before_events()
        self.worker.loop.watch(self.worker.bell.fileno(), lambda _: self.worker._bell())
        self.worker.loop.watch(self.worker.syncer.fileno(), lambda _: self.worker.syncer.collect())

    def restart(self) -> None:
        """End the worker, and with it all connections; another one of its role takes over."""
        process = self.worker.process
        self.worker.finish()
        self._begin(process)

    # -- the controller's part

    def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, or recreate it under the same name (its old slots are gone)."""
        self.delete(name)
        rows = [self._slot(name, index) for index in range(partitions)]
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._topics[name] = {
            "id": secrets.token_hex(16), "internal": name.startswith("__"), "config": settings, "partitions": rows,
        }  # fmt: skip
        self._publish()

    def _slot(self, name: str, index: int) -> list[Any]:
        number, incarnation = self._next, 1000 + self._next
        self._next += 1
        (self.root / f"{name}-{index}").mkdir()
        self.shared.slots[number].publish(SlotState(incarnation=incarnation, state=slots.LEADER))
        return [number, incarnation, 0, 0, [0], [0], 0]

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions."""
        rows = self._topics[name]["partitions"]
        rows += [self._slot(name, index) for index in range(len(rows), partitions)]
        self._publish()

    def configure(self, name: str, **config: str) -> None:
        """Set topic configs."""
        self._topics[name]["config"] = {key.replace("_", "."): value for key, value in config.items()}
        self._publish()

    def configure_brokers(self, **config: str) -> None:
        """Set dynamic configs of all brokers."""
        self._dynamic = {"": {key.replace("_", "."): value for key, value in config.items()}}
        self._publish()

    def limit(self, path: str, **limits: float) -> None:
        """Set the quotas of an entity by its path, `clients/c`; without limits it has none."""
        self._quotas = {**self._quotas, path: limits}
        if not limits:
            del self._quotas[path]
        self._publish()

    def delete(self, name: str) -> None:
        """Delete a topic as the controller does: slots first, then the directory, then the metadata."""
        for index, row in enumerate(self._topics.pop(name, {"partitions": []})["partitions"]):
            self.shared.slots[row[0]].update(state=slots.DELETING, incarnation=99_000 + row[0])
            os.rename(self.root / f"{name}-{index}", self.root / f"{name}-{index}.{secrets.token_hex(4)}-delete")
        self._publish()

    def _publish(self) -> None:
        self._version += 1
        raw = raw_snapshot(
            self._version, "x", 0, BROKERS, self._topics, self._dynamic, self.admitted, quotas=self._quotas
        )
        self.shared.metadata.publish(self._version, Snapshot(raw, self.values).encode())

    def id_of(self, name: str) -> bytes:
        """A topic's id."""
        return bytes.fromhex(self._topics[name]["id"])

    def slot(self, name: str, index: int = 0) -> Any:
        """A partition's slot."""
        return self.shared.slots[self._topics[name]["partitions"][index][0]]

    # -- the worker's part

    def connect(self, host: str = "h", listener: str = "PLAINTEXT") -> Client:
        """A new client; one at host `h` may be a broker."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.worker.accept(theirs, listener, host, len(self._clients))
        self._clients.append(Client(ours, self))
        return self._clients[-1]

    def connection(self, client: Client) -> Any:
        """The worker's side of a client."""
        port = self._clients.index(client)
        return next(c for c in self.worker.loop.connections.values() if c.port == port)

    def turn(self, times: int = 1) -> None:
        """Rounds of the event loop, each waiting a millisecond at most."""
        for _ in range(times):
            self.worker.loop.turn(0.001)
            self.worker._after_events()

    @contextmanager
    def held(self, name: str, index: int = 0) -> Iterator[None]:
        """Hold the partition's lock as another process does."""
        byte = self.slot(name, index).number
        assert self.locks.try_lock(byte)
        try:
            yield
        finally:
            self.locks.unlock(byte)

    def close(self) -> None:
        """Stop the worker, close the clients and remove the shared memory."""
        self.worker.finish()
        for client in self._clients:
            client.sock.close()
        region.unlink_all(self.shared.prefix)
        vars(self).clear()  # pytest keeps the last test's arguments for a while; they must not keep descriptors


@contextmanager
def bench(root: Path, *, originals: Any = None, **config: Any) -> Iterator[Bench]:
    """A worker with a topic `t` of one partition; config with `_` for `.`; `originals`: see Bench."""
    prefix = f"/odradek-test{secrets.token_hex(4)}-"
    try:
        made = Bench(root, prefix, originals, **config)
        try:
            made.topic("t")
            yield made
        finally:
            made.close()
    finally:
        region.unlink_all(prefix)


def raw(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    """A frame with header v1."""
    data = header(key, version, correlation) + body
    return struct.pack(">i", len(data)) + data


def correlations(frames: list[bytes]) -> list[int]:
    """The correlation ids of answers."""
    return [struct.unpack_from(">i", frame)[0] for frame in frames]
