"""The measured brokers: each with its own defaults on free ports of loopback, observed from outside.

All store their data on the same disk. Only two settings differ from what a user meets: one partition a topic, and
deleted topics leave the disk at once, so that one load's write-back does not slow the next.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

from odradek.loadtest.harness import processes, wire
from odradek.loadtest.harness.processes import Memory, free_port
from odradek.loadtest.harness.tools import KAFKA_VERSION, BrokerError, kafka_jars, rabbitmq

__all__ = ["KINDS", "ApacheKafka", "Broker", "BrokerError", "Odradek", "RabbitMQ", "cluster_id", "kafka_jars"]

START_SECONDS = 120
STOP_SECONDS = 180  # ten thousand partitions are flushed one by one
# The heap of kafka-server-start, and the collector's settings of kafka-run-class.
JAVA_OPTIONS = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
_COMMON = {
    "num.partitions": 1,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.delete.delay.ms": 1000,
}


def cluster_id() -> str:
    """A new cluster's id. It does not begin with `-`, because Kafka's tools would parse that as an option."""
    return base64.urlsafe_b64encode(b"odr" + uuid.uuid4().bytes[3:]).decode().rstrip("=")


class Broker:
    """One broker with its data under `folder`, which can be restarted any number of times. `settings` are its own.

    `tls`: a folder with server.pem and ca.pem; the broker has a listener with TLS, too.
    """

    name = ""
    key = ""
    speaks = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None, tls: Path | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.port = free_port()
        self.tls = tls
        self.secure_port = free_port() if tls is not None else 0
        self.process: psutil.Popen | None = None
        self.filled: dict[str, str] = {}  # topics that several loads read
        folder.mkdir(parents=True)
        self.prepare()

    @property
    def version(self) -> str:
        """The broker's version."""
        return KAFKA_VERSION

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def secure_bootstrap(self) -> str:
        """`host:port` for clients that use TLS."""
        return f"127.0.0.1:{self.secure_port}"

    def client_settings(self) -> list[str]:
        """librdkafka's settings for the listener with TLS."""
        return ["security.protocol=ssl", f"ssl.ca.location={self.tls}/ca.pem"]

    def listeners(self) -> str:
        """`listeners`, for clients."""
        plain = f"PLAINTEXT://{self.bootstrap}"
        return plain if self.tls is None else f"{plain},SSL://{self.secure_bootstrap}"

    def prepare(self) -> None:
        """Steps before the first start."""

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def answers(self, partitions: int) -> bool:
        """Whether Metadata lists at least that many partitions with a leader and none without."""
        try:
            found = wire.metadata(self.port, seconds=10)
        except OSError:
            return False
        return found.led >= partitions and not found.other

    def start(self, partitions: int = 0) -> float:
        """Start it; returns the seconds from exec to the first Metadata response with `partitions` of them."""
        self.launch()
        return self.started(partitions)

    def launch(self) -> None:
        """Exec it. It dies with the calling thread (PR_SET_PDEATHSIG), so call this from one that lasts."""
        self._began = time.monotonic()
        self.process = processes.spawn(self.command(), self.folder / "broker.log", cwd=self.folder, env=self.env())

    def started(self, partitions: int = 0) -> float:
        """Wait for that Metadata response; returns the seconds from exec."""
        assert self.process is not None
        while not self.answers(partitions):
            if self.process.poll() is not None or time.monotonic() - self._began > START_SECONDS:
                raise BrokerError(f"{self.name} does not respond on port {self.port}:\n{self.log_tail()}")
            time.sleep(0.005)
        return time.monotonic() - self._began

    def env(self) -> dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def log_tail(self) -> str:
        """The end of its log."""
        return (self.folder / "broker.log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Send SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            processes.end(self.process, how, STOP_SECONDS)
            self.process.wait()
            self.process = None

    def family(self) -> list[psutil.Process]:
        """All its processes."""
        return processes.family(self.process) if self.process else []

    def cpu(self) -> float:
        """CPU seconds of all its processes so far, dead ones included."""
        return processes.cpu_seconds(self.family())

    def memory(self) -> Memory:
        """The memory of all its processes."""
        return processes.memory(self.family())

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and wait until its partitions have leaders."""
        wire.create(self.port, topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        wire.delete(self.port, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def write_properties(self, more: Mapping[str, object]) -> None:
        """Write server.properties."""
        rows = {**_COMMON, "log.dirs": self.folder / "data", **more, **self._tls_properties(), **self.settings}
        (self.folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in rows.items()))

    def _tls_properties(self) -> dict[str, object]:
        if self.tls is None:
            return {}
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.tls / "server.pem",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
        }


class Odradek(Broker):
    """This tree's Odradek."""

    name, key = "Odradek", "odradek"

    @property
    def version(self) -> str:
        """The installed version."""
        from importlib.metadata import version

        return version("odradek")

    def prepare(self) -> None:
        """Write its properties."""
        self.write_properties({"listeners": self.listeners()})

    def command(self) -> list[str]:
        """The same as `odradek start`."""
        return [sys.executable, "-m", "odradek.broker", "start", str(self.folder / "server.properties")]


class ApacheKafka(Broker):
    """Apache Kafka as one KRaft node."""

    name, key = "Apache Kafka", "kafka"
    release = KAFKA_VERSION

    @property
    def version(self) -> str:
        """The version of its jars."""
        return self.release

    def prepare(self) -> None:
        """Write its properties and format the data directory."""
        controller = f"127.0.0.1:{free_port()}"
        more = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{self.listeners()},CONTROLLER://{controller}",
            "advertised.listeners": self.listeners(),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "controller.listener.names": "CONTROLLER",
        }
        self.write_properties(more)
        cluster = cluster_id()
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.folder / "server.properties")]
        subprocess.run(["java", "-cp", f"{kafka_jars(self.release)}/*", *tool], check=True, capture_output=True)

    def command(self) -> list[str]:
        """Uses the heap and the collector of its own scripts."""
        jars = f"{kafka_jars(self.release)}/*"
        return ["java", *JAVA_OPTIONS, "-cp", jars, "kafka.Kafka", str(self.folder / "server.properties")]


class RabbitMQ(Broker):
    """Debian's RabbitMQ from the cache: its own node name, cookie, ports and port mapper, no plugins."""

    name, key, speaks = "RabbitMQ", "rabbitmq", "amqp"

    def prepare(self) -> None:
        """Its ports, and empty configuration files."""
        self._home = rabbitmq()
        self._mapper_port, self._node_port = free_port(), free_port()
        self._mapper: psutil.Popen | None = None
        for name in ("rabbitmq.conf", "plugins", "env.conf"):
            (self.folder / name).touch()

    @property
    def version(self) -> str:
        """From the name of its folder."""
        return next(self._home.glob("root/usr/lib/rabbitmq/lib/rabbitmq_server-*")).name.partition("-")[2]

    def command(self) -> list[str]:
        """The packaged script, which execs the Erlang VM."""
        return [str(self._home / "root/usr/lib/rabbitmq/bin/rabbitmq-server")]

    def env(self) -> dict[str, str]:
        """Everything is private; ALLOW_INPUT makes the script exec, so that signals reach the broker itself."""
        own = {
            "PATH": f"{self._home}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
        }
        return {**os.environ, **own}

    def start(self, partitions: int = 0) -> float:
        """Start its port mapper first: RabbitMQ would start one that never exits."""
        program = next(self._home.glob("root/usr/lib/erlang/erts-*/bin/epmd"))
        command = [str(program), "-port", str(self._mapper_port), "-address", "127.0.0.1"]
        self._mapper = processes.spawn(command, self.folder / "epmd.log")
        return super().start(partitions)

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        if self._mapper is not None:
            processes.end(self._mapper, signal.SIGKILL, STOP_SECONDS)
            self._mapper = None

    def family(self) -> list[psutil.Process]:
        """Includes the port mapper."""
        return super().family() + (processes.family(self._mapper) if self._mapper else [])

    def answers(self, partitions: int) -> bool:
        """Whether it opens an AMQP connection."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False


KINDS: tuple[type[Broker], ...] = (ApacheKafka, RabbitMQ, Odradek)
