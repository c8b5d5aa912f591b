"""The broker's metadata and log as one process sees them: the current snapshot, and partitions by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odradek.cluster.metadata.security_metadata import NO_SECURITY_METADATA, SecurityMetadata
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc.shm import Shared
from odradek.storage.config import LogConfig
from odradek.storage.log.log import Log, PartitionLocation
from odradek.storage.log.opening import LogDir
from odradek.storage.log.partition import Partition
from odradek.workers.dispatch.authorization import Authorization


class Catalog:
    """The snapshot in force and its log; `follow` adopts a new version.

    `config` is the broker's typed configuration; `paths` are those of its log directories; `clean`: for each of them,
    whether it was shut down cleanly.
    """

    def __init__(
        self, shared: Shared, run_dir: str | os.PathLike[str], role: int, config: Mapping[str, Any],
        paths: Sequence[str], clean: Sequence[bool] = (),
    ) -> None:  # fmt: skip
        self._shared = shared
        self._role = role
        self._config = config
        self.paths = paths
        self._clean = clean
        self.snapshot = Snapshot.empty(config)
        self.security = NO_SECURITY_METADATA
        self.authorization = Authorization(config)
        self._configs: dict[str, LogConfig] = {}  # of the snapshot in force
        self.log = Log(shared, run_dir, role, self._resolve, self._configure)

    @property
    def stale(self) -> bool:
        """Whether there is a newer version; cheap, called once per batch of events."""
        return self._shared.metadata.version != self.snapshot.version

    def follow(self) -> bool:
        """Adopt the newest metadata and publish its version in the process table; returns whether it was new."""
        version, blob = self._shared.metadata.read()
        if version == self.snapshot.version:
            return False
        self.snapshot = Snapshot.parse(blob, self._config)
        if self.snapshot.security != self.security.version:
            self.security = SecurityMetadata.parse(*self._shared.security.read())
            self.authorization.adopt(self.security)
        self._configs.clear()
        self.log.refresh()
        self._shared.processes.set(self._role, "meta_version", version)
        return True

    def names(self) -> list[tuple[str, int]]:
        """(topic, partition) of all partitions with a log on this broker."""
        return [(name, index) for name, index, _ in self.snapshot.here()]

    def __iter__(self) -> Iterator[Partition]:
        for topic, index in self.names():
            partition = self.log.get(topic, index)
            if partition is not None:
                yield partition

    def log_dirs(self) -> list[LogDir]:
        """The log directories with their checkpoints, for recovery."""
        clean = self._clean or [False] * len(self.paths)
        cut = self._config["odradek.recovery.on.corruption"] == "cut"
        return [LogDir.read(path, left, cut) for path, left in zip(self.paths, clean, strict=True)]

    def _resolve(self, topic: str, index: int) -> PartitionLocation | None:
        info = self.snapshot.partition(topic, index)
        if info is None or info.slot < 0:
            return None
        return PartitionLocation(self.snapshot.topics[topic].id, info.slot, info.incarnation, self.paths[info.log_dir])

    def _configure(self, topic: str) -> LogConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = LogConfig.resolve(self.snapshot.topic_config(topic))
        return config
