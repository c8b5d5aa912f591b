"""A `Broker` serves real clients and starts again. It leaves no file or region, also when its program ends first."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer

from odradek import Broker, BrokerError, KafkaContainer
from odradek.broker import config as configuration
from odradek.broker.process import control_bus
from odradek.broker.process.status import Observer
from odradek.inside.topics import TopicError
from odradek.ipc import channel
from odradek.ipc.rundir import broker_key, default_base
from odradek.protocol.errors import Error

from ..clients.admin import alter_named
from ..harness.process import await_turns, die_with_parent, family, free_port, living, wait_dead, wait_until
from ..harness.wire import Wire, answers
from .left import left

pytestmark = pytest.mark.live

PROGRAM = """
import sys, time
from odradek import Broker
broker = Broker().start()
print(broker.pid, broker.log_file.parent, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that no test stops."""
    with Broker() as running:
        yield running


def folder_of(broker: Broker) -> Path:
    return broker.log_file.parent


@pytest.mark.smoke
def test_broker_serves_a_client_and_leaves_nothing() -> None:
    with Broker() as broker:
        broker.create_topic("greetings")
        producer = KafkaProducer(bootstrap_servers=broker.get_bootstrap_server())
        assert producer.send("greetings", b"hello").get(timeout=10).offset == 0
        producer.close()
        consumer = KafkaConsumer("greetings", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        assert next(consumer).value == b"hello"
        consumer.close()
        folder = folder_of(broker)
        assert left(folder), "the test looks in the wrong places"
    assert left(folder) == []


def test_restarted_broker_has_its_port_and_its_topics() -> None:
    with Broker() as broker:
        broker.create_topic("kept", partitions=3)
        before, pid = broker.bootstrap, broker.pid
        broker.restart()
        assert (broker.bootstrap, partitions(broker, "kept")) == (before, 3)
        assert broker.pid != pid


def test_killed_broker_starts_again_and_leaves_nothing() -> None:
    with Broker() as broker:
        broker.create_topic("kept")
        members, folder, before = family(broker.pid), folder_of(broker), broker.bootstrap
        broker.kill()
        assert living(members) == []
        assert broker.start().bootstrap == before
        assert partitions(broker, "kept") == 1
        broker.kill()
        assert left(folder)
    assert left(folder) == []


def test_broker_that_died_unnoticed_is_reported_and_leaves_nothing() -> None:
    broker = Broker().start()
    folder = folder_of(broker)
    os.kill(broker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)  # its workers may end before it
    wait_until(lambda: not answers(broker.bootstrap, 1), 20, "the broker is dead")
    with pytest.raises(BrokerError, match="the broker ended with -9 before its stop"):
        broker.stop()
    assert left(folder) == []


def test_broker_ends_with_a_killed_program() -> None:
    program, pid, folder = started()
    members = family(pid)
    assert len(members) == 5 and left(folder)
    end(program)
    assert wait_dead(members) == []
    assert left(folder) == []


def started() -> tuple[subprocess.Popen[str], int, Path]:
    """PROGRAM, the pid of its broker, and the broker's folder."""
    words = [sys.executable, "-c", PROGRAM]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert program.stdout is not None
    pid, folder = program.stdout.readline().split()
    return program, int(pid), Path(folder)


def end(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.wait()
    assert program.stdout is not None
    program.stdout.close()


def test_next_broker_removes_what_a_killed_program_and_its_killed_broker_left(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a temporary directory of its own, where no other test's broker removes it first."""
    monkeypatch.setenv("TMPDIR", str(short_folder))
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    program, pid, folder = started()
    os.kill(pid, signal.SIGSTOP)  # it must not clean up
    members = family(pid)
    end(program)
    os.kill(pid, signal.SIGKILL)
    assert wait_dead(members) == []
    assert len(left(folder)) > 3
    with Broker() as killed:
        killed.kill()
        with Broker():
            assert left(folder) == []
        assert killed.start().log_file.exists(), "the folder of a living program is gone"


def test_broker_outlives_the_thread_that_started_it() -> None:
    """A death signal of the kernel would come with the end of the thread."""
    broker = Broker()
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    try:
        await_turns(broker.pid)
        assert answers(broker.bootstrap)
    finally:
        broker.stop()


def test_fork_of_the_program_does_not_stop_the_broker(broker: Broker) -> None:
    pid = os.fork()
    if not pid:
        refused = False
        try:
            broker.__exit__(None, None, None)
            broker.stop()
        except BrokerError as error:
            refused = f"process {os.getppid()} started the broker" in str(error)
        os._exit(0 if refused else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert answers(broker.bootstrap)


def test_port_in_use_is_one_clear_error(broker: Broker) -> None:
    second = Broker({"listeners": f"PLAINTEXT://{broker.bootstrap}"})
    with pytest.raises(BrokerError, match=r"(?s)ended with 3 before it was ready:.*is in use"):
        second.start()
    assert left(folder_of(second)) == []
    assert answers(broker.bootstrap)


def run_dir_of(broker: Broker) -> Path:
    return default_base() / broker_key(folder_of(broker) / "data")


def test_supervisor_is_the_acceptor_and_the_parent_of_four_processes(broker: Broker) -> None:
    """Each process more costs memory: there is no fork server, and no acceptor."""
    rows = Observer(configuration.saved(run_dir_of(broker))).sample().processes
    pids = {row["name"]: row["pid"] for row in rows if row["alive"] and row["state"] == "running"}
    assert pids.keys() == {"supervisor", "acceptor", "controller", "coordinator", "janitor", "worker-0"}
    assert pids["supervisor"] == pids["acceptor"] == broker.pid
    assert {row["name"] for row in rows if not row["rss"]} == {"acceptor"}, "its memory counts once"
    assert {process.pid for process in family(broker.pid)} == set(pids.values())
    tcp = {one.pid: {found.status for found in one.net_connections("tcp")} for one in family(broker.pid)}
    listening = [pid for pid, states in tcp.items() if psutil.CONN_LISTEN in states]
    assert listening == [broker.pid], "what it forks has none of its sockets"


def test_commands_reach_a_broker_that_has_just_started() -> None:
    """The control bus opens when the broker serves; a command waits for it."""
    with Broker() as broker:
        run_dir = run_dir_of(broker)
        assert control_bus.request(run_dir, "supervisor", "status")["ready"]
        control_bus.request(run_dir, "supervisor", "scale", workers=2)
        wait_until(lambda: len(family(broker.pid)) == 6, 20, "a worker more")
        assert answers(broker.bootstrap)


def test_libraries_that_nothing_needs_are_not_loaded() -> None:
    """ZeroMQ and OpenSSL are a tenth of the memory of such a broker. A subscriber, too, makes it load the first."""
    with Broker() as broker:
        assert answers(broker.bootstrap)
        wait_until((run_dir_of(broker) / "events.ipc").exists, 60, "it listens for subscribers")
        assert not any(_loaded(one, "libzmq", "libcrypto") for one in family(broker.pid))
        for event in control_bus.events(run_dir_of(broker), 500):
            if event is not None and event["event"] == "died":
                break
            if _loaded(psutil.Process(broker.pid), "libzmq"):
                _kill_janitor(broker)
        assert control_bus.request(run_dir_of(broker), "supervisor", "status")["ready"]


def _kill_janitor(broker: Broker) -> None:
    for one in family(broker.pid):
        if one.name() == "janitor":
            one.kill()


def _loaded(process: psutil.Process, *libraries: str) -> bool:
    return any(library in mapped.path for mapped in process.memory_maps() for library in libraries)


def test_supervisor_without_descriptors_serves_on(broker: Broker) -> None:
    """A worker that registers with its acceptor needs one."""
    limits = psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE)
    observer = Observer(configuration.saved(run_dir_of(broker)))

    def errors() -> int:
        return sum(row["errors"] for row in observer.sample().processes if row["name"] == "acceptor")

    before = errors()
    psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE, (3, limits[1]))
    link = channel.connect(run_dir_of(broker) / "acceptor.sock")
    wait_until(lambda: errors() > before, 20, "the acceptor lacks a descriptor")
    psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE, limits)
    link.close()
    assert answers(broker.bootstrap)


def test_listener_is_added_and_removed_while_clients_are_connected() -> None:
    second = f"127.0.0.1:{free_port()}"
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT"}
    with Broker(protocols) as other, Wire(other.bootstrap) as wire:
        first = f"PLAINTEXT://{other.bootstrap}"
        assert alter_named(wire, "0", {"listeners": f"{first},MORE://{second}"})[0] == 0
        wait_until(lambda: answers(second, 1), 20, "the broker listens at both")
        assert alter_named(wire, "0", {"listeners": first})[0] == 0
        wait_until(lambda: not answers(second, 1), 20, "the broker listens at one")
        assert answers(other.bootstrap) and wire.metadata().brokers


def test_broker_starts_where_the_temporary_directory_has_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of sockets have 107 bytes at most."""
    folder = tmp_path / ("t" * 100)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with Broker() as broker:
        assert folder_of(broker).parent == folder and answers(broker.bootstrap)
    assert left(folder_of(broker)) == []


def test_broker_that_is_not_started_has_no_address() -> None:
    broker = Broker()
    with pytest.raises(BrokerError, match=r"call start\(\) first"):
        broker.get_bootstrap_server()
    with pytest.raises(BrokerError, match="does not run"):
        broker.kill()
    broker.stop()


def test_started_broker_cannot_be_started_again(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="runs already"):
        broker.start()


def test_named_data_stays_and_is_used_again(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "kept") as first:
        first.create_topic("kept", partitions=2)
    with Broker(data=tmp_path / "kept") as second:
        assert partitions(second, "kept") == 2


def test_settings_are_those_of_the_broker_and_none_removes_a_default() -> None:
    with Broker({"num.partitions": 5, "offsets.topic.num.partitions": None}, timeout=120) as broker:
        broker.create_topic("five", partitions=-1)
        assert partitions(broker, "five") == 5
        written = (folder_of(broker) / "server.properties").read_text()
    assert "num.partitions=5\n" in written and "offsets.topic.num.partitions" not in written


def test_other_users_cannot_read_its_folder(broker: Broker) -> None:
    assert stat.S_IMODE(folder_of(broker).stat().st_mode) == 0o700


def test_deleted_topic_is_gone_and_errors_have_kafkas_names(broker: Broker) -> None:
    broker.create_topic("once", configs={"cleanup.policy": "compact"})
    with pytest.raises(TopicError, match="cannot create topic once: TOPIC_ALREADY_EXISTS"):
        broker.create_topic("once")
    broker.delete_topic("once")
    with pytest.raises(TopicError, match="cannot delete topic once: UNKNOWN_TOPIC_OR_PARTITION") as caught:
        broker.delete_topic("once")
    assert caught.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TopicError, match="INVALID_CONFIG"):
        broker.create_topic("bad", configs={"cleanup.policy": "sometimes"})


def test_async_with_starts_and_stops_it_and_lets_the_loop_run() -> None:
    async def use() -> tuple[Path, int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async with Broker() as broker:
            assert answers(broker.bootstrap)
            folder = folder_of(broker)
        counting.cancel()
        return folder, turns

    folder, turns = asyncio.run(use())
    assert left(folder) == [] and turns > 10


def test_cancelled_async_start_leaves_nothing() -> None:
    broker = Broker()

    async def use() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with broker:
                    raise AssertionError("a broker that is ready in 50 ms: choose a shorter time")

    asyncio.run(use())
    assert left(folder_of(broker)) == []


def test_kafka_container_has_the_interface_of_testcontainers() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "4")
    with container as kafka:
        kafka.create_topic("four", partitions=-1)
        assert partitions(kafka, "four") == 4
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9093)
        assert kafka.get_bootstrap_server() == f"{host}:{port}"


def test_import_of_odradek_loads_nothing_else() -> None:
    code = "import sys, odradek; print([name for name in sys.modules if name.startswith('odradek.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_get_one_line_that_says_what_is_missing(system: str) -> None:
    code = f"import sys; sys.platform = {system!r}; from odradek import Broker"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Broker needs Linux: other systems do not have its epoll,"), done.stderr


def test_unknown_name_of_the_package_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        from odradek import Borker  # type: ignore[attr-defined]  # noqa: F401


def partitions(broker: Broker, topic: str) -> int:
    with Wire(broker.bootstrap) as wire:
        return len(wire.metadata(topic).topics[0].partitions)
