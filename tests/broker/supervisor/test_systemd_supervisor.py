"""The supervisor under systemd locks the log directories, and notices when none is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.errors import OdradekError
from odradek.broker.process import control_bus, dir_locks
from odradek.broker.process.control_bus import ControlError
from odradek.broker.process.dir_locks import LogDirLocks
from odradek.broker.supervisor.run_files import OFFLINE
from odradek.ipc import processes, roles
from odradek.storage.dirs import logdirs

from ...cluster.controller_harness import ControllerHarness
from ...harness.process import die_with_parent, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ControllerHarness]:
    """A broker's memory and run directory, without processes."""
    harness = ControllerHarness(tmp_path)
    yield harness
    harness.close()


@pytest.fixture
def overseer(broker: ControllerHarness) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor, started while the log directory's lock cannot be opened."""
    (Path(broker.config.data_dir) / logdirs.LOCK).mkdir()
    words = [sys.executable, "-m", "odradek.broker", "run", "supervisor", "--run-dir", str(broker.run_dir)]
    with subprocess.Popen(words, preexec_fn=die_with_parent) as process:
        yield process
        process.kill()


def test_a_log_directory_that_cannot_be_locked_is_tried_again(
    broker: ControllerHarness, overseer: subprocess.Popen[bytes]
) -> None:
    """The supervisor continues with its other tasks, such as killing stuck processes; exit code 3 would be final."""
    state = lambda: broker.shared.processes.get(roles.SUPERVISOR, "state")  # noqa: E731
    wait_until(lambda: overseer.poll() is not None or state() == processes.RUNNING, 60, "the supervisor runs")
    assert overseer.poll() is None
    (Path(broker.config.data_dir) / logdirs.LOCK).rmdir()
    wait_until(lambda: _in_use(broker.config.data_dir), 60, "the supervisor locks the directory")


def _in_use(log_dir: str) -> bool:
    return Path(log_dir, logdirs.LOCK).exists() and logdirs.is_in_use(log_dir)


def test_it_asks_for_a_stop_when_no_log_directory_is_left(
    broker: ControllerHarness, overseer: subprocess.Popen[bytes]
) -> None:
    broker.shared.fail_dir(0)
    wait_until((broker.run_dir / OFFLINE).exists, 60, "the file exists that systemd watches")
    assert overseer.poll() is None, "the supervisor must run until systemd stops it"


def test_another_brokers_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dir_locks, "AGAIN_S", 0.0)
    one, two, failed = (tmp_path / name for name in ("one", "two", "failed"))
    one.mkdir()
    failed.mkdir()
    kept = LogDirLocks([str(one), str(two), str(failed)], 7, failed=[2])
    kept.turn()
    assert kept.free.keys() == {1} and logdirs.is_in_use(one)
    assert not list(failed.iterdir()), "nothing may be written to a directory that another broker may use"
    two.mkdir()
    logdirs.lock_dir(two)  # by another file description
    with pytest.raises(OdradekError, match="two is in use: another broker"):
        kept.turn()


def test_the_sockets_are_systemds(broker: ControllerHarness, overseer: subprocess.Popen[bytes]) -> None:
    """Other listeners are refused; the advertised listeners are saved for processes that start."""
    state = lambda: broker.shared.processes.get(roles.SUPERVISOR, "state")  # noqa: E731
    wait_until(lambda: overseer.poll() is not None or state() == processes.RUNNING, 60, "the supervisor runs")
    former = configuration.saved(broker.run_dir).listeners
    more = {"listeners": ",".join(map(str, former)) + ",SSL://127.0.0.1:0"}
    for command, arguments in (("prepare-listeners", {"keep": True}), ("listen", {})):
        with pytest.raises(ControlError, match=r"odradek\.socket of systemd has the sockets"):
            control_bus.request(broker.run_dir, "supervisor", command, dynamic=more, **arguments)
    elsewhere = {"advertised.listeners": f"{former[0].name}://broker.example.com:1234"}
    control_bus.request(broker.run_dir, "supervisor", "prepare-listeners", dynamic=elsewhere, keep=False)
    assert configuration.saved(broker.run_dir).advertised == former
    control_bus.request(broker.run_dir, "supervisor", "listen", dynamic=elsewhere)
    saved = configuration.saved(broker.run_dir)
    assert (saved.listeners, saved.advertised[0].port) == (former, 1234)
