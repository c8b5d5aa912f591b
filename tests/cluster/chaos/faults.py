"""Faults of a cluster. Each is a context manager `fault(chaos_cluster, broker, seconds)` over its duration.

Entering it injects the fault, leaving it heals: killed processes run again, cut links are joined. Faults compose, as
long as they are left in any order by the thread that entered them.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
from kazoo.client import KazooClient

from odradek.ipc.rundir import SESSION_FILE, run_dir

from ...faults.failing import fail
from ...harness.process import command_words, family, living, wait_until
from .administration import (
    elected_uncleanly,
    grown,
    made_again,
    min_insync_replicas,
    moved_off,
    moved_off_while_down,
    preferred_elected,
)
from .chaos_cluster import ChaosCluster
from .network import HUB

Fault = Callable[[ChaosCluster, int, float], AbstractContextManager[None]]
ROLES = ("worker", "replicator", "controller", "coordinator", "janitor", "acceptor")
HOUR_MS = 3_600_000
SESSION_S = 6.0
_SIGNS_S = 30


# -- the end of a broker


@contextmanager
def stopped(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGTERM: a controlled shutdown."""
    chaos_cluster.broker(broker).stop()
    yield
    chaos_cluster.broker(broker).start()


@contextmanager
def killed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGKILL of all its processes."""
    chaos_cluster.broker(broker).kill()
    yield
    chaos_cluster.broker(broker).start()


@contextmanager
def two_killed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGKILL of all processes of two brokers; they start together."""
    for number in (broker, (broker + 1) % len(chaos_cluster.ids)):
        chaos_cluster.broker(number).kill()
    yield
    chaos_cluster.start_all()


@contextmanager
def all_killed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGKILL of all processes of all brokers."""
    for one in chaos_cluster.cluster.running():
        one.kill()
    yield
    chaos_cluster.start_all()


@contextmanager
def suspended(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGSTOP of all its processes, the supervisor first."""
    members = family(chaos_cluster.broker(broker).process.pid)  # type: ignore[union-attr]  # it runs
    for process in members:
        _send(process, signal.SIGSTOP)
    yield
    for process in reversed(members):
        _send(process, signal.SIGCONT)


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass


# -- one process of it


def role_killed(role: str) -> Fault:
    """SIGKILL of the broker's process of that role; its supervisor starts another one."""

    @contextmanager
    def fault(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
        one = chaos_cluster.broker(broker)
        wait_until(lambda: one.pids(role), _SIGNS_S, f"broker {broker} has a {role}")
        dead = one.kill_role(role)
        yield
        one.await_respawn(role, dead, 60)

    return fault


def role_suspended(role: str) -> Fault:
    """SIGSTOP of the broker's process of that role, and of its supervisor, which would kill it."""

    @contextmanager
    def fault(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
        one = chaos_cluster.broker(broker)
        wait_until(lambda: one.pids(role), _SIGNS_S, f"broker {broker} has a {role}")
        with _suspended(chaos_cluster, broker, role):
            yield

    return fault


@contextmanager
def _suspended(chaos_cluster: ChaosCluster, broker: int, role: str) -> Iterator[None]:
    one = chaos_cluster.broker(broker)
    processes = [psutil.Process(pid) for pid in [*one.pids("supervisor"), *one.pids(role)[:1]]]
    for process in processes:
        _send(process, signal.SIGSTOP)
    yield
    for process in reversed(processes):
        _send(process, signal.SIGCONT)


@contextmanager
def fork_server_killed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGKILL of the fork server: processes that die afterwards are started with exec."""
    one = chaos_cluster.broker(broker)
    for process in living(family(one.process.pid)):  # type: ignore[union-attr]  # it runs
        if "fork-server" in command_words(process):
            process.kill()
    dead = one.kill_role("worker")
    yield
    one.await_respawn("worker", dead, 60)


# -- ZooKeeper


@contextmanager
def zookeeper_killed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGKILL of ZooKeeper."""
    chaos_cluster.zookeeper.kill()
    yield
    chaos_cluster.zookeeper.start()


@contextmanager
def zookeeper_silent(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGSTOP of ZooKeeper: connections stay, and no request is answered."""
    chaos_cluster.zookeeper.suspend()
    yield
    chaos_cluster.zookeeper.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]  # it runs


@contextmanager
def session_closed(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker's session ends although it lives: another client takes the session over and closes it."""
    path = run_dir(chaos_cluster.broker(broker).data_dir) / SESSION_FILE
    number, password = path.read_text().split()
    client = KazooClient(f"{HUB}:{chaos_cluster.zookeeper.port}", client_id=(int(number), bytes.fromhex(password)))
    client.start(30)
    client.stop()
    client.close()
    yield


@contextmanager
def session_expired(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """SIGSTOP of the controller process until the session has expired, and of the supervisor, which would kill it."""
    with _suspended(chaos_cluster, broker, "controller"):
        time.sleep(SESSION_S + 2)
        yield


# -- the network


@contextmanager
def isolated(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Other brokers, ZooKeeper and clients do not reach the broker."""
    with chaos_cluster.network.cut(broker, HUB, *_others(chaos_cluster, broker)):
        yield


@contextmanager
def apart(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """No other broker reaches the broker; ZooKeeper and clients do."""
    with chaos_cluster.network.cut(broker, *_others(chaos_cluster, broker)):
        yield


@contextmanager
def outside(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """ZooKeeper and clients do not reach the broker; other brokers do."""
    with chaos_cluster.network.cut(broker, HUB):
        yield


@contextmanager
def unlinked(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The link to the broker with the next id is cut."""
    with chaos_cluster.network.cut(broker, chaos_cluster.network.address((broker + 1) % len(chaos_cluster.ids))):
        yield


@contextmanager
def deaf(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker's packets arrive; packets to it are lost."""
    with chaos_cluster.network.cut(broker, HUB, *_others(chaos_cluster, broker), ways=("in",)):
        yield


@contextmanager
def mute(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Packets of other brokers arrive at the broker; its packets to them are lost."""
    with chaos_cluster.network.cut(broker, *_others(chaos_cluster, broker), ways=("out",)):
        yield


@contextmanager
def lossy(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Every tenth packet of the broker is lost."""
    with chaos_cluster.network.lossy(broker, 10):
        yield


@contextmanager
def narrow(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker's link has little bandwidth, so packets queue."""
    with chaos_cluster.network.slow(broker, 256):
        yield


def _others(chaos_cluster: ChaosCluster, broker: int) -> list[str]:
    return [chaos_cluster.network.address(other) for other in chaos_cluster.ids if other != broker]


# -- disk and clock


@contextmanager
def disk_full(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Another file fills the broker's disk."""
    ballast = chaos_cluster.data(broker) / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    yield
    ballast.unlink()


@contextmanager
def disk_lost(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker is killed and gets an empty disk, while each of its partitions has another in-sync replica."""
    wait_until(lambda: chaos_cluster.dispensable(broker), 120, f"no partition needs broker {broker}")
    chaos_cluster.broker(broker).kill()
    for path in chaos_cluster.data(broker).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    yield
    chaos_cluster.broker(broker).start()


@contextmanager
def disk_failing(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Writes and syncs fail; the broker is restarted with a working disk."""
    one = chaos_cluster.broker(broker)
    faults = one.folder / "faults"
    fail(faults, one.data_dir, ("pwritev", "pwrite", "fsync"))
    yield
    faults.unlink()
    if one.process is not None and one.process.poll() is not None:
        one.process = None  # the broker has stopped by itself
    one.restart(kill=True)


@contextmanager
def disk_slow(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """Each fsync takes a second."""
    slow = chaos_cluster.broker(broker).folder / "slow"
    slow.write_text("1")
    yield
    slow.unlink()


@contextmanager
def clock_off(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The wall clock of all the broker's processes is an hour ahead, and then right again."""
    one = chaos_cluster.broker(broker)
    _write(one.folder / "clock", "".join(f"{process.pid} {HOUR_MS}\n" for process in family(one.process.pid)))  # type: ignore[union-attr]  # it runs
    yield
    (one.folder / "clock").unlink()


def _write(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


FAULTS: dict[str, Fault] = {
    "SIGTERM": stopped,
    "SIGKILL": killed,
    "SIGKILL of two": two_killed,
    "SIGKILL of all": all_killed,
    "SIGSTOP": suspended,
    **{f"kill of the {role}": role_killed(role) for role in ROLES},
    **{f"SIGSTOP of the {role}": role_suspended(role) for role in ROLES},
    "kill of the fork server": fork_server_killed,
    "SIGKILL of ZooKeeper": zookeeper_killed,
    "SIGSTOP of ZooKeeper": zookeeper_silent,
    "session closed": session_closed,
    "session expired": session_expired,
    "isolated": isolated,
    "cut off from brokers": apart,
    "cut off from ZooKeeper and clients": outside,
    "one link cut": unlinked,
    "incoming packets lost": deaf,
    "packets to brokers lost": mute,
    "every tenth packet lost": lossy,
    "low bandwidth": narrow,
    "disk full": disk_full,
    "disk lost": disk_lost,
    "disk failing": disk_failing,
    "fsync takes a second": disk_slow,
    "clock an hour ahead": clock_off,
    "replicas moved off": moved_off,
    "replicas moved off while down": moved_off_while_down,
    "preferred leader elected": preferred_elected,
    "unclean election": elected_uncleanly,
    "topic recreated": made_again,
    "partitions added": grown,
    "min.insync.replicas 1": min_insync_replicas(1),
    "min.insync.replicas 3": min_insync_replicas(3),
}
