"""What the supervisor does in an upgrade before it replaces anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from odradek.broker.errors import OdradekError
from odradek.broker.process import versions
from odradek.broker.rolling.helper_roll import HelperRoll
from odradek.broker.rolling.roll import Phase
from odradek.broker.rolling.rolling_upgrade import RollingUpgrade, refusal
from odradek.ipc.processes import TABLE_WORDS, ProcessTable
from odradek.ipc.roles import CONTROLLER, FIRST_WORKER, JANITOR


class Spawner:
    """The installed code, which can be imported."""

    exists = True
    closed = False

    def __init__(self) -> None:
        self.versions: dict[str, object] = dict(versions.here())

    def __call__(self, role: int, run_dir: Path, sockets: Sequence[tuple[str, int]] = ()) -> int:
        raise AssertionError("the supervisor starts processes in its own turn")

    def is_ready(self) -> bool:
        return True

    def check(self) -> None:
        """Nothing has died."""

    def close(self) -> None:
        self.closed = True


class Workers:
    """A broker with one worker, and with what an earlier `odradek scale` has left."""

    def __init__(self) -> None:
        self.wanted: list[int] = []
        self.retires = False
        self.refused = ""

    def workers(self) -> set[int]:
        return {FIRST_WORKER}

    def helpers(self) -> set[int]:
        return {JANITOR}

    def want(self, role: int) -> None:
        self.wanted.append(role)

    def unwant(self, role: int, end: bool) -> None:
        self.wanted.remove(role)

    def kill(self, role: int) -> None:
        raise AssertionError("nothing is stuck")

    def runs(self, role: int) -> bool:
        return False

    def retiring(self) -> bool:
        return self.retires

    def refusal(self, role: int) -> str:
        return self.refused if role == CONTROLLER else ""

    def end(self, role: int) -> bool:
        raise AssertionError("the workers come first")


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def spawner() -> Spawner:
    return Spawner()


@pytest.fixture
def upgrade(workers: Workers, spawner: Spawner, tmp_path: Path) -> Iterator[RollingUpgrade[Spawner]]:
    made = RollingUpgrade(tmp_path, workers, lambda: spawner, lambda _: None, 30.0)
    yield made
    made.close()


def test_workers_that_retire_have_their_numbers_until_they_have_ended(
    upgrade: RollingUpgrade[Spawner], workers: Workers
) -> None:
    workers.retires = True
    upgrade.begin()
    upgrade.turn()
    assert (upgrade.state()["phase"], workers.wanted) == (Phase.IMPORTING.value, [])
    workers.retires = False
    upgrade.turn()
    assert workers.wanted == [FIRST_WORKER + 1]


@pytest.mark.parametrize("installed", [{}, {"layout": 99, "messages": versions.MESSAGES}])
def test_code_of_another_layout_starts_nothing_and_its_fork_server_ends(
    upgrade: RollingUpgrade[Spawner], workers: Workers, spawner: Spawner, installed: dict[str, object]
) -> None:
    spawner.versions = installed
    upgrade.begin()
    upgrade.turn()
    assert not upgrade.active and "layout of shared memory" in str(upgrade.state()["error"])
    assert workers.wanted == [] and spawner.closed


def test_second_upgrade_is_refused_while_one_is_under_way(upgrade: RollingUpgrade[Spawner]) -> None:
    upgrade.begin()
    with pytest.raises(OdradekError, match="under way"):
        upgrade.begin()
    assert upgrade.active


def test_controller_without_zookeeper_is_not_replaced(upgrade: RollingUpgrade[Spawner], workers: Workers) -> None:
    """No other one could join: the broker would have none until ZooKeeper is back."""
    table = ProcessTable(memoryview(bytearray(8 * TABLE_WORDS)).cast("q"), 0)
    assert refusal(table, CONTROLLER) == ""
    table.set(CONTROLLER, "zookeeper_lost_ms", 5)
    assert refusal(table, JANITOR) == ""
    workers.refused = refusal(table, CONTROLLER)
    upgrade.begin()
    upgrade._helpers = HelperRoll([CONTROLLER])
    upgrade._apply_helpers(upgrade._helpers.begin())
    assert "zookeeper.connect" in str(upgrade.state()["error"])
    assert upgrade.spawner_of(CONTROLLER) is None and not upgrade.replaces(CONTROLLER)
