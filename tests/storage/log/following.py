"""A follower's partition in a test's own shared memory, and the batches that a leader would send it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.storage.files import names
from odradek.storage.log import append_as_follower, read
from odradek.storage.log.partition import Partition
from odradek.storage.producers import snapshots
from odradek.storage.recovery import recovery
from odradek.storage.tools import check

from .. import logs
from ..live import NOW, Live, live

ALL = 1 << 60  # a high watermark beyond everything


@contextmanager
def follower(root: Path, **config: Any) -> Iterator[Live]:
    """`live`, but a follower, its log opened as a start opens it: there are files also before the first append."""
    with live(root, **config) as world:
        recovery.recover(root / "t-0", world.partition().config)
        world.partition().slot.update(state=slots.FOLLOWER)
        yield world


def receive(
    partition: Partition, data: bytes, hw: int = ALL, log_start: int = 0, now_ms: int = NOW
) -> int:  # fmt: skip
    """Append what a leader sent; the log end."""
    with partition.locked() as values:
        return append_as_follower.append(partition, values, data, hw, log_start, now_ms)


def sent(first: int, count: int = 1, **options: Any) -> bytes:
    """`count` batches of one record each, from offset `first`; timestamps rise."""
    return b"".join(logs.batch(n, **{"timestamp": NOW + n, **options}) for n in range(first, first + count))


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Batches as a leader's log has them: plain, idempotent, transactional, markers; epochs rise; gaps if compacted."""
    offset, epoch, gaps = 0, 0, draw(st.booleans())
    sequences: dict[int, int] = {}
    open_: set[int] = set()
    made = []
    for n in range(draw(st.integers(1, 30))):
        epoch += draw(st.sampled_from([0, 0, 0, 1, 3]))
        offset += draw(st.sampled_from([0, 0, 5])) if gaps else 0
        kind = draw(st.sampled_from(["plain", "plain", "idempotent", "begin", "commit", "abort"]))
        producer = draw(st.integers(1, 3))
        count = draw(st.integers(1, 3))
        options: dict[str, Any] = {"epoch": epoch, "timestamp": NOW + draw(st.integers(-5, 5)) * 1000 + n}
        if kind in ("commit", "abort"):
            data = bytearray(logs.marker(offset, producer, 0, commit=kind == "commit"))
            data[12:16] = epoch.to_bytes(4, "big")
            made.append(bytes(data))
            open_.discard(producer)
            offset += 1
            continue
        if kind != "plain" or producer in open_:
            if kind == "begin":
                open_.add(producer)
            options["producer"] = (producer, 0, sequences.get(producer, 0))
            options["attributes"] = 0x10 if producer in open_ else 0
            sequences[producer] = sequences.get(producer, 0) + count
        made.append(logs.batch(offset, count, size=draw(st.sampled_from([1, 50, 300, 900])), **options))
        offset += count
    return made


def stored(partition: Partition) -> bytes:
    """All batches of the log."""
    values, found = partition.slot.read(), []
    at, end = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])[0], values[slots.F_LEO]
    while piece := read.fetch(partition, values, at, end, 1 << 20):
        found.append(piece.read())
        at = piece.following
    return b"".join(found)


def faults(world: Live) -> list[str]:
    """The faults that `odradek check` finds, and the differences between the slot and a recovery of the same files."""
    directory = world.root / "t-0"
    found = [str(fault) for fault in check.check(directory, deep=True)]
    return found + differences(world)


def differences(world: Live) -> list[str]:
    partition = world.partition(6)
    state = partition.state()
    copy = world.root / "copy"
    os.makedirs(copy, exist_ok=True)
    for name in os.listdir(copy):
        os.unlink(copy / name)
    for name in os.listdir(partition.directory):
        if not name.endswith(names.DELETED):
            os.link(os.path.join(partition.directory, name), copy / name)
    base = state.active_base
    for kind in (names.LOG, names.INDEX, names.TIME_INDEX):  # recovery may cut those: they must not be the same files
        data = names.segment_path(copy, base, kind).read_bytes()
        os.unlink(names.segment_path(copy, base, kind))
        names.segment_path(copy, base, kind).write_bytes(data)
    found = recovery.recover(copy, partition.config, log_start=state.log_start, recovery_point=0)
    there = {
        "log_start": found.log_start, "leo": found.leo, "active_base": base, "active_size": found.active_size,
        "index_entries": found.index_entries, "time_entries": found.time_entries,
        "max_timestamp": found.max_timestamp, "index_pending": found.index_pending,
        "active_since": found.active_first_timestamp, "unstable": found.first_unstable, "pstate_leo": found.leo,
    }  # fmt: skip
    wrong = [f"{name} is {getattr(state, name)}, recovery finds {value}" for name, value in there.items()
             if getattr(state, name) != value]  # fmt: skip
    with partition.locked() as values:
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        known = snapshots.decode(snapshots.encode_table(table)) if table is not None else {}
    if {pid: _essence(one) for pid, one in known.items()} != {
        pid: _essence(one) for pid, one in found.producers.items()
    }:
        wrong.append(f"producers are {known}, recovery finds {found.producers}")
    return wrong


def _essence(entry: Any) -> tuple[Any, ...]:
    """With the last batch that has sequences: the table keeps no others; snapshots neither former ones nor its time."""
    batches = [tuple(one)[:4] for one in entry.batches if one.first_seq >= 0]
    return entry.epoch, entry.coordinator_epoch, entry.timestamp, entry.txn_first_offset, batches[-1:]
