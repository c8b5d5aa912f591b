"""Apache Kafka itself, one KRaft node from jars: shows what Kafka does.

`python -m tests.harness.apache 4.1.0` starts one and prints its address; run the tests against it with
`ODRADEK_TEST_BOOTSTRAP=127.0.0.1:PORT pytest tests/clients`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from odradek.cluster.tree.znodes import random_uuid, uuid_text

from . import java
from .process import die_with_parent, free_port, wait_until
from .wire import answers

_PROPERTIES = """
process.roles=broker,controller
node.id=0
controller.quorum.voters=0@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=1000
max.incremental.fetch.session.cache.slots=100000
"""
_OPTIONS = ["-Xmx400m", *java.LIGHT, "-Dlog4j.configuration=file:/dev/null"]


class Apache:
    """A running Apache Kafka `version` with its data under `folder`."""

    def __init__(self, version: str, folder: Path, **properties: object) -> None:
        """`properties`: more server properties, with `_` for `.`."""
        self.version = version
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.data_dir = folder / "kafka-data"
        self.properties = folder / "kafka.properties"
        self.log_file = folder / "kafka.log"
        more = "".join(f"{key.replace('_', '.')}={value}\n" for key, value in properties.items())
        self.properties.write_text(
            _PROPERTIES.format(port=self.port, controller=free_port(), data=self.data_dir) + more
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Apache:
        """Format the data directory and start; returns when the broker responds."""
        self.format()
        return self.launch()

    def format(self) -> None:
        """Format the data directory, for a cluster of its own."""
        words = ["format", "-t", uuid_text(random_uuid()), "-c", str(self.properties)]
        java.run(self.version, "kafka.tools.StorageTool", *words)

    def launch(self) -> Apache:
        """Start on a formatted data directory; returns when the broker responds."""
        self.spawn()
        self.await_ready()
        return self

    def spawn(self, options: Sequence[str] = ()) -> None:
        """Start without waiting, with more `options` of Java: `await_ready` comes next."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                java.command(self.version, "kafka.Kafka", str(self.properties), options=[*_OPTIONS, *options]),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )

    def await_ready(self, seconds: float = 60) -> None:
        """Wait until the broker responds."""
        wait_until(self._ready, seconds, "Apache Kafka answers")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_file.read_text()[-4000:]
        return answers(self.bootstrap)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """SIGTERM and wait."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None


_MEMBER_PROPERTIES = """
broker.id={broker}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=6000
offsets.topic.num.partitions=4
offsets.topic.replication.factor={factor}
transaction.state.log.replication.factor={factor}
group.initial.rebalance.delay.ms=0
"""


class ApacheMember(Apache):
    """A broker of a ZooKeeper-mode Kafka cluster, in which other brokers may not be Apache's."""

    def __init__(self, folder: Path, broker: int, zookeeper: str, factor: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("3.9.1", folder)
        self.properties.write_text(
            _MEMBER_PROPERTIES.format(
                broker=broker, port=self.port, data=self.data_dir, zookeeper=zookeeper, factor=factor
            )
        )

    def start(self) -> Apache:
        """Start; ZooKeeper mode needs no format."""
        return self.launch()


def main(version: str) -> None:
    """Run until end of input or Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as folder:
        broker = Apache(version, Path(folder)).start()
        print(broker.bootstrap, flush=True)
        try:
            assert broker.process is not None
            broker.process.wait()
        except KeyboardInterrupt:
            pass
        finally:
            broker.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "4.1.0")
