"""All partitions of this broker, for processes that maintain them and serve no clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from odradek.broker.config import BrokerConfig
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import slots
from odradek.ipc.columns import Columns
from odradek.ipc.shm import Shared
from odradek.storage.log.partition import Partition
from odradek.workers.dispatch.catalog import Catalog


class Partitions(Catalog):
    """The catalog by slot, so that one comparison over all slots finds the few that need work."""

    def __init__(self, shared: Shared, run_dir: Path, config: BrokerConfig, role: int) -> None:
        super().__init__(shared, run_dir, role, config, config.log_dirs, config.clean)
        self._names: dict[int, tuple[str, int]] = {}
        self._used: list[int] = []
        self._columns = Columns(shared.slots)

    def follow(self) -> bool:
        """Apply a new metadata version; whether there was one. Writes nothing, as `odradek status` has no role."""
        version, blob = self._shared.metadata.read() if self.stale else (0, b"")
        if not version:
            return False
        self.snapshot = Snapshot.parse(blob, self._config)
        self._configs.clear()
        self._names = {slot: (topic, index) for topic, index, slot in self.snapshot.here()}
        self._used = sorted({slot // slots.CHUNK for slot in self._names})
        self.log.refresh()
        return True

    def at(self, slot_numbers: Iterable[int]) -> Iterator[Partition]:
        """The partitions at some slots; skips slots without a partition."""
        for slot in slot_numbers:
            name = self._names.get(slot)
            partition = self.log.get(*name) if name else None
            if partition is not None:
                yield partition

    def name_at(self, slot: int) -> str:
        """The name of a slot: `topic-partition`, or its number while the metadata has no partition there."""
        name = self._names.get(slot)
        return f"slot {slot}" if name is None else f"{name[0]}-{name[1]}"

    def unflushed(self) -> Iterator[Partition]:
        """Partitions whose log is not flushed up to its end."""
        for chunk in self._chunks():
            ends = zip(self._columns.get(slots.F_LEO, chunk), self._columns.get(slots.F_FLUSHED, chunk), strict=True)
            yield from self.at(chunk * slots.CHUNK + row for row, (leo, flushed) in enumerate(ends) if leo > flushed)

    def truncations(self) -> int:
        """The number of truncations so far; it may also change when a slot gets another partition."""
        return sum(sum(self._columns.get(slots.F_TRUNCATIONS, chunk)) for chunk in self._chunks())

    def changed(self, known: Mapping[int, tuple[int, int]]) -> Iterator[Partition]:
        """Partitions whose (incarnation, generation) differs from the one `known` for their slot."""
        now: dict[int, tuple[int, int]] = {}
        for chunk in self._chunks():
            columns = (self._columns.get(field, chunk) for field in (slots.F_INCARNATION, slots.F_GENERATION))
            now.update(enumerate(zip(*columns, strict=True), chunk * slots.CHUNK))
        return self.at([slot for slot in self._names if slot in now and known.get(slot) != now[slot]])

    def _chunks(self) -> list[int]:
        """The chunks of slots with partitions of this broker; most brokers use few of their chunks."""
        mapped = self._shared.slots.capacity // slots.CHUNK
        return [chunk for chunk in self._used if chunk < mapped]
