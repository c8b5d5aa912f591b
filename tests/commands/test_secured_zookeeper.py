"""Commands with a ZooKeeper that requires TLS and a login, and whose nodes belong to the broker's user."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from odradek.broker.commands.tls import certificates
from odradek.cluster.tree.tree import TreeUnavailable
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from tests.cluster.tree.secured_zookeeper import NOW, SecuredZooKeeper
from tests.harness.broker import Broker
from tests.harness.process import wait_until

from ..security.tls.conftest import private
from .conftest import SECONDS, command_line

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]


class Secured:
    """ZooKeeper, a broker of its cluster, and files for commands."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = SecuredZooKeeper(folder / "zookeeper")
        self.connect = f"localhost:{self.zookeeper.port}/kafka"
        self.credentials = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": self.zookeeper.trusted,
            "odradek.zookeeper.login.config": self.zookeeper.jaas("kafka", "hunter2"),
            "zookeeper.set.acl": "true",
        }
        self.broker = Broker(folder / "broker", odradek_workers=1)
        self.broker.properties |= {"zookeeper.connect": self.connect} | self.credentials

    def file(self, name: str, **changes: str | None) -> str:
        """A file for --zk-tls-config-file; None leaves a setting out."""
        settings = self.credentials | {key.replace("_", "."): value for key, value in changes.items()}
        path = self.broker.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value is not None))
        return str(path)


def run(*words: str, stdin: str = "", code: int = 0) -> str:
    """The output of the command, or its only error line for another `code` than 0."""
    done = subprocess.run(command_line(*words), capture_output=True, text=True, timeout=SECONDS, input=stdin)
    assert done.returncode == code, done
    assert code == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    made.broker.folder.mkdir()
    try:
        run(
            "users", "add", "first", "--zookeeper", made.connect, "--zk-tls-config-file", made.file("first"),
            "--password-stdin", stdin="x\n",
        )  # fmt: skip
        made.broker.start()
        yield made
    finally:
        made.broker.close()
        made.zookeeper.zookeeper.kill()


def test_users_can_be_added_before_the_first_start(secured: Secured) -> None:
    where = ["--zookeeper", secured.connect, "--zk-tls-config-file", secured.file("users")]
    assert "first" in run("users", "list", *where)
    assert "first" in run("users", "list", "--bootstrap-server", secured.broker.bootstrap)
    assert "first" in run("users", "list", str(secured.broker.properties_file))
    anybody = ZooKeeperTree(f"{secured.zookeeper.zookeeper.connect}/kafka")
    with closing(anybody), pytest.raises(TreeUnavailable, match="NoAuth"):
        anybody.get("/config/users/first")


def test_each_command_connects_to_secured_zookeeper(secured: Secured) -> None:
    where = ["--zookeeper", secured.connect, "--zk-tls-config-file", str(secured.broker.properties_file)]
    run("topics", *where, "--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
    assert run("topics", *where, "--list") == "t\n"
    wait_until(lambda: "Leader: 0" in run("topics", *where, "--describe"), 30, "the controller has elected a leader")
    assert "No partition reassignments" in run("reassign-partitions", *where, "--list")
    run("leader-election", *where, "--election-type", "preferred", "--all-topic-partitions")
    run("console-producer", "--bootstrap-server", secured.broker.bootstrap, "--topic", "t", stdin="a line\n")
    read = run("console-consumer", *where, "--topic", "t", "--from-beginning", "--max-messages", "1")
    assert read == "a line\n"


@pytest.mark.parametrize("words", [["ls", "/brokers/ids"], ["getAcl", "/config/users"]])
def test_zookeeper_shell(secured: Secured, words: list[str]) -> None:
    """The file comes behind the address, as in Kafka's script."""
    file = str(secured.broker.properties_file)
    printed = run("zookeeper-shell", secured.connect, "-zk-tls-config-file", file, *words)
    assert printed.endswith("\n[0]\n" if words[0] == "ls" else "\n'sasl,'kafka\n: cdrwa\n"), printed
    plain = subprocess.run(
        command_line("zookeeper-shell", f"{secured.zookeeper.zookeeper.connect}/kafka", "get", "/config/users/first"),
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert (plain.returncode, plain.stderr) == (1, "Insufficient permission : /config/users/first\n")


def test_consumer_offset_checker(secured: Secured) -> None:
    where = ["--zookeeper", secured.connect, "--zk-tls-config-file", secured.file("checker")]
    printed = run("consumer-offset-checker", *where, "--group", "g", "--topic", "no-such-topic")
    assert printed.split() == ["Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"]


def test_status_reads_the_controller_epoch(secured: Secured) -> None:
    here = json.loads(run("status", "--cluster", "--json", str(secured.broker.properties_file)))
    assert here["controller_epoch"] >= 1
    words = ["status", "--cluster", "--json", "--bootstrap-server", secured.broker.bootstrap]
    assert json.loads(run(*words))["controller_epoch"] is None
    elsewhere = json.loads(run(*words, "--zk-tls-config-file", secured.file("status")))
    assert elsewhere["controller_epoch"] == here["controller_epoch"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"zookeeper_ssl_truststore_location": "/nowhere"}, "zookeeper.ssl.truststore.location: /nowhere does not"),
        ({"zookeeper_ssl_client_enable": None}, "zookeeper.ssl.client.enable: must be true in"),
        ({"zookeeper_ssl_client_enable": "yes"}, "zookeeper.ssl.client.enable: Expected value to be"),
        ({"odradek_zookeeper_login_config": "/nowhere"}, "odradek.zookeeper.login.config: cannot read"),
        ({"zookeeper_ssl_truststore_location": "OTHER"}, "the peer's certificate is refused"),
        ({"odradek_zookeeper_login_config": "WRONG"}, "ZooKeeper refuses user or password"),
    ],
)
def test_invalid_setting_is_one_line(secured: Secured, changes: dict[str, str | None], line: str) -> None:
    server = secured.zookeeper
    stranger = private(server.folder / "stranger.pem", certificates.new_ca(NOW).certificate_pem)
    given = {"OTHER": stranger, "WRONG": server.jaas("kafka", "hunter99")}
    file = secured.file("wrong", **{key: given.get(str(value), value) for key, value in changes.items()})
    began = time.monotonic()
    assert line in run("topics", "--list", "--zookeeper", secured.connect, "--zk-tls-config-file", file, code=1)
    assert time.monotonic() - began < 25


def test_tls_config_file_needs_zookeeper_option(secured: Secured) -> None:
    words = ["topics", "--list", "--bootstrap-server", "h:1", "--zk-tls-config-file", secured.file("alone")]
    done = subprocess.run(command_line(*words), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2 and "--zk-tls-config-file needs --zookeeper" in done.stderr
