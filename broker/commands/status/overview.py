"""The report of `odradek status --cluster`: counts from the brokers' responses, and the faults of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from odradek.broker.commands._shared.client import Partition
from odradek.broker.commands._shared.partitions import names, plural
from odradek.broker.commands._shared.tables import MISSING, cell
from odradek.broker.process.status import table

ALIVE, SILENT, DEAD = "alive", "silent", "dead"  # silent: registered, but not answering
_SHOWN = 5  # partitions named for each fault
_COUNTS = ("led", "replicas", "out_of_sync", "under_replicated", "offline")


class Row(NamedTuple):
    """A partition from Metadata; `leader` is None without one, `adding` are replicas that a reassignment adds."""

    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]
    adding: Sequence[int]
    min_isr: int

    @property
    def is_under_replicated(self) -> bool:
        """As Kafka's tools count: replicas that a reassignment is adding do not count as missing."""
        return len(self.isr) < len(self.replicas) - len(self.adding)


class Dir(NamedTuple):
    """A log directory: bytes of its .log files, total and free bytes of its disk (-1: unknown). `error` or None."""

    path: str
    error: str | None
    bytes: int
    disk_bytes: int
    free_bytes: int


class Node(NamedTuple):
    """A registered broker and its log directories, None when it does not answer."""

    address: str
    rack: str | None
    dirs: Sequence[Dir] | None


@dataclass
class BrokerLine:
    """One broker. `under_replicated` counts partitions that it leads; `out_of_sync` and `offline` count its own
    replicas."""

    id: int
    state: str
    address: str | None
    rack: str | None
    led: int
    replicas: int
    out_of_sync: int
    under_replicated: int
    offline: int
    log_bytes: int | None
    log_dirs: list[dict[str, Any]]


@dataclass
class Overview:
    """The cluster. `controller` is -1 without one; `controller_epoch` is None when it is unknown."""

    wrong: list[str]
    cluster_id: str | None
    controller: int
    controller_epoch: int | None
    brokers: list[BrokerLine]
    topics: int
    partitions: int
    without_leader: int
    under_min_isr: int
    under_replicated: int
    being_moved: int

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def overview(
    rows: Mapping[Partition, Row], nodes: Mapping[int, Node], cluster_id: str | None, controller: int, epoch: int | None
) -> Overview:
    """The overview from these facts. Brokers that are not registered are known from their replicas."""
    ids = sorted({*nodes, *(broker for row in rows.values() for broker in row.replicas)})
    brokers = [_line(broker, nodes.get(broker), rows.values()) for broker in ids]
    without = [one for one, row in rows.items() if row.leader not in nodes]
    few = [one for one, row in rows.items() if len(row.isr) < row.min_isr]
    fewer = [one for one, row in rows.items() if row.is_under_replicated]
    return Overview(
        [
            *_of_controller(controller, nodes),
            *_of_brokers(brokers),
            *_of_partitions("no leader", without),
            *_of_partitions("fewer replicas in sync than min.insync.replicas", few),
            *_of_partitions("replicas that are not in sync", fewer),
        ],
        cluster_id, controller, epoch, brokers, len({topic for topic, _ in rows}), len(rows), len(without), len(few),
        len(fewer), sum(bool(row.adding) for row in rows.values()),
    )  # fmt: skip


def _line(broker: int, node: Node | None, rows: Iterable[Row]) -> BrokerLine:
    mine = [row for row in rows if broker in row.replicas]
    led = [row for row in mine if row.leader == broker and node is not None]
    dirs = None if node is None else node.dirs
    return BrokerLine(
        broker,
        DEAD if node is None else SILENT if dirs is None else ALIVE,
        node and node.address,
        node and node.rack,
        len(led),
        len(mine),
        sum(broker not in row.isr and broker not in row.adding for row in mine),
        sum(row.is_under_replicated for row in led),
        sum(node is None or broker in row.offline for row in mine),
        None if dirs is None else sum(one.bytes for one in dirs),
        [one._asdict() for one in dirs or ()],
    )


# -- faults


def _of_controller(controller: int, nodes: Mapping[int, Node]) -> Iterator[str]:
    if controller not in nodes:
        yield "the cluster has no active controller"


def _of_brokers(brokers: Iterable[BrokerLine]) -> Iterator[str]:
    for one in brokers:
        if one.state == DEAD:
            yield f"broker {one.id} is dead and has {one.replicas} replica{_s(one.replicas)}"
        elif one.state == SILENT:
            yield f"broker {one.id} at {one.address} does not respond"
        for folder in one.log_dirs:
            if folder["error"]:
                yield f"log directory {folder['path']} of broker {one.id} is offline: {folder['error']}"


def _of_partitions(fault: str, found: Sequence[Partition]) -> Iterator[str]:
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield f"{len(found)} partition{plural(found)} with {fault}: {names(sorted(found)[:_SHOWN], ', ')}{more}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# -- output as text


def render(seen: Overview) -> str:
    """The faults, the controller, each broker, and totals, as text."""
    wrong = [f"WRONG: {text}" for text in seen.wrong] or ["nothing is wrong"]
    return "\n".join([*wrong, "", _head(seen), "", table(_cells(seen))])


def _head(seen: Overview) -> str:
    alive = sum(one.state == ALIVE for one in seen.brokers)
    moved = f", {seen.being_moved} being reassigned" if seen.being_moved else ""
    return (
        f"cluster {cell(seen.cluster_id)}; {alive} of {len(seen.brokers)} brokers alive; "
        f"controller {seen.controller if seen.controller >= 0 else MISSING}, epoch {cell(seen.controller_epoch)}\n"
        f"{seen.topics} topic{_s(seen.topics)}, {seen.partitions} partition{_s(seen.partitions)}{moved}"
    )


def _cells(seen: Overview) -> list[list[str]]:
    rows = [["BROKER", "ADDRESS", "RACK", "STATE", *(name.upper().replace("_", " ") for name in _COUNTS), "LOG SIZE"]]
    for one in seen.brokers:
        counts = [f"{getattr(one, name):,}" for name in _COUNTS]
        rows.append([str(one.id), cell(one.address), cell(one.rack), one.state, *counts, _size(one.log_bytes)])
    sums = [f"{sum(getattr(one, name) for one in seen.brokers):,}" for name in _COUNTS]
    known = [one.log_bytes for one in seen.brokers if one.log_bytes is not None]
    rows.append(["all", "", "", "", *sums, _size(sum(known))])
    return rows


def _size(count: int | None) -> str:
    return MISSING if count is None else f"{count / 1e6:,.1f} MB"
