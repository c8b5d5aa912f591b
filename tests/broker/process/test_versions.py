"""What processes of two versions must agree on has a number that grows with it."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType

import pytest

from odradek.broker.process import versions
from odradek.cluster import internal
from odradek.ipc import (
    forward,
    handoff,
    latencies,
    metadata,
    partition_counts,
    processes,
    producers,
    quotas,
    region,
    replicas,
    roles,
    shm,
    slots,
    traffic,
)  # fmt: skip

LAYOUTS = (
    latencies,
    metadata,
    partition_counts,
    processes,
    producers,
    quotas,
    region,
    replicas,
    roles,
    shm,
    slots,
    traffic,
)
MESSAGES = (forward, handoff, internal)
COMPATIBLE = {"COLUMNS", "COLUMN"}  # of ipc.processes: new ones take reserved words
RECORDED = {"layout": (4, 2907906968), "messages": (1, 4156986290)}


def digest(modules: tuple[ModuleType, ...]) -> int:
    """Of the constants of these modules that processes could disagree about."""
    found = [
        (module.__name__, name, value.format if isinstance(value, struct.Struct) else value)
        for module in modules
        for name, value in sorted(vars(module).items())
        if name.lstrip("_").isupper()
        and name not in COMPATIBLE
        and isinstance(value, int | str | bytes | tuple | struct.Struct)
    ]
    return zlib.crc32(repr(found).encode())


@pytest.mark.parametrize(("name", "modules"), [("layout", LAYOUTS), ("messages", MESSAGES)])
def test_constants_change_only_with_their_version(name: str, modules: tuple[ModuleType, ...]) -> None:
    """Could a process of the former version misread this one's? Then raise the number. Record the digest anyway."""
    number, recorded = RECORDED[name]
    assert versions.here()[name] == number
    assert digest(modules) == recorded, f"record {digest(modules)} here"


def test_columns_of_the_process_table_keep_their_places() -> None:
    """A new one is appended, in the words that were reserved."""
    assert processes.COLUMNS[:8] == (
        "pid", "state", "starts", "started_ms", "meta_version", "connections", "requests", "produce_requests",
    )  # fmt: skip
    assert processes.COLUMNS[21:24] == ("zookeeper_lost_ms", "unclean_elections", "retired")
    assert len(processes.COLUMNS) <= processes.ROW


def test_code_with_other_or_unknown_versions_is_named_in_a_line() -> None:
    here = versions.here()
    assert versions.difference({**here, "more": 1}) == ""
    for name in here:
        for other in ({**here, name: 99}, {key: value for key, value in here.items() if key != name}):
            line = versions.difference(other)
            assert line.startswith("the ") and "\n" not in line and "stop the broker" in line
