"""A controller process without other processes: the test acts as its supervisor, worker and client."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from odradek.broker import config as configuration
from odradek.broker.process.process import role_locks
from odradek.cluster import internal
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import channel, forward, processes, rundir
from odradek.ipc.forward import Forwarded
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.roles import worker_role
from odradek.ipc.shm import Shared
from odradek.protocol.library import message_class
from odradek.storage.files.checkpoints import MetaProperties, write_meta_properties

from ..harness.process import die_with_parent, readable, wait_until

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class ControllerHarness:
    """Shared memory, a run directory and a controller; `worker` holds a role byte and acknowledges by hand."""

    def __init__(self, folder: Path, **overrides: Any) -> None:
        self.data_dir = folder / "data"
        self.data_dir.mkdir(exist_ok=True)
        given = {"log.dirs": str(self.data_dir), "broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:19092"}
        given |= {name.replace("_", "."): str(value) for name, value in overrides.items()}
        self.config = configuration.resolve(given).with_clean([False])
        self.run_dir = rundir.make_run_dir(self.config.run_dir)
        self.config.save(self.run_dir)
        write_meta_properties(self.data_dir, MetaProperties(CLUSTER_ID, 0))
        self.role = worker_role(0)
        self.process: subprocess.Popen[bytes] | None = None
        self._tokens = itertools.count(1)
        self._answers: dict[int, bytes] = {}
        self.link: Any = None
        self.fresh_memory()

    # -- the supervisor

    def fresh_memory(self) -> None:
        """New shared memory, as after a reboot."""
        self.shared = Shared.create(rundir.shm_prefix(str(self.data_dir)), time.time_ns(), 64)
        self.locks = PartitionLocks(self.run_dir / "partition.lock")

    def start(self) -> ControllerHarness:
        """Start the controller; returns when it runs."""
        words = [sys.executable, "-m", "odradek.broker", "run", "controller", "--run-dir", str(self.run_dir)]
        self.process = subprocess.Popen(words, preexec_fn=die_with_parent)
        wait_until(self._running, 60, "the controller runs")
        self.link = channel.connect(self.run_dir / "controller.sock")
        return self

    def _running(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the controller ended"
        table = self.shared.processes
        return table.get(4, "state") == processes.RUNNING and table.get(4, "pid") == self.process.pid

    def kill(self) -> None:
        """SIGKILL the controller."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM the controller."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None
        if self.link is not None:
            self.link.close()
            self.link = None

    def close(self) -> None:
        """Stop the process and remove its memory."""
        self._end(signal.SIGKILL)
        self.shared.destroy()
        self.locks.close()
        for path in self.run_dir.iterdir():
            path.unlink()
        self.run_dir.rmdir()

    # -- a worker

    def be_worker(self) -> None:
        """Hold worker-0's role byte and register it with the current metadata version."""
        self.roles = role_locks(self.config)
        assert self.roles.hold(self.role)
        self.shared.processes.enter(self.role, processes.RUNNING)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge the current metadata as the worker."""
        self.shared.processes.set(self.role, "meta_version", self.shared.metadata.version)

    def snapshot(self) -> Snapshot:
        """The published snapshot."""
        return Snapshot.parse(self.shared.metadata.read()[1], self.config)

    # -- a client

    def send(self, request: Any) -> int:
        """Forward a `kafka.protocol` request (`XRequest[3](…)`); return its token."""
        body = bytes(request.encode(version=request.API_VERSION))
        return self._send(request.API_KEY, request.API_VERSION, body)

    def _send(self, key: int, version: int, body: bytes) -> int:
        token = next(self._tokens)
        self.link.send(forward.encode(Forwarded(token, key, version, "test", "127.0.0.1", "PLAINTEXT", body)))
        return token

    def answered(self, token: int, seconds: float = 0.05) -> bool:
        """Whether the answer has come, after waiting a little."""
        if token not in self._answers:
            readable(self.link, seconds)
            for message in self.link.receive():
                number, flags, body = forward.decode_reply(message)
                assert flags == forward.OK
                self._answers[number] = body
        return token in self._answers

    def take(self, token: int) -> bytes:
        """Wait for the answer; return its body."""
        wait_until(lambda: self.answered(token), 60, "an answer of the controller")
        return self._answers.pop(token)

    def call(self, request: Any) -> Any:
        """Send a request; return the decoded response."""
        body = self.take(self.send(request))
        name = type(request).__name__.replace("Request", "Response")
        return message_class(name).decode(memoryview(body), version=request.API_VERSION)

    def ask(self, key: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send an internal request; return its response."""
        return internal.decode(self.take(self._send(key, 0, internal.encode(body))))

    # -- short forms

    def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        """Create a topic; return its result."""
        return self.call(create_request(name, partitions, False, **configs)).topics[0]

    def delete(self, *names: str, timeout_ms: int = 60_000) -> list[Any]:
        """Delete topics; return their results."""
        request = message_class("DeleteTopicsRequest")[5](topic_names=list(names), timeout_ms=timeout_ms)
        return list(self.call(request).responses)

    def directories(self) -> list[str]:
        """Names of the directories in the log directory."""
        return sorted(entry.name for entry in os.scandir(self.data_dir) if entry.is_dir())


def create_request(name: str, partitions: int = 1, validate_only: bool = False, **configs: str) -> Any:
    """A CreateTopics v7 for one topic; `_` in config names stands for `.`."""
    request = message_class("CreateTopicsRequest")
    topic = request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            request.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    return request[7](topics=[topic], timeout_ms=60_000, validate_only=validate_only)
