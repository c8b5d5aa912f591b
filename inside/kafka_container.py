"""The broker under the name and interface of testcontainers' `KafkaContainer`: a project changes one import."""

from __future__ import annotations

from typing import Any, Self

from odradek.inside.broker import Broker

_PREFIX = "KAFKA_"


class KafkaContainer(Broker):
    """No container: `image`, `port` (of the container) and its other arguments have no effect."""

    def __init__(self, image: str = "", port: int = 9093, **options: Any) -> None:
        super().__init__()
        self.image, self.port = image, port

    def with_kraft(self) -> Self:
        """No effect: a single broker needs no other process for its metadata."""
        return self

    def with_env(self, key: str, value: str) -> Self:
        """A setting as Kafka's images take it: KAFKA_NUM_PARTITIONS is `num.partitions`. Others have no effect."""
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX).lower().replace("_", ".")
            if name not in ("listeners", "advertised.listeners", "zookeeper.connect"):
                self.settings[name] = value
        return self

    def start(self, timeout: float = 60) -> Self:
        """See Broker.start."""
        self._timeout = timeout
        return super().start()

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """See Broker.stop."""
        super().stop()

    def get_container_host_ip(self) -> str:
        """The host of the broker's address."""
        return self.bootstrap.rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of the broker's address, whatever the port of the container."""
        return int(self.bootstrap.rpartition(":")[2])
