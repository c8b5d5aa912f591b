"""The fork server: the state that its children inherit, and a broker without it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from odradek.broker.errors import OK
from odradek.broker.supervisor import forkserver

from ...harness.broker import Broker
from ...harness.process import command_words, family, living, wait_dead, wait_until
from ...harness.tracer import traced

pytestmark = pytest.mark.live

Fresh = Callable[..., Broker]
FORK_SERVER = "odradek fork-server"
CHILDREN = {"acceptor", "controller", "coordinator", "janitor", "worker"}


def _fork_server(broker: Broker) -> psutil.Process:
    """The fork server; waits until new children have their own names."""
    return wait_until(lambda: found[0] if len(found := _fork_servers(broker)) == 1 else None, 20, "one fork server")


def _fork_servers(broker: Broker) -> list[psutil.Process]:
    return [one for one in family(_pid(broker)) if " ".join(command_words(one)) == FORK_SERVER]


def _pid(broker: Broker) -> int:
    assert broker.process is not None
    return broker.process.pid


def _descriptors(pid: int) -> dict[int, str]:
    """Targets of open descriptors, without the standard ones: `socket:[inode]`, a path, …"""
    found = {}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed in between
            if int(entry.name) > 2:
                found[int(entry.name)] = os.readlink(entry.path)
    return found


def _sockets(pid: int) -> set[str]:
    return {what for what in _descriptors(pid).values() if what.startswith("socket:")}


def _await_shared(pid: int, others: tuple[int, ...], count: int) -> None:
    """Wait until it shares `count` sockets: a new child has its name shortly before it has closed the others."""
    shared = lambda: _sockets(pid) & set().union(*map(_sockets, others))  # noqa: E731
    wait_until(lambda: len(shared()) == count, 20, f"{pid} shares {count} sockets")


def _works(broker: Broker) -> None:
    with broker.wire() as wire:
        assert wire is not None
    broker.await_ready()


def test_one_process_alone_names_the_properties_file(fresh_broker: Fresh) -> None:
    """`kill -9 $(pgrep -f server.properties)` must only find the supervisor."""
    broker = fresh_broker()
    named = []
    for process in psutil.process_iter():
        if any(str(broker.properties_file) in word for word in command_words(process)):
            named.append(process.pid)
    assert named == [_pid(broker)]
    shown = {words[words.index("run") + 1] for words in broker.commands() if "run" in words}
    assert shown == CHILDREN


def test_children_inherit_nothing_of_the_fork_server(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    server = _fork_server(broker)
    only_one = lambda: len(_descriptors(server.pid)) == len(_sockets(server.pid)) == 1  # noqa: E731
    wait_until(only_one, 20, "all children are forked, and the fork server has only the supervisor's socket")
    for role in CHILDREN:
        for pid in broker.pids(role):
            process = psutil.Process(pid)
            assert process.ppid() == _pid(broker), role
            assert os.getpgid(pid) == pid, role  # only the supervisor gets a Ctrl-C
            _await_shared(pid, (server.pid, _pid(broker)), role == "acceptor")
            listening = [link for link in process.net_connections("tcp") if link.status == psutil.CONN_LISTEN]
            assert len(listening) == (role == "acceptor"), role


def test_children_have_a_life_of_their_own(fresh_broker: Fresh) -> None:
    """Each has its own standard signals: SIGTERM is a clean end, SIGINT is not ignored, no signal is blocked."""
    broker = fresh_broker()
    for role in CHILDREN:
        status = Path(f"/proc/{broker.pids(role)[0]}/status").read_text()
        masks = {name: int(value, 16) for name, value in _masks(status)}
        assert masks["SigBlk"] == 0, role
        caught = {number for number in signal.Signals if masks["SigCgt"] >> (number - 1) & 1}
        assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR2} <= caught, role
        assert signal.SIGCHLD not in caught, role


def _masks(status: str) -> list[tuple[str, str]]:
    lines = [line.split(":") for line in status.splitlines() if line.startswith("Sig") and "/" not in line]
    return [(name, value.strip()) for name, value in lines]


def test_a_broker_goes_on_without_its_fork_server(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    server = _fork_server(broker)
    server.kill()
    wait_until(lambda: not psutil.pid_exists(server.pid), 20, "the dead fork server is reaped")
    for role in ("worker", "controller"):
        broker.await_respawn(role, broker.kill_role(role))
    _works(broker)
    assert "fork server ended" in broker.log
    broker.stop()


def test_a_stopped_fork_server_is_replaced(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    server = _fork_server(broker)
    server.suspend()
    dead = broker.kill_role("worker")
    broker.await_respawn("worker", dead)
    assert not wait_dead([server])
    _works(broker)
    broker.stop()


def test_a_fork_server_in_a_debugger_does_not_hold_up_the_end(fresh_broker: Fresh) -> None:
    """The fork server is dead, but the debugger is its parent."""
    broker = fresh_broker()
    with traced(_fork_server(broker).pid):
        broker.stop()
    assert "fork server (pid" in broker.log


def test_another_fork_server_takes_its_place(fresh_broker: Fresh) -> None:
    """Later children are forked again, inherit nothing, and die with the supervisor."""
    broker = fresh_broker()
    _fork_server(broker).kill()
    pid = wait_until(lambda: _forked_janitor(broker), 30, "another fork server has forked the janitor")
    server = _fork_server(broker)
    assert psutil.Process(pid).ppid() == psutil.Process(server.pid).ppid() == _pid(broker)
    _await_shared(pid, (server.pid,), 0)
    broker.await_respawn("acceptor", broker.kill_role("acceptor"))
    _works(broker)
    members = family(_pid(broker))
    broker.kill()
    assert not wait_dead(members)


def _forked_janitor(broker: Broker) -> int:
    """Kill the janitor; returns the pid of its successor if that was forked."""
    pid = broker.await_respawn("janitor", broker.kill_role("janitor"))[0]
    return pid if _stack(pid) in [_stack(server.pid) for server in _fork_servers(broker)] else 0


def _stack(pid: int) -> str:
    """The stack address: exec chooses a new one, fork does not."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[28 - 3]


def test_fork_server_restarts_dead_processes(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    dead = broker.kill_role("worker")
    pid = broker.await_respawn("worker", dead)[0]
    assert "fork server" not in broker.log
    assert psutil.Process(pid).ppid() == _pid(broker)
    broker.stop()


def test_all_die_with_the_supervisor(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    members = family(_pid(broker))
    assert len(living(members)) == 8
    broker.kill()
    assert not wait_dead(members)


def test_a_bad_setting_leaves_no_fork_server(fresh_broker: Fresh) -> None:
    """The fork server starts before the configuration is read."""
    broker = fresh_broker(start=False, num_partitions="many")
    try:
        broker.start()
    except AssertionError as refused:
        assert "num.partitions" in str(refused)
    else:
        raise AssertionError("it has started")
    found = psutil.process_iter(["ppid", "name"])  # processes may end in between, also those of other tests
    assert not [one for one in found if one.info == {"ppid": os.getpid(), "name": "fork-server"}]


def test_fork_server_ends_silently_with_an_unread_response(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        theirs.send(b"an answer")
        forkserver.run(theirs, os.getppid())
    theirs.close()
    ours.settimeout(20)
    assert ours.recv(64, socket.MSG_PEEK)
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == OK
    assert "Traceback" not in capfd.readouterr().err
