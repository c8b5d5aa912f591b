"""The metadata region's versions, and the process table."""

from __future__ import annotations

import os

from odradek.ipc.processes import COLUMN, RUNNING
from odradek.ipc.roles import ACCEPTOR, BY_NAME, MAX_WORKERS, ROLES, SUPERVISOR, role_name, worker_role
from odradek.ipc.shm import Shared


def test_metadata_keeps_the_last_two_versions(any_machine: str, shared: Shared) -> None:
    assert shared.metadata.read() == (0, b"")
    for version in range(1, 6):
        shared.metadata.publish(version, b"x" * version)
        assert Shared.attach(shared.prefix).metadata.read() == (version, b"x" * version)
    left = [name for name in os.listdir("/dev/shm") if f"/{name}".startswith(shared.prefix + "meta-")]
    assert sorted(left) == [f"{shared.prefix[1:]}meta-{version}" for version in (4, 5)]


def test_overtaken_reader_reads_the_newer_version(shared: Shared) -> None:
    shared.metadata.publish(1, b"one")
    reader = Shared.attach(shared.prefix)
    seen = iter([1, 3, 3])
    shared.metadata.publish(2, b"two")
    shared.metadata.publish(3, b"three")

    class Stale(type(reader.metadata)):  # type: ignore[misc]  # a dynamic base class
        @property
        def version(self) -> int:
            return next(seen, 3)

    reader.metadata.__class__ = Stale
    assert reader.metadata.read() == (3, b"three")


def test_process_row_keeps_its_counters_across_starts(shared: Shared) -> None:
    table = shared.processes
    table.enter(9, RUNNING)
    table.row(9)[COLUMN["requests"]] += 5
    table.add(9, "requests")
    (row,) = Shared.attach(shared.prefix).processes.snapshot()
    assert (row["name"], row["pid"], row["state"], row["requests"]) == ("worker-1", os.getpid(), "running", 6)
    table.enter(9)
    assert (table.get(9, "starts"), table.get(9, "requests")) == (2, 6)


def test_role_of_the_supervisor_itself_is_hosted(shared: Shared) -> None:
    table = shared.processes
    for role in (SUPERVISOR, ACCEPTOR, 9):
        table.enter(role)
    table.set(9, "pid", 7)
    assert [table.is_hosted(role) for role in (SUPERVISOR, ACCEPTOR, 9)] == [False, True, False]


def test_role_names_and_numbers_agree() -> None:
    assert {role_name(role) for role in BY_NAME.values()} == set(BY_NAME)
    assert worker_role(MAX_WORKERS - 1) == ROLES - 1
    assert role_name(worker_role(3)) == "worker-3"
