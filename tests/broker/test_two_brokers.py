"""Two brokers with the same log directory or run directory: only one of them runs, whichever processes it has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.process import process
from odradek.broker.supervisor import boot
from odradek.broker.supervisor.boot import Boot
from odradek.ipc import roles, shm
from odradek.ipc.locks import RoleLocks
from odradek.ipc.rundir import shm_prefix
from odradek.storage.dirs import logdirs

from ..harness.process import wait_until

pytestmark = pytest.mark.live

ENTER = """
import sys
from pathlib import Path
from odradek.broker.process import process
me = process.enter(int(sys.argv[2]), Path(sys.argv[1]))
print("in", flush=True)
input()
"""


def config_of(folder: Path, run: str, *log_dirs: str) -> BrokerConfig:
    paths = [str(folder / name) for name in log_dirs or ("one", "two")]
    return configuration.resolve({"log.dirs": ",".join(paths), "odradek.run.dir": str(folder / run)})


@contextmanager
def prepared(config: BrokerConfig) -> Iterator[Boot]:
    """The state after `odradek systemd prepare`: memory and run directory exist, no lock is held."""
    held: list[int] = []
    lock = logdirs.lock_dir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logdirs, "lock_dir", lambda *args, **options: held.append(lock(*args, **options)) or held[-1])
        booted = boot.prepare(config, listen=False)
    for fd in held:
        os.close(fd)
    booted.locks.close()
    try:
        yield booted
    finally:
        booted.shared.destroy()


@contextmanager
def running(config: BrokerConfig, role: int) -> Iterator[None]:
    """A process of a broker within the block."""
    words = [sys.executable, "-c", ENTER, str(config.run_dir), str(role)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as entered:
        assert entered.stdout is not None
        assert entered.stdout.readline() == "in\n"
        yield
        entered.kill()


def start(config: BrokerConfig) -> Boot:
    return boot.prepare(config, listen=False)


@pytest.mark.parametrize("role", [roles.worker_role(0), roles.JANITOR])
@pytest.mark.parametrize("dirs", [("one", "two"), ("two", "three")])
def test_one_process_that_lives_keeps_another_broker_out(tmp_path: Path, role: int, dirs: tuple[str, ...]) -> None:
    """The supervisor is dead and systemd restarts it: two brokers with a `partition.lock` each would corrupt logs."""
    first, second = config_of(tmp_path, "first"), config_of(tmp_path, "second", *dirs)
    with prepared(first):
        with running(first, role):
            with pytest.raises(BootError, match=f"{tmp_path}/.* is in use: another broker"):
                start(second)
            assert not second.run_dir.exists(), "a refused start leaves a run directory"
            assert shm.Shared.attach(shm_prefix(first.data_dir)).prefix, "the running broker's memory is gone"
        start(second).leave()


def test_refused_start_does_not_disturb_running_processes(tmp_path: Path) -> None:
    first, second = config_of(tmp_path, "first"), config_of(tmp_path, "second")
    with prepared(first), running(first, roles.JANITOR):
        for _ in range(3):
            with pytest.raises(BootError):
                start(second)
            with running(first, roles.worker_role(3)):
                pass


def test_a_process_that_comes_back_late_finds_another_broker(tmp_path: Path) -> None:
    first, second = config_of(tmp_path, "first"), config_of(tmp_path, "second", "two", "three")
    with prepared(first), prepared(second), running(second, roles.JANITOR):
        with pytest.raises(OdradekError, match=f"{tmp_path}/two is in use") as refused:
            process.enter(roles.worker_role(0), first.run_dir)
        assert not isinstance(refused.value, BootError), "the error must be retriable: the other broker may be stopping"


def test_a_start_in_the_same_run_directory_joins_those_that_live(tmp_path: Path) -> None:
    config = config_of(tmp_path, "run")
    with prepared(config) as former, running(config, roles.JANITOR), prepared(config) as joined:
        assert joined.shared.incarnation == former.shared.incarnation
        with pytest.raises(BootError, match="a broker is running already"), running(config, roles.SUPERVISOR):
            start(config)


def test_a_file_that_a_broker_has_removed_gives_no_role(tmp_path: Path) -> None:
    """A waiting process would lock the removed file, while another process locks the new one."""
    first, late = RoleLocks(tmp_path / "roles.lock"), RoleLocks(tmp_path / "roles.lock")
    assert first.hold(roles.SUPERVISOR)
    assert first.seal(range(1, roles.ROLES)) and not late.hold(roles.JANITOR)
    first.remove()
    first.close()
    assert not late.hold(roles.JANITOR) and not late.current()
    following = RoleLocks(tmp_path / "roles.lock")
    assert following.hold(roles.JANITOR) and following.number() != late.number()
    assert not following.alive(roles.FIRST_WORKER), "the lock outlives its process"


def test_waiter_for_a_role_opens_the_current_file(tmp_path: Path) -> None:
    """A failed start has removed the file between two processes of this role."""
    config = config_of(tmp_path, "run")
    with prepared(config):
        path = config.run_dir / process.ROLE_LOCK
        former = RoleLocks(path)
        assert former.hold(roles.JANITOR)
        words = [sys.executable, "-c", ENTER, str(config.run_dir), str(roles.JANITOR)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiting:
            wait_until(lambda: path.name in _opened(waiting.pid), 60, "the process waits for the role")
            former.remove()
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "in\n"
            waiting.kill()


def _opened(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(Path(os.readlink(fd)).name)
    return found


def test_stop_keeps_the_memory_while_a_process_lives(tmp_path: Path) -> None:
    """The memory stays, and so does the lock file."""
    config = config_of(tmp_path, "run")
    with prepared(config), running(config, roles.JANITOR):
        again = boot.again(config)
        again.leave()
        assert (config.run_dir / process.ROLE_LOCK).exists()
        assert shm.Shared.attach(shm_prefix(config.data_dir)).processes.get(roles.JANITOR, "pid")


class TestAfterAVersionBefore:
    """Former releases: roles are bytes of a file in the first log directory, and the supervisor alone locks all."""

    def test_next_version_continues_with_the_former_file(self, tmp_path: Path) -> None:
        config = config_of(tmp_path, "run")
        with prepared(config):
            path = config.run_dir / configuration.CONFIG_FILE
            path.write_text(path.read_text().replace(', "former_roles": false', ""))
            supervisor = logdirs.lock_dir(tmp_path / "one")
            with running(config, roles.JANITOR):
                assert RoleLocks(tmp_path / "one" / process.FORMER_LOCK).alive(roles.JANITOR)
                assert process.role_locks(configuration.saved(config.run_dir)).alive(roles.JANITOR)
            os.close(supervisor)

    def test_next_version_waits_for_former_processes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boot, "DYING_TIMEOUT_S", 0.2)
        config = config_of(tmp_path, "run")
        (tmp_path / "one").mkdir()
        dying = RoleLocks(tmp_path / "one" / process.FORMER_LOCK)
        assert dying.hold(roles.JANITOR)
        with pytest.raises(BootError, match="a broker is running already"):
            start(config)
        dying.close()
        start(config).leave()
