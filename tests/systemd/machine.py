"""A real systemd as PID 1 of its own namespaces, with the units that `odradek systemd install` writes.

Its programs are in /opt, wherever this clone is, since a boot empties /tmp. It shares the network of this machine, so
that clients here reach the broker there; processes, mounts, cgroups and /dev/shm are its own and end with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..harness.needs import REMEDY, must_not_skip
from ..harness.process import command_words, die_with_parent, family, free_port, kill_all, wait_until
from ..harness.wire import Wire

ROOT = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.sh")
HOME = Path("/opt/odradek")  # the environment inside, as docs/operating.md has it
LENT = Path("/opt/packages")  # the packages of this environment, except ours
PROCESSES = ("supervisor", "controller", "coordinator", "janitor", "acceptor")
SETTINGS = {
    "odradek.workers": 2,
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 1,
}


def why_not() -> str:
    """What this machine lacks to boot a systemd; empty if nothing."""
    for program in ("unshare", "nsenter", "setpriv", "pivot_root", "systemctl", "systemd-sysusers"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program} is not installed: {REMEDY['systemd']}"
    if os.geteuid() != 0:
        return "only root may boot a systemd in namespaces"
    if not _cgroup2():
        return "no writable cgroup2 hierarchy is mounted"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--cgroup", "--fork", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces cannot be made here (a container without privileges?)"


@contextmanager
def started(folder: Path, **settings: Any) -> Iterator[Machine]:
    """A booted machine on which `systemctl start odradek.target` has returned; skips if no systemd can be booted."""
    with booted(folder, **settings) as machine:
        machine.systemctl("start", "odradek.target")
        yield machine


@contextmanager
def booted(folder: Path, **settings: Any) -> Iterator[Machine]:
    """A booted machine with the units installed and none started; skips if no systemd can be booted."""
    why = why_not()
    if why and must_not_skip() and os.geteuid() == 0:
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)
    machine = Machine(folder, **settings)
    try:
        yield machine.boot()
    finally:
        machine.close()


def _cgroup2() -> Path | None:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    found = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    return next((path for path in found if os.access(path, os.W_OK)), None)


def install(prefix: Path, *arguments: str) -> None:
    """`odradek systemd install --prefix`."""
    subprocess.run(
        [sys.executable, "-m", "odradek.broker", "systemd", "install", "--prefix", str(prefix), *arguments],
        check=True,
        capture_output=True,
        timeout=60,
    )


class Machine:
    """One booted systemd. `systemctl(…)` and `run(…)` act inside."""

    external = False  # for helpers that need a broker: this one is ours

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.port = free_port()
        self.staging = folder / "staging"
        self.settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        self._process: subprocess.Popen[bytes] | None = None
        self._group: Path | None = None
        self.pid = 0

    @property
    def bootstrap(self) -> str:
        """The address of the broker for clients on this machine."""
        return f"127.0.0.1:{self.port}"

    def wire(self, timeout: float = 15) -> Wire:
        """A new raw connection."""
        return Wire(self.bootstrap, timeout)

    # -- boot and stop

    def boot(self) -> Machine:
        """Boot as far as the journal, and install the units."""
        self._configure()
        self._copy_programs()
        (self.folder / "root").mkdir()
        above = _cgroup2()
        assert above is not None
        _sweep(above)
        self._group = above / f"odradek-proof-{os.getpid()}-{self.port}"
        self._group.mkdir()
        words = ["unshare", "--fork", "--kill-child=SIGKILL", "--pid", "--mount", "--cgroup", "--ipc", "--uts"]
        arguments = [str(self.folder / "root"), str(self.staging), *self._shown()]
        with (self.folder / "boot.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*words, str(BOOT), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=self._enter,
            )
        self.pid = wait_until(self._find_systemd, 60, "systemd runs") or 0
        wait_until(lambda: self.state("proof.target") == "active", 60, self.console)
        self.odradek("systemd", "install")
        return self

    def _configure(self) -> None:
        """Write the configuration that an administrator would write."""
        config = self.staging / "etc/odradek/server.properties"
        config.parent.mkdir(parents=True)
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": "/var/lib/odradek",
            "odradek.run.dir": "/run/odradek/broker",
            **self.settings,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _copy_programs(self) -> None:
        """Copy the clone, since a process that starts later must not find it half edited."""
        home = self.staging / HOME.relative_to("/")
        venv.create(home, symlinks=True)
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
        for folder in ROOT.iterdir():
            if (folder / "__init__.py").exists() and folder.name != "tests":
                shutil.copytree(folder, packages / "odradek" / folder.name)
        # Directories named here are searched last, and their own .pth files, which name the clone, are not read.
        (packages / "lent.pth").write_text(f"{LENT}/purelib\n{LENT}/platlib\n")

    def _shown(self) -> list[str]:
        """Pairs of path and mount point: the packages of this environment, and Python itself unless it is in /usr."""
        pairs = [word for name in ("purelib", "platlib") for word in (sysconfig.get_path(name), f"{LENT}/{name}")]
        return pairs if Path(sys.base_prefix).is_relative_to("/usr") else [*pairs, sys.base_prefix, sys.base_prefix]

    def _enter(self) -> None:
        die_with_parent()
        assert self._group is not None
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def _find_systemd(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, self.console
        first = psutil.Process(self._process.pid).children()[:1]  # the shell that becomes systemd
        return first[0].pid if first and command_words(first[0])[:1] == ["/lib/systemd/systemd"] else 0

    def close(self) -> None:
        """Kill all processes and remove the cgroups."""
        if self._process is not None:
            members = family(self._process.pid)
            kill_all(members)
            self._process.wait(20)
            psutil.wait_procs(members, 20)
        if self._group is not None:
            group = self._group
            wait_until(lambda: _remove(group), 60, "its cgroups are empty")

    def stop(self) -> None:
        """Stop the broker. `systemctl` waits only for the target, which stops first; the memory service stops last."""
        self.systemctl("stop", "odradek.target")
        wait_until(lambda: self.state("odradek-memory.service") in ("inactive", "failed"), 120, "all is stopped")

    # -- commands and files inside

    @property
    def console(self) -> str:
        """The output of systemd itself."""
        return (self.folder / "boot.log").read_text(errors="replace")[-6000:]

    @property
    def root(self) -> Path:
        """The path of its root directory outside."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def data_dir(self) -> Path:
        """The path of the broker's data outside."""
        return self.root / "var/lib/odradek"

    def run(self, *words: str, timeout: float = 120, check: bool = True) -> str:
        """Run a command inside as root; its output."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--ipc", "--uts", "--"]
        done = subprocess.run(
            [*inside, *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": "/usr/sbin:/usr/bin", "SYSTEMD_PAGER": "", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}\n{self.log}"
        return done.stdout + done.stderr

    def systemctl(self, *words: str, **kwargs: Any) -> str:
        """`systemctl` inside."""
        return self.run("systemctl", *words, **kwargs)

    def odradek(self, *words: str) -> str:
        """Run `odradek …` as an administrator would."""
        return self.run(*self.command(*words))

    def command(self, *words: str, home: Path = HOME) -> list[str]:
        """The command line of `odradek …` inside, in the environment at `home`."""
        return [f"{home}/bin/python", "-P", "-m", "odradek.broker", *words]

    def drop_in(self, unit: str, text: str) -> Path:
        """Add a drop-in to a unit; its path."""
        path = self.root / f"run/systemd/system/{unit}.d/of-a-test.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.systemctl("daemon-reload")
        return path

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit).strip()

    def state(self, unit: str) -> str:
        """`active`, `inactive`, `failed`, …"""
        return self.systemctl("is-active", unit, check=False).strip()

    def main_pid(self, unit: str) -> int:
        """The pid of the main process of a service, inside."""
        return int(self.show(unit, "MainPID"))

    def pids(self) -> dict[str, int]:
        """Every running service of the broker and its pid."""
        names = [f"odradek-{name}.service" for name in PROCESSES]
        listed = self.systemctl("list-units", "--plain", "--no-legend", "odradek-worker@*")
        names += [line.split()[0] for line in listed.splitlines() if " running" in line]
        return {name: self.main_pid(name) for name in names}

    def signal(self, unit: str, name: str) -> None:
        """Send a signal to the process of a service, without systemd."""
        self.run("kill", f"-{name}", str(self.main_pid(unit)))

    def await_another(self, unit: str, pid: int, seconds: float = 60) -> int:
        """Wait until the service is active with a process other than `pid`."""

        def another() -> int:
            found = self.main_pid(unit)
            return found if found not in (0, pid) and self.state(unit) == "active" else 0

        back = wait_until(another, seconds, fail=False)
        assert back, f"{unit} is not back within {seconds} s\n{self.log}"
        return int(back)

    @property
    def log(self) -> str:
        """The end of the journal."""
        words = ["nsenter", f"--target={self.pid}", "--mount", "journalctl", "--no-pager", "-n", "150"]
        return self.console[-2000:] + subprocess.run(words, capture_output=True, text=True).stdout


def _remove(group: Path) -> bool:
    """Remove a cgroup and its children; False while they have processes."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return True


def _sweep(above: Path) -> None:
    """Remove the empty cgroups of killed test runs."""
    for group in above.glob("odradek-proof-*"):
        if not psutil.pid_exists(int(group.name.split("-")[2])):
            _remove(group)
