"""The state of a running broker, read from its shared memory only: without requests, without locks."""

from __future__ import annotations

import mmap
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.findings import findings, gather, partition_faults
from odradek.broker.findings.findings import Finding
from odradek.broker.process import process
from odradek.broker.process.partitions import Partitions
from odradek.ipc import roles, rundir, slots
from odradek.ipc.processes import RETIRED, state_of
from odradek.ipc.region import RegionError
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.storage.log.partition import Partition

__all__ = ["Observer", "RegionError", "Sample", "render", "table"]

STATES = ("free", "recovering", "leader", "follower", "offline", "deleting")
_NAMED = 10  # logs in a line
RATES = ("requests", "messages_in", "bytes_in", "bytes_out", "appends")


@dataclass
class Sample:
    """The broker at one moment. `processes` are rows of the process table, with `alive` from the role locks."""

    data_dir: str
    run_dir: str
    listeners: list[str]
    advertised: list[str]
    metadata_version: int
    ready: bool
    processes: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    findings: list[Finding] = field(default_factory=list)  # what is wrong, worst first
    starting: list[str] = field(default_factory=list)  # processes that do not serve yet
    recovering: list[str] = field(default_factory=list)  # logs that a start waits for
    unknown_retention: list[str] = field(default_factory=list)  # topics that were adopted without their configs
    certificate_days: float | None = None  # until the first certificate of the listeners expires
    rates: dict[str, float] = field(default_factory=dict)
    taken: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """All fields but those that only this module needs."""
        document = {**asdict(self), "findings": [one.as_json() for one in self.findings]}
        del document["taken"]
        return document


class Observer:
    """Attaches to a broker's shared memory to read it; writes nothing. Raises RegionError when it is gone."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._shared = Shared.attach(rundir.shm_prefix(config.data_dir))
        self._locks = process.role_locks(config)
        self._partitions = Partitions(self._shared, Path(config.run_dir), config, roles.SUPERVISOR)

    def sample(self, former: Sample | None = None) -> Sample:
        """Take a sample; with a `former` one it has rates, in units a second."""
        self._partitions.follow()
        partitions = [(one, one.slot.read()) for one in self._partitions]
        rows = [self._process(row) for row in self._shared.processes.snapshot()]
        now = Sample(
            data_dir=self._config.data_dir,
            run_dir=str(self._config.run_dir),
            listeners=[str(endpoint) for endpoint in self._config.listeners],
            advertised=[str(endpoint) for endpoint in self._config.advertised],
            metadata_version=self._shared.metadata.version,
            ready=not gather.not_serving(rows),
            processes=rows,
            partitions=[_partition(one, SlotState._make(values)) for one, values in partitions],
            starting=[row["name"] for row in rows if row["state"] == "starting"],
            recovering=[self._partitions.name_at(slot) for slot in self._shared.slots.numbers(slots.RECOVERING)],
            unknown_retention=gather.retention_unknown(self._partitions.snapshot),
            certificate_days=gather.certificate_days(rows, time.time()),
            taken=time.monotonic(),
        )
        faults = partition_faults.find(self._partitions.snapshot, partitions)
        facts = gather.facts(self._config, self._shared, self._partitions.snapshot, rows, len(now.recovering), faults)
        now.findings = findings.find(facts)
        if former is not None:
            now.rates = _rates(former, now)
        return now

    def _process(self, row: dict[str, Any]) -> dict[str, Any]:
        alive = self._locks.alive(row["role"])
        rss = 0 if self._shared.processes.is_hosted(row["role"]) else _rss(row["pid"], alive)
        return {**row, "alive": alive, "state": state_of(row, alive), "rss": rss}


def _rss(pid: int, alive: bool) -> int:
    """Resident bytes, shared memory included; 0 when there is no such process."""
    if not alive:
        return 0
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * mmap.PAGESIZE


def _partition(partition: Partition, state: SlotState) -> dict[str, Any]:
    if state.incarnation != partition.incarnation:
        return {"topic": partition.topic, "partition": partition.index, "state": STATES[5]}
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "state": STATES[state.state],
        "leader_epoch": state.leader_epoch,
        "log_start": state.log_start,
        "high_watermark": state.hw,
        "log_end": state.leo,
        "flushed": state.flushed,
        "active_segment": state.active_base,
        "active_bytes": state.active_size,
        "log_dir": state.log_dir,
    }


def _rates(former: Sample, now: Sample) -> dict[str, float]:
    seconds = max(1e-6, now.taken - former.taken)
    return {name: max(0.0, _total(now, name) - _total(former, name)) / seconds for name in RATES}


def _total(sample: Sample, column: str) -> float:
    counts: list[float] = [row[column] for row in sample.processes]
    return sum(counts)


def render(sample: Sample, most_partitions: int = 20) -> str:
    """The screen of `odradek status`: what is wrong, rates, processes, and the partitions with the longest logs."""
    parts = [
        *findings.lines(sample.findings),
        "",
        f"{'serving' if sample.ready else 'NOT SERVING'} on {', '.join(sample.listeners)}; data in {sample.data_dir}",
        *_waiting_lines(sample),
        _rates_line(sample),
        "",
        table(_process_cells(sample)),
        "",
        _partitions_line(sample),
    ]
    if sample.certificate_days is not None:
        parts.append(f"the first certificate of the listeners expires in {sample.certificate_days:.0f} days")
    if sample.partitions:
        longest = sorted(sample.partitions, key=lambda one: -one.get("log_end", 0))
        parts += ["", table(_partition_cells(longest[:most_partitions]))]
    return "\n".join(parts)


def _waiting_lines(sample: Sample) -> list[str]:
    """What a start waits for, if anything: first the logs, then the processes that wait for them."""
    if not sample.starting:
        return []
    logs = sample.recovering[:_NAMED]
    more = f" and {len(sample.recovering) - len(logs)} more" if len(sample.recovering) > len(logs) else ""
    recovering = [f"to recover: {', '.join(logs)}{more}"] if logs else []
    return [*recovering, f"starting: {', '.join(sample.starting)}"]


def _rates_line(sample: Sample) -> str:
    rates = sample.rates or dict.fromkeys(RATES, 0.0)
    return (
        f"{rates['requests']:,.0f} requests/s, {rates['messages_in']:,.0f} messages/s in, "
        f"{rates['bytes_in'] / 1e6:,.2f} MB/s in, {rates['bytes_out'] / 1e6:,.2f} MB/s out"
    )


def _partitions_line(sample: Sample) -> str:
    counts = {state: sum(one["state"] == state for one in sample.partitions) for state in STATES}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(sample.partitions)} partitions" + (f": {states}" if states else "")


def _process_cells(sample: Sample) -> list[list[str]]:
    now_ms = time.time_ns() // 1_000_000
    rows = [["PROCESS", "PID", "STATE", "UP", "STARTS", "CONNECTIONS", "REQUESTS", "MESSAGES IN", "ERRORS", "RSS"]]
    for row in sample.processes:
        if row["state"] == RETIRED:
            continue
        up = _duration((now_ms - row["started_ms"]) / 1000) if row["alive"] else "-"
        counters = (row[name] for name in ("starts", "connections", "requests", "messages_in", "errors"))
        pid = str(row["pid"]) if row["alive"] else "-"
        memory = f"{row['rss'] / 1048576:.0f} MiB" if row["rss"] or not row["alive"] else "-"
        rows.append([row["name"], pid, row["state"], up, *(f"{value:,}" for value in counters), memory])
    return rows


def _partition_cells(partitions: list[dict[str, Any]]) -> list[list[str]]:
    columns = ("state", "log_start", "high_watermark", "log_end", "flushed", "active_bytes")
    rows = [["PARTITION", *(name.upper().replace("_", " ") for name in columns)]]
    for one in partitions:
        cells = (one.get(name, "-") for name in columns)
        rows.append([f"{one['topic']}-{one['partition']}", *(_cell(cell) for cell in cells)])
    return rows


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d"
    return f"{hours}:{minutes:02}:{rest:02}"


def table(rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell; the first flush left, numbers flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip())
    return "\n".join(lines)
