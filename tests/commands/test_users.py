"""`odradek users`: in the metadata file before the first start, in ZooKeeper, and at a running broker."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.commands.configs import command as configs
from odradek.broker.commands.users import command
from odradek.broker.errors import OdradekError
from odradek.cluster import user_store
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.security.sasl.delegation_tokens import TokenSettings
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramMechanism
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from odradek.workers.dispatch.credentials import LiveCredentials
from tests.harness.broker import Broker
from tests.harness.controller_process import catalog
from tests.harness.process import wait_until
from tests.harness.zookeeper import ZooKeeper

from .conftest import command_line

SECRET = "pass,wörd=1"
BOTH = [("alice", "SCRAM-SHA-256", 4096), ("alice", "SCRAM-SHA-512", 4096)]


def users(*words: str, stdin: str = "") -> str:
    done = CliRunner().invoke(command, list(words), input=stdin)
    if isinstance(done.exception, OdradekError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def listed(*where: str) -> list[tuple[str, str, int]]:
    found = json.loads(users("list", "--json", *where))
    return [(row["user"], row["mechanism"], row["iterations"]) for row in found]


@pytest.fixture
def here(tmp_path: Path) -> list[str]:
    """The options for a broker that was never started."""
    return ["--override", f"log.dirs={tmp_path / 'data'}"]


def test_users_can_be_added_before_the_first_start(here: list[str]) -> None:
    assert listed(*here) == []
    output = users("add", "alice", *here, "--password-stdin", stdin=f"{SECRET}\n")
    assert output.startswith("added alice: SCRAM-SHA-256, SCRAM-SHA-512\n") and SECRET not in output
    users("add", "b/ö~b", *here, "--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--password-stdin", stdin="x")
    assert listed(*here) == [*BOTH, ("b/ö~b", "SCRAM-SHA-512", 8192)]
    users("remove", "alice", *here, "--mechanism", "SCRAM-SHA-256")
    users("remove", "b/ö~b", *here)
    assert listed(*here) == BOTH[1:]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["remove", "nobody"], "there is no user nobody"),
        (["remove", "alice", "--mechanism", "SCRAM-SHA-256"], "alice has no credential for SCRAM-SHA-256"),
    ],
)
def test_removal_of_an_unknown_user_is_an_error(here: list[str], words: list[str], text: str) -> None:
    users("add", "alice", *here, "--mechanism", "SCRAM-SHA-512", "--password-stdin", stdin="x\n")
    with pytest.raises(OdradekError, match=text):
        users(*words, *here)


@pytest.mark.parametrize(
    ("words", "stdin", "text"),
    [
        (["add", "alice", "--password-stdin"], "\n", "the password must not be empty"),
        (["add", "alice"], "secret\n", "give --password-stdin"),
        (["add", "", "--password-stdin"], "x", "NAME must not be empty"),
        (["add", "a", "--password-stdin", "--iterations", "4095"], "x", "4095 is not in the range"),
        (["add", "a", "--password-stdin", "--mechanism", "PLAIN"], "x", "'PLAIN' is not one of"),
        (["add", "a", "--password", "x"], "", "No such option"),
        (["list", "--zookeeper", "h:1", "--bootstrap-server", "h:1"], "", "give one of"),
    ],
)
def test_wrong_usage_exits_with_2(here: list[str], words: list[str], stdin: str, text: str) -> None:
    done = CliRunner().invoke(command, [*words, *here], input=stdin)
    assert done.exit_code == 2 and text in done.output


def test_file_created_by_root_belongs_to_the_owner_of_its_directory(tmp_path: Path, here: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 12345, 12346)
    users("add", "alice", *here, "--password-stdin", stdin="x\n")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in data.iterdir()} == {(12345, 12346)}


@pytest.mark.live
def test_password_is_typed_twice_at_a_terminal_and_not_shown(here: list[str]) -> None:
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        command_line("users", "add", "alice", *here), stdin=terminal, stdout=subprocess.PIPE, stderr=terminal,
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    for prompt in range(2):
        while shown.count(b": ") <= prompt:
            shown += os.read(control, 1000)
        wait_until(lambda: not termios.tcgetattr(control)[3] & termios.ECHO, 20, "the terminal shows nothing")
        os.write(control, f"{SECRET}\n".encode())
    output, _ = process.communicate(timeout=60)
    os.close(control)
    assert process.returncode == 0 and SECRET not in (shown + output).decode()
    assert listed(*here) == BOTH


# -- at a running broker


def signs_in(broker: Broker, user: str, secret: str, mechanism: ScramMechanism) -> bool:
    """Whether the workers of a broker accept this password."""
    live = LiveCredentials(catalog(broker), TokenSettings(None))
    store = ScramStore(mechanism, lambda name: live.scram(mechanism, name))
    server, client = ScramServer(store), ScramClient(mechanism, user, Password(secret))
    proof = client.respond(server.evaluate(client.first(), 0).token)
    try:
        return proof is not None and server.evaluate(proof, 0).identity is not None
    except Exception as error:
        assert "wrong user or password" in str(error)
        return False


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A standalone broker, whose first user was added before its first start."""
    broker = Broker(tmp_path_factory.mktemp("alone"))
    users("add", "first", "--override", f"log.dirs={broker.data_dir}", "--password-stdin", stdin=SECRET)
    broker.start()
    yield broker
    broker.close()


@pytest.mark.live
@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_user_added_before_the_first_start_signs_in(alone: Broker, mechanism: ScramMechanism) -> None:
    assert signs_in(alone, "first", SECRET, mechanism) and not signs_in(alone, "first", "wrong", mechanism)
    assert not signs_in(alone, "nobody", SECRET, mechanism)


@pytest.mark.live
def test_users_are_added_changed_and_removed_at_a_running_broker(alone: Broker) -> None:
    where = ["--bootstrap-server", alone.bootstrap]
    output = users("add", "alice", *where, "--password-stdin", stdin=f"{SECRET}\r\n")
    assert f"kcat -L -b {alone.bootstrap}" in output
    assert signs_in(alone, "alice", SECRET, ScramMechanism.SCRAM_SHA_256)
    users("add", "alice", *where, "--password-stdin", stdin="another\n")
    assert signs_in(alone, "alice", "another", ScramMechanism.SCRAM_SHA_512)
    assert [row for row in listed(*where) if row[0] == "alice"] == BOTH
    users("remove", "alice", *where)
    assert not signs_in(alone, "alice", "another", ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(OdradekError, match="there is no user alice"):
        users("remove", "alice", *where)


@pytest.mark.live
def test_users_survive_a_kill_of_the_controller(alone: Broker) -> None:
    former = alone.pids("controller")[0]
    alone.kill_role("controller")
    alone.await_respawn("controller", former)
    assert signs_in(alone, "first", SECRET, ScramMechanism.SCRAM_SHA_256)
    users("add", "later", "--bootstrap-server", alone.bootstrap, "--password-stdin", stdin="x\n")
    assert signs_in(alone, "later", "x", ScramMechanism.SCRAM_SHA_256)
    assert signs_in(alone, "first", SECRET, ScramMechanism.SCRAM_SHA_256)


@pytest.mark.live
def test_metadata_file_of_a_running_broker_is_refused(alone: Broker) -> None:
    with pytest.raises(OdradekError, match="give --bootstrap-server"):
        users("list", str(alone.properties_file))


@pytest.mark.live
def test_no_password_is_visible_to_other_users(alone: Broker) -> None:
    shown = alone.log + alone.command("status").stdout + repr(alone.commands())
    assert SECRET not in shown and "stored_key" not in shown


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_users_can_be_added_in_an_empty_zookeeper(tmp_path: Path) -> None:
    """As before the first start of a cluster."""
    zookeeper = ZooKeeper(tmp_path / "zookeeper").start()
    try:
        where = ["--zookeeper", f"{zookeeper.connect}/kafka"]
        properties = tmp_path / "server.properties"
        properties.write_text(f"zookeeper.connect={zookeeper.connect}/kafka\nbroker.id=1\n")
        users("add", "alice", *where, "--password-stdin", stdin=f"{SECRET}\n")
        assert listed(*where) == listed(str(properties)) == BOTH
        tree = ZooKeeperTree(f"{zookeeper.connect}/kafka")
        assert user_store.read_credentials(tree)["alice"].keys() == set(ScramMechanism)
        wait_until(lambda: len(tree.children("/config/changes")) == 1, 10, "a change notification for brokers")
        tree.close()
    finally:
        zookeeper.kill()


def test_configs_command_refuses_a_password() -> None:
    words = [
        "--bootstrap-server",
        "127.0.0.1:1",
        "--alter",
        "--user",
        "a",
        "--add-config",
        "SCRAM-SHA-256=[password=x]",
    ]
    done = CliRunner().invoke(configs, words)
    assert done.exit_code == 2 and "odradek users add" in done.output
