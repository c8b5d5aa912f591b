"""Compare acknowledged records with the log: lost, duplicated, out of order, or gaps in the offsets.

One partition at a time, in arrays, so that a soak of hours fits too. Nothing here talks to a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

READ = np.dtype([("offset", "<i8"), ("digest", "<u8"), ("user", "<u8"), ("number", "<i8"), ("idempotent", "?")])
EXAMPLES = 3


@dataclass
class Findings:
    """The result of a comparison. `faults` are sentences; without any, the broker kept its guarantees."""

    acked: int = 0
    read: int = 0
    partitions: int = 0
    retried: int = 0
    groups: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One line for readers."""
        if self.faults:
            return f"NOT KEPT: {len(self.faults)} faults, {self.acked:,} records acknowledged, {self.read:,} read"
        if not self.acked:
            return "NOTHING TO COMPARE: no record was acknowledged"
        extra = f"; {self.retried:,} duplicated by producers that are not idempotent" if self.retried else ""
        groups = f"; {len(self.groups)} groups skipped nothing" if self.groups else ""
        return (
            f"kept: all {self.acked:,} acknowledged records are there, none duplicated, in order ({self.read:,} read "
            f"from {self.partitions} partitions{groups}{extra})"
        )

    @property
    def kept(self) -> bool:
        """True when records were acknowledged and all guarantees hold."""
        return self.acked > 0 and not self.faults


def partition(findings: Findings, where: str, acked: np.ndarray, read: np.ndarray) -> None:
    """Compare one partition's ledger rows with all its records in offset order; record the result in `findings`."""
    findings.partitions += 1
    findings.acked += len(acked)
    findings.read += len(read)
    findings.retried += len(_doubled(read[~read["idempotent"]]))
    findings.faults += [f"{where}: {fault}" for fault in _faults(acked, read)]


def group(findings: Findings, name: str, where: str, runs: np.ndarray) -> None:
    """Check that a group skipped no offset of a partition, up to its position; it may read some twice."""
    findings.groups.add(name)
    runs = np.sort(runs, order="first")
    reached = np.maximum.accumulate(np.concatenate([[0], runs["last"] + 1]))[:-1]
    holes = reached[runs["first"] > reached]
    findings.faults += [f"{where}: {fault}" for fault in _say(f"gaps in what {name} read, at offsets", holes)]


def _faults(acked: np.ndarray, read: np.ndarray) -> Iterator[str]:
    promised = read[read["idempotent"]]
    yield from _say("acknowledged records are lost, at offsets", _lost(acked, read)["offset"])
    yield from _say("offsets do not follow the one before, at", _holes(read))
    yield from _say("records of idempotent users are duplicated, at offsets", _doubled(promised)["offset"])
    yield from _say("records of idempotent users are out of order, at offsets", _disordered(promised)["offset"])


def _say(what: str, offsets: np.ndarray) -> Iterator[str]:
    if len(offsets):
        few = ", ".join(str(offset) for offset in offsets[:EXAMPLES])
        yield f"{len(offsets):,} {what} {few}{'…' if len(offsets) > EXAMPLES else ''}"


def _lost(acked: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Rows whose offset is missing, or has another value: two rows for one offset are a loss too."""
    if not len(read):
        return acked
    at = np.minimum(np.searchsorted(read["offset"], acked["offset"]), len(read) - 1)
    same = (read["offset"][at] == acked["offset"]) & (read["digest"][at] == acked["digest"])
    lost: np.ndarray = acked[~same]
    return lost


def _holes(read: np.ndarray) -> np.ndarray:
    """Offsets that do not follow the previous one; no topic is compacted or transactional here."""
    holes: np.ndarray = read["offset"][1:][np.diff(read["offset"]) != 1]
    return holes


def _doubled(read: np.ndarray) -> np.ndarray:
    """Records whose user and number came before; a retry stays in its partition."""
    by_number = read[np.lexsort((read["offset"], read["number"], read["user"]))]
    again = (np.diff(by_number["number"]) == 0) & (by_number["user"][1:] == by_number["user"][:-1])
    doubled: np.ndarray = by_number[1:][again]
    return doubled


def _disordered(read: np.ndarray) -> np.ndarray:
    """Records after a later one of the same user; duplicates are another fault. Covers every key's order too."""
    by_user = read[np.lexsort((read["offset"], read["user"]))]
    back = (np.diff(by_user["number"]) < 0) & (by_user["user"][1:] == by_user["user"][:-1])
    disordered: np.ndarray = by_user[1:][back]
    return disordered
