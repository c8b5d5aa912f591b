"""All partitions of this broker, for processes that look after them rather than serve clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from odradek.broker.config import BrokerConfig
from odradek.cluster.snapshot import Snapshot
from odradek.ipc import slots
from odradek.ipc.shm import Shared
from odradek.storage.config import LogConfig
from odradek.storage.log import Log, Place
from odradek.storage.opening import LogDir
from odradek.storage.partition import Partition


class Partitions:
    """`storage.log.Log` over the current metadata snapshot; call `follow` now and then."""

    def __init__(self, shared: Shared, run_dir: Path, config: BrokerConfig, role: int) -> None:
        self._shared = shared
        self._config = config
        self.snapshot = Snapshot.empty(config)
        self._names: dict[int, tuple[str, int]] = {}  # by slot
        self.log = Log(shared, run_dir, role, self._resolve, self._configure)

    def follow(self) -> bool:
        """Take over a new metadata version; whether there was one."""
        if self._shared.metadata.version == self.snapshot.version:
            return False
        version, blob = self._shared.metadata.read()
        if not version:
            return False
        self.snapshot = Snapshot.parse(blob, self._config)
        own = self._config["broker.id"]
        named = self.snapshot.slots().items()
        self._names = {slot: (topic, index) for slot, (topic, index, info) in named if own in info.replicas}
        self.log.refresh()
        return True

    def names(self) -> list[tuple[str, int]]:
        """(topic, partition) of all that this broker has a replica of."""
        return list(self._names.values())

    def __iter__(self) -> Iterator[Partition]:
        return self.at(self._names)

    def at(self, slot_numbers: Iterable[int]) -> Iterator[Partition]:
        """The partitions at some slots; slots of none are passed over."""
        for slot in slot_numbers:
            name = self._names.get(slot)
            partition = self.log.get(*name) if name else None
            if partition is not None:
                yield partition

    def unflushed(self) -> Iterator[Partition]:
        """Those whose log end is not on the disk yet; found by one comparison over all slots."""
        table = self._shared.slots
        for chunk in range(table.capacity // slots.CHUNK):
            rows = (table.column(slots.F_LEO, chunk) > table.column(slots.F_FLUSHED, chunk)).nonzero()[0]
            yield from self.at((rows + chunk * slots.CHUNK).tolist())

    def changed(self, known: Mapping[int, tuple[int, int]]) -> Iterator[Partition]:
        """Those whose (incarnation, generation) is not the one `known` for their slot."""
        table = self._shared.slots
        now: list[tuple[int, int]] = []
        for chunk in range(table.capacity // slots.CHUNK):
            columns = (table.column(field, chunk).tolist() for field in (slots.F_INCARNATION, slots.F_GENERATION))
            now.extend(zip(*columns, strict=True))
        return self.at([slot for slot in self._names if slot < len(now) and known.get(slot) != now[slot]])

    def log_dirs(self) -> list[LogDir]:
        """What the log directories' checkpoints say, for recovery."""
        clean = self._config.clean
        return [LogDir.read(path, clean[i] if clean else False) for i, path in enumerate(self._config.log_dirs)]

    def _resolve(self, topic: str, index: int) -> Place | None:
        info = self.snapshot.partition(topic, index)
        if info is None:
            return None
        log_dir = self._config.log_dirs[info.log_dir]
        return Place(self.snapshot.topics[topic].id, info.slot, info.incarnation, log_dir)

    def _configure(self, topic: str) -> LogConfig:
        return LogConfig.resolve(self.snapshot.topic_config(topic))
