"""Units of systemd as the processes of an upgrade: which have ended, and what is asked of systemd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.errors import OdradekError
from odradek.broker.rolling import units
from odradek.broker.rolling.units import Units
from odradek.ipc import processes, roles
from odradek.ipc.locks import RoleLocks
from odradek.ipc.processes import TABLE_WORDS, ProcessTable

A, B, SPARE = (roles.FIRST_WORKER + number for number in range(3))


class Broker:
    """Processes that this one stands in for: a role lives while its byte is held."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "roles.lock"
        self.table = ProcessTable(memoryview(bytearray(8 * TABLE_WORDS)).cast("q"), 0)
        self.held: dict[int, RoleLocks] = {}
        self.asked: list[tuple[str, ...]] = []

    def start(self, role: int) -> None:
        self.hold(role)
        self.table.enter(role, processes.RUNNING)

    def hold(self, role: int) -> None:
        """The first thing that a process does; its row is still that of the one before."""
        self.held[role] = RoleLocks(self.path)
        assert self.held[role].hold(role)

    def end(self, role: int) -> None:
        self.held.pop(role).close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    for role in (roles.JANITOR, A, B):
        made.start(role)
    yield made
    for role in list(made.held):
        made.end(role)


@pytest.fixture
def upgraded(broker: Broker) -> Units:
    return Units(RoleLocks(broker.path), broker.table, lambda *words: broker.asked.append(words))


def test_process_that_systemd_has_started_again_meanwhile_counts_as_ended_once(broker: Broker, upgraded: Units) -> None:
    broker.end(roles.JANITOR)
    broker.start(roles.JANITOR)
    broker.end(A)
    assert upgraded.deaths() == [roles.JANITOR, A]
    assert upgraded.deaths() == []
    assert upgraded.runs(roles.JANITOR) and not upgraded.runs(A)
    broker.start(A)
    assert upgraded.deaths() == []


def test_process_that_has_not_entered_its_row_yet_is_no_second_end(broker: Broker, upgraded: Units) -> None:
    """Nor does the row of the one before, which was killed, say that it runs."""
    broker.end(roles.JANITOR)
    assert upgraded.deaths() == [roles.JANITOR]
    broker.hold(roles.JANITOR)
    assert upgraded.deaths() == []
    assert not upgraded.runs(roles.JANITOR)
    broker.table.enter(roles.JANITOR, processes.RUNNING)
    assert upgraded.deaths() == []
    assert upgraded.runs(roles.JANITOR)
    broker.end(roles.JANITOR)
    assert upgraded.deaths() == [roles.JANITOR]


def test_first_start_of_a_spare_worker_is_no_end(broker: Broker, upgraded: Units) -> None:
    broker.hold(SPARE)
    assert upgraded.deaths() == [] and not upgraded.runs(SPARE)
    broker.table.enter(SPARE, processes.RUNNING)
    assert upgraded.deaths() == [] and upgraded.runs(SPARE)


def test_process_replaced_between_two_looks_ends_once(broker: Broker, upgraded: Units) -> None:
    broker.end(A)
    broker.hold(A)
    found = upgraded.deaths()
    broker.table.enter(A, processes.RUNNING)
    assert found + upgraded.deaths() + upgraded.deaths() == [A]


def test_worker_that_is_dead_for_a_moment_is_wanted(broker: Broker) -> None:
    """One that has drained is not: its unit was stopped."""
    broker.end(A)
    assert Units(RoleLocks(broker.path), broker.table).workers() == {A, B}
    broker.table.set(A, "is_retired", 1)
    assert Units(RoleLocks(broker.path), broker.table).workers() == {B}


def test_only_the_unit_of_a_spare_worker_is_stopped_when_it_has_ended(broker: Broker, upgraded: Units) -> None:
    """Of the others systemd starts the next process."""
    upgraded.want(SPARE)
    broker.start(SPARE)
    upgraded.unwant(A, False)
    for role in (A, roles.JANITOR, SPARE):
        upgraded.stop_spare(role)
    assert broker.asked.pop(0)[0] == "is-active"
    assert broker.asked == [("start", "--no-block", "--job-mode=fail", "odradek-worker@2.service")]
    upgraded.unwant(SPARE, False)
    upgraded.stop_spare(SPARE)
    assert broker.asked[1:] == [("stop", "--no-block", "odradek-worker@2.service")]


def test_nothing_is_started_of_a_broker_that_was_stopped(broker: Broker) -> None:
    def stopped(*words: str) -> None:
        broker.asked.append(words)
        if words[0] == "is-active":
            raise OdradekError("3")

    found = Units(RoleLocks(broker.path), broker.table, stopped)
    for begin in (found.want, found.end):
        with pytest.raises(OdradekError, match=r"odradek\.target is not active"):
            begin(SPARE)
    assert {words[0] for words in broker.asked} == {"is-active"}


def test_worker_that_drains_is_waited_for(broker: Broker, upgraded: Units) -> None:
    broker.table.set(B, "state", processes.DRAINING)
    assert upgraded.retiring()
    broker.end(B)
    assert not upgraded.retiring()


def test_second_upgrade_is_refused_until_the_first_command_ends(tmp_path: Path) -> None:
    with units._alone(tmp_path), pytest.raises(OdradekError, match="under way"), units._alone(tmp_path):
        pass
    with units._alone(tmp_path):
        pass
