"""What is wrong with the broker, as a sample of it shows."""

from __future__ import annotations

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.scrape import Flags, Sample, count
from odradek.broker.findings import findings, gather, partition_faults
from odradek.broker.findings.facts import EXAMINED, Affected
from odradek.broker.findings.findings import Finding
from odradek.ipc import slots
from odradek.ipc.shm import Shared


def find(config: BrokerConfig, shared: Shared, sample: Sample) -> list[Finding]:
    """All findings, worst first."""
    rows = [{**one.counters, "alive": one.alive} for one in sample.processes]
    recovering = count(sample.in_state(slots.RECOVERING))
    return findings.find(gather.facts(config, shared, sample.snapshot, rows, recovering, _faults(sample)))


def _faults(sample: Sample) -> dict[str, Affected]:
    flags = {
        "offline": sample.in_state(slots.OFFLINE),
        "leaderless": sample.layout.leaders < 0,
        "under_min_isr": sample.under_min_isr,
        "at_min_isr": sample.at_min_isr & sample.under_replicated,
        "under_replicated": sample.under_replicated,
    }
    found = {fault: (count(of), _names(sample, of)) for fault, of in flags.items() if of.any()}
    return partition_faults.affected(sample.snapshot, found)


def _names(sample: Sample, flags: Flags) -> list[tuple[str, int]]:
    return [sample.layout.names[at] for at in flags.nonzero()[0][:EXAMINED].tolist()]
