"""Takes samples of the broker from its shared memory, its metadata and the kernel's process table.

Owner: the exporter process; writes nothing. What the metadata says is read once for each of its versions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from odradek.broker.exporter import partition_fields
from odradek.broker.exporter.group_lag import GroupLag, Lag
from odradek.broker.exporter.idleness import Idleness
from odradek.broker.exporter.layout import Layout
from odradek.broker.exporter.log_sizes import LogSizes, Sizes
from odradek.broker.exporter.partition_fields import Numbers
from odradek.broker.exporter.request_times import RequestTimes
from odradek.broker.exporter.text import LabelCache
from odradek.broker.exporter.traffic import Traffic, TrafficReader
from odradek.broker.findings.gather import not_serving
from odradek.broker.process.partitions import Partitions
from odradek.broker.process.process import Process
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import roles, slots
from odradek.ipc.processes import state_of
from odradek.storage.files.disks import DiskSpace, disk_space

Flags = NDArray[np.bool_]
SCRAPE_S = 0.5  # for a scrape to read commits that have come
SIZES_S = 0.05  # for log sizes, each second and each scrape


@dataclass
class ProcessSample:
    """One process of the broker: its row of the process table, and what the kernel says of it."""

    name: str
    alive: bool
    counters: Mapping[str, int | str]
    cpu_s: float = 0.0
    rss: int = 0
    files: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def state(self) -> str:
        """Of ipc.processes.STATES, or RETIRED."""
        return state_of(self.counters, self.alive)

    @property
    def is_worker(self) -> bool:
        """Whether it serves clients."""
        return self.role >= roles.FIRST_WORKER

    @property
    def role(self) -> int:
        """Its number (ipc.roles)."""
        return int(self.counters["role"])


@dataclass
class Sample:
    """The broker at one moment. `fields`: a row for each partition of `layout`, a column for each slot field."""

    broker: int
    snapshot: Snapshot
    layout: Layout
    fields: Numbers
    processes: list[ProcessSample]
    lags: list[Lag]
    members: Mapping[str, int]
    times: RequestTimes
    log_sizes: Sizes | None
    failed_dirs: int
    disks: Mapping[str, DiskSpace]
    idle: float
    labels: LabelCache
    traffic: Traffic

    def column(self, number: int) -> Numbers:
        """One field of all partitions."""
        found: Numbers = self.fields[:, number]
        return found

    def in_state(self, state: int) -> Flags:
        """Of each partition: whether its slot is in that state (ipc.slots)."""
        flags: Flags = self.column(slots.F_STATE) == state
        return flags

    @cached_property
    def leads(self) -> Flags:
        """Of each partition: whether this broker is the leader."""
        return self.in_state(slots.LEADER)

    @cached_property
    def under_replicated(self) -> Flags:
        """Of each partition that is led here: whether the ISR lacks a replica."""
        flags: Flags = self.leads & (self.layout.isr < self.layout.replicas)
        return flags

    @cached_property
    def under_min_isr(self) -> Flags:
        """Of each partition that is led here: whether acks=all is refused."""
        flags: Flags = self.leads & (self.column(slots.F_ISR_COUNT) < self.column(slots.F_MIN_ISR))
        return flags

    @cached_property
    def at_min_isr(self) -> Flags:
        """Of each partition that is led here: whether acks=all is refused once the ISR loses a member."""
        flags: Flags = self.leads & (self.column(slots.F_ISR_COUNT) == self.column(slots.F_MIN_ISR))
        return flags

    @cached_property
    def last_stable(self) -> Numbers:
        """The last stable offset of each partition (ipc.slots.last_stable)."""
        hw, unstable = self.column(slots.F_HW), self.column(slots.F_UNSTABLE)
        stable = np.maximum(self.column(slots.F_LOG_START), np.minimum(hw, unstable))
        return np.where(unstable < 0, hw, stable)

    @cached_property
    def log_bytes(self) -> Numbers | None:
        """Of each partition the bytes of its log; None before they are known."""
        if self.log_sizes is None:
            return None
        return np.array([self.log_sizes.get(name, 0) for name in self.layout.names], np.int64)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self.snapshot.controller_id == self.broker

    @property
    def replicated_in(self) -> int:
        """Bytes of records that the replicator has appended."""
        return sum(int(one.counters["bytes_in"]) for one in self.processes if one.role == roles.REPLICATOR)

    def total(self, counter: str) -> int:
        """The sum of a counter over all processes."""
        return sum(int(process.counters[counter]) for process in self.processes)


def _disks(log_dirs: Iterable[Path]) -> dict[str, DiskSpace]:
    """By log directory; without one that has just failed."""
    found = {}
    for log_dir in log_dirs:
        try:
            found[str(log_dir)] = disk_space(str(log_dir))
        except OSError:
            continue
    return found


def _cpu_of_workers(processes: list[ProcessSample]) -> dict[str, float]:
    return {one.name: one.cpu_s for one in processes if one.alive and one.is_worker}


def count(flags: Flags) -> int:
    """How many are set."""
    return int(np.count_nonzero(flags))


class Scraper:
    """Takes samples."""

    def __init__(self, process: Process) -> None:
        self._config = process.config
        self._shared = process.shared
        self._locks = process.locks
        self._partitions = Partitions(process.shared, process.run_dir, process.config, roles.EXPORTER)
        self._layout = Layout()
        self._labels = LabelCache()
        self._groups = GroupLag(self._partitions)
        self._times = RequestTimes(process.shared.prefix)
        self._traffic = TrafficReader(process.shared.prefix)
        self._sizes = LogSizes(self._working_dirs)
        self._idleness = Idleness()
        self._known: dict[int, psutil.Process] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The metadata as it was last read."""
        return self._partitions.snapshot

    def take(self) -> Sample:
        """The broker as it is now."""
        self.follow(SCRAPE_S)
        return self._sample(groups=True)

    def look(self, groups: bool) -> Sample:
        """The same for `odradek top`: without request times and log sizes, and groups only if wanted."""
        self._follow_metadata()
        if groups:
            self._groups.committed.follow(SCRAPE_S)
        return self._sample(groups)

    def _sample(self, groups: bool) -> Sample:
        processes = [self._process(row) for row in self._shared.processes.snapshot()]
        return Sample(
            broker=self._config["broker.id"],
            snapshot=self._partitions.snapshot,
            layout=self._layout,
            fields=self._fields(),
            processes=processes,
            lags=self._groups.measure(time.time_ns() // 1_000_000) if groups else [],
            members=self._groups.committed.members() if groups else {},
            times=self._times,
            log_sizes=self._sizes.sizes,
            failed_dirs=len(self._shared.failed_dirs()),
            disks=_disks(self._working_dirs()),
            idle=self._idleness.share(time.monotonic(), _cpu_of_workers(processes)),
            labels=self._labels,
            traffic=self._traffic.read(self._layout, self._counting(), self._chunks()),
        )

    def follow(self, seconds: float) -> None:
        """Take over what has changed since, for at most so long: call it often, so that a scrape has little to do."""
        self._follow_metadata()
        self._groups.committed.follow(seconds)
        self._times.follow(time.monotonic(), self._workers())
        self._sizes.follow(SIZES_S)

    def _follow_metadata(self) -> None:
        if self._partitions.follow():
            former, self._layout = self._layout, Layout.of(self._partitions.snapshot)
            ids = {topic.id for topic in self._partitions.snapshot.topics.values()}
            self._traffic.moved(former, self._layout, ids, self._counting(), self._chunks())

    def _working_dirs(self) -> list[Path]:
        """The log directories but for those whose disks have failed: these may never answer."""
        failed = self._shared.failed_dirs()
        return [Path(log_dir) for number, log_dir in enumerate(self._config.log_dirs) if number not in failed]

    def _workers(self) -> list[int]:
        """The roles that have had a worker."""
        rows = self._shared.processes.snapshot()
        return [role for row in rows if (role := int(row["role"])) >= roles.FIRST_WORKER]

    def _counting(self) -> list[int]:
        """The roles whose processes count what clients do."""
        return [roles.COORDINATOR, *self._workers()]

    def _chunks(self) -> int:
        """The number of chunks of the slot table that partitions have used here."""
        highest = int(self._layout.slots.max(initial=-1))
        return max(self._shared.slots.capacity // slots.CHUNK, highest // slots.CHUNK + 1)

    def _fields(self) -> Numbers:
        """All zero for a partition whose slot belongs to another since its topic was deleted."""
        fields = partition_fields.read(self._shared.slots, self._layout.slots)
        fields[fields[:, slots.F_INCARNATION] != self._layout.incarnations] = 0
        return fields

    def not_ready(self) -> str:
        """Why the broker serves no clients; empty when it does."""
        rows = self._shared.processes.snapshot()
        return not_serving([{**row, "alive": self._locks.alive(int(row["role"]))} for row in rows])

    def _process(self, row: Mapping[str, int | str]) -> ProcessSample:
        sample = ProcessSample(str(row["name"]), self._locks.alive(int(row["role"])), row)
        if sample.alive and not self._shared.processes.is_hosted(sample.role):
            try:
                self._ask_kernel(sample, int(row["pid"]))
            except psutil.Error:
                sample.alive = False
        return sample

    def _ask_kernel(self, sample: ProcessSample, pid: int) -> None:
        process = self._known.get(pid)
        if process is None or not process.is_running():
            process = self._known[pid] = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            sample.cpu_s = times.user + times.system
            sample.rss = process.memory_info().rss
            sample.files = process.num_fds()
            disk = process.io_counters()
            sample.read_bytes, sample.written_bytes = disk.read_bytes, disk.write_bytes
