"""Commands with three brokers, in cases that a single broker cannot show."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ..harness import java
from ..harness.cluster import Cluster
from ..harness.process import die_with_parent, wait_until
from .conftest import SECONDS, command_line

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

Odradek = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def odradek(cluster: Cluster) -> Odradek:
    """The output of a command, with `--zookeeper WHERE` or else `--bootstrap-server`."""

    def call(command: str, *words: str, where: str = "", stdin: str = "", code: int = 0) -> str:
        option = ("--zookeeper", where) if where else ("--bootstrap-server", cluster.bootstrap)
        line = command_line(command, *option, *words)
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == code, done
        return done.stdout

    return call


def apache(cluster: Cluster, tool: str, *words: str) -> str:
    """The output of the tool of Apache Kafka 3.9.1."""
    address = ("--bootstrap-server", cluster.bootstrap)
    return java.run("3.9.1", f"org.apache.kafka.tools.{tool}", *address, *words).stdout.decode()


def described(cluster: Cluster, odradek: Odradek, *words: str) -> str:
    """The output of `topics --describe`, which must equal Apache's; repeated in case of a change in between."""

    for _ in range(3):
        ours = odradek("topics", "--describe", *words)
        theirs = apache(cluster, "TopicCommand", "--describe", *words)
        if _in_order(ours) == _in_order(theirs):
            return ours
    pytest.fail(f"ours:\n{ours}theirs:\n{theirs}")


def _in_order(printed: str) -> list[str]:
    """Sort topics and their configs, which Apache's tool prints in hash order."""
    configs = re.compile(r"(?<=Configs: ).*")
    return sorted(configs.sub(lambda found: ",".join(sorted(found[0].split(","))), printed).splitlines())


def test_controller_applies_topic_changes_made_with_zookeeper_option(
    cluster: Cluster, odradek: Odradek, name: str
) -> None:
    """The options are those of Kafka 0.8.2."""
    where = cluster.zookeeper.connect
    size = ("--partitions", "2", "--replication-factor", "3")
    odradek("topics", "--create", "--topic", name, *size, where=where)
    cluster.wait_isr(name, 1, 3)
    odradek("topics", "--alter", "--topic", name, "--partitions", "4", where=where)
    cluster.wait_isr(name, 3, 3)
    odradek("console-producer", "--topic", name, stdin="a\nb\n")
    read = odradek("console-consumer", "--topic", name, "--from-beginning", "--max-messages", "2", where=where)
    assert sorted(read) == ["\n", "\n", "a", "b"]
    odradek("topics", "--alter", "--topic", name, "--config", "retention.ms=5000000", where=where)
    config = lambda: odradek("configs", "--describe", "--entity-type", "topics", "--entity-name", name)  # noqa: E731
    wait_until(lambda: "retention.ms=5000000" in config(), 60, "the brokers have the change")
    odradek("topics", "--delete", "--topic", name, where=where)
    wait_until(lambda: name not in odradek("topics", "--list", where=where), 60, "the topic is deleted")
    wait_until(lambda: name not in odradek("topics", "--list"), 60, "the brokers have the change")


def test_replica_verification_finds_no_difference(cluster: Cluster, odradek: Odradek, name: str) -> None:
    odradek("topics", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "3")
    cluster.wait_isr(name, 0, 3)
    odradek("console-producer", "--topic", name, "--sync", stdin="a\nb\nc\n")
    words = ("--broker-list", cluster.bootstrap, "--topics-include", name, "--time", "-2")
    line = command_line("replica-verification", *words, "--report-interval-ms", "200", "--max-wait-ms", "100")
    with subprocess.Popen(line, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as process:
        assert process.stdout is not None
        try:
            for printed in process.stdout:
                assert b"match" not in printed and b"refuses" not in printed
                if b"max lag is 0 for partition %s-0 at offset 3 among 1" % name.encode() in printed:
                    break
        finally:
            process.kill()


def test_simple_consumer_reads_any_replica(cluster: Cluster, odradek: Odradek, name: str) -> None:
    odradek("topics", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "3")
    cluster.wait_isr(name, 0, 3)
    odradek("console-producer", "--topic", name, "--sync", stdin="a\nb\nc\n")
    words = ("--topic", name, "--partition", "0", "--no-wait-at-logend")
    end = f"Terminating. Reached the end of partition ({name}, 0) at offset 3\n"
    everything = f"a\nb\nc\n{end}"

    def is_whole(replica: str) -> bool:
        return odradek("simple-consumer-shell", *words, "--replica", replica) == everything

    for replica in ("-1", "0", "1", "2"):  # a follower learns the high watermark with its next fetch
        wait_until(partial(is_whole, replica), 60, f"the messages of replica {replica}")


def test_log_dirs_lists_the_replicas_of_all_brokers(cluster: Cluster, odradek: Odradek, name: str) -> None:
    odradek("topics", "--create", "--topic", name, "--replica-assignment", "0:1,2:0")
    cluster.wait_isr(name, 1, 2)

    def found() -> dict[int, list[str]]:
        document = json.loads(odradek("log-dirs", "--describe", "--topic-list", name).splitlines()[2])
        return {
            broker["broker"]: [part["partition"] for folder in broker["logDirs"] for part in folder["partitions"]]
            for broker in document["brokers"]
        }

    # A replica is in sync from the beginning, though the follower may not have created its log yet.
    wait_until(lambda: sum(map(len, found().values())) == 4, 60, "all replicas have their logs")
    assert found() == {0: [f"{name}-0", f"{name}-1"], 1: [f"{name}-0"], 2: [f"{name}-1"]}


def test_reports_show_the_partitions_of_a_killed_broker(cluster: Cluster, odradek: Odradek, name: str) -> None:
    config = ("--config", "min.insync.replicas=2")
    odradek("topics", "--create", "--topic", name, "--replica-assignment", "2:1:0,1:0:2,2:0:1,0:1:2", *config)
    odradek("topics", "--create", "--topic", f"{name}-two", "--replica-assignment", "0:2", *config)
    odradek("topics", "--create", "--topic", f"{name}-one", "--replica-assignment", "2", *config)
    for index in range(4):
        cluster.wait_isr(name, index, 3)
    cluster.wait_isr(f"{name}-two", 0, 2)
    all_of_them = ("--topic", f"{name}.*")
    assert described(cluster, odradek, *all_of_them).count("\tPartition: ") == 6
    assert partitions(described(cluster, odradek, *all_of_them, "--under-replicated-partitions")) == set()
    cluster.kill(2)
    try:
        for index in range(4):
            cluster.wait_isr(name, index, 2)
        cluster.wait_isr(f"{name}-two", 0, 1)
        wait_until(lambda: cluster.leader(f"{name}-one") == -1, 30, "no leader of the only replica")
        reports = {
            report: partitions(described(cluster, odradek, *all_of_them, f"--{report}-partitions"))
            for report in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable")
        }
        wholly = {f"{name}:{index}" for index in range(4)}
        assert reports == {
            "under-replicated": {*wholly, f"{name}-two:0"},
            "under-min-isr": {f"{name}-one:0", f"{name}-two:0"},
            "at-min-isr": wholly,
            "unavailable": {f"{name}-one:0"},
        }
        words = ("topics", "--describe", "--unavailable-partitions", *all_of_them)
        assert partitions(odradek(*words, where=cluster.zookeeper.connect)) == {f"{name}-one:0"}
    finally:
        cluster.restart(2)


def partitions(printed: str) -> set[str]:
    """The partitions of rows of `--describe`."""
    return {":".join(found) for found in re.findall(r"\tTopic: (\S+)\tPartition: (\d+)\t", printed)}


def test_leader_election_and_reassignment_move_leaders_and_replicas(
    cluster: Cluster, odradek: Odradek, name: str, tmp_path: Path
) -> None:
    odradek("topics", "--create", "--topic", name, "--replica-assignment", "2:1,1:0")
    cluster.wait_isr(name, 0, 2)
    cluster.restart(2)  # the other replica becomes leader
    cluster.wait_isr(name, 0, 2)
    elect = ("leader-election", "--election-type", "preferred", "--topic", name, "--partition", "0")
    if cluster.leader(name) == 1:  # else the controller has rebalanced the leaders meanwhile
        elected = odradek(*elect)
        assert elected == f"Successfully completed leader election (PREFERRED) for partitions {name}-0\n"
    assert cluster.wait_leader(name, 0, other_than=1) == 2
    assert odradek(*elect) == f"Valid replica already elected for partitions {name}-0\n"
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 1, "replicas": [2]}]}))
    words = ("reassign-partitions", "--reassignment-json-file", str(file))
    assert odradek(*words, "--execute").endswith(f"Successfully started partition reassignment for {name}-1\n")
    done = f"Reassignment of partition {name}-1 is completed.\n"
    wait_until(lambda: done in odradek(*words, "--verify"), 60, "the partition is moved")

    def told() -> tuple[int, list[int], list[int]]:
        row = cluster.partition(name, 1)
        return row.leader_id, list(row.replica_nodes), list(row.isr_nodes)

    wait_until(lambda: told() == (2, [2], [2]), 30, "the broker has the new metadata")
