"""All partitions as one process sees them: the entry point for a worker, the coordinator and the janitor."""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from odradek.ipc import roles, slots
from odradek.ipc.doorbell import Ringer
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.partition_counts import PartitionCounts
from odradek.ipc.shm import Shared
from odradek.ipc.slots import Fields
from odradek.storage.config import LogConfig
from odradek.storage.files import names
from odradek.storage.log import repair
from odradek.storage.log.partition import Partition

_FILES_EACH = 8  # descriptors that a partition in use holds, roughly; 15 at most


class PartitionLocation(NamedTuple):
    """The location of a partition in the metadata."""

    topic_id: bytes
    slot: int
    incarnation: int
    log_dir: str


class Log:
    """The partitions of this broker; `resolve` and `configure` read the current metadata snapshot."""

    def __init__(
        self,
        shared: Shared,
        rundir: str | os.PathLike[str],
        role: int,
        resolve: Callable[[str, int], PartitionLocation | None],
        configure: Callable[[str], LogConfig],
    ) -> None:
        self.shared = shared
        self.role = role
        self.pid = os.getpid()
        self.run_dir = rundir
        self.locks = PartitionLocks(os.path.join(rundir, "partition.lock"))
        self._ringer = Ringer(rundir)
        self.ring: Callable[[int], None] = self._ringer.ring
        self.counts: PartitionCounts | None = None  # of a process that serves clients
        self._resolve = resolve
        self._configure = configure
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._open: OrderedDict[Partition, None] = OrderedDict()
        self._limit = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4 // _FILES_EACH)

    def disk_failed(self, log_dir: int) -> None:
        """Have the janitor take all partitions of log directory number `log_dir` offline."""
        self.shared.fail_dir(log_dir)
        self.ring(roles.JANITOR)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition if this broker has it, else None."""
        key = (topic, index)
        partition = self._partitions.get(key)
        if partition is None:
            place = self._resolve(topic, index)
            if place is None:
                return None
            partition = self._partitions[key] = self._make(topic, index, place)
        return partition

    def state(self, topic: str, index: int) -> int:
        """The state of the partition's slot (ipc.slots); FREE when this broker does not have it."""
        place = self._resolve(topic, index)
        return slots.FREE if place is None else self.shared.slots[place.slot].read()[slots.F_STATE]

    def _make(self, topic: str, index: int, place: PartitionLocation) -> Partition:
        directory = os.path.join(place.log_dir, names.partition_dir(topic, index))
        slot = self.shared.slots[place.slot]
        config = self._configure(topic)
        partition = Partition(self, topic, index, place.topic_id, slot, place.incarnation, directory, config)
        if self.counts is not None:
            self.counts.claim(partition)
        return partition

    def refresh(self) -> None:
        """Apply changed metadata: drop partitions that were deleted or recreated, use the new configs."""
        for (topic, index), partition in list(self._partitions.items()):
            place = self._resolve(topic, index)
            if place is None or place.incarnation != partition.incarnation:
                partition.close_files()
                self._open.pop(partition, None)
                del self._partitions[(topic, index)]
            else:
                partition.config = self._configure(topic)

    def repair(self, partition: Partition, values: Fields, dirty: int) -> Fields:
        """Repair what the last holder of the lock left half done (storage.log.repair). Caller holds the lock."""
        return repair.repair(partition, values, dirty)

    def opened(self, partition: Partition) -> None:
        """Record that `partition` has opened files; above the limit, close those of the partition that opened first."""
        self._open[partition] = None
        if len(self._open) > self._limit:
            oldest, _ = self._open.popitem(last=False)
            oldest.close_files()

    def sweep(self) -> None:
        """Close files of former generations, to free the space of deleted segments."""
        for partition in [partition for partition in self._open if partition.outdated]:
            partition.close_files()
            del self._open[partition]

    def close(self) -> None:
        """Close all files, locks and the doorbell socket."""
        for partition in self._open:
            partition.close_files()
        self.locks.close()
        self._ringer.close()
