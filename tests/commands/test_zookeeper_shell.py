"""`odradek zookeeper-shell`, compared with the shell that Apache Kafka 3.9.1 brings along."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.commands.zookeeper_shell import command
from odradek.broker.commands.zookeeper_shell.arguments import Malformed, check_path, parsed, words_of

from ..harness import java
from ..harness.process import die_with_parent
from ..harness.zookeeper import ZooKeeper
from .conftest import SECONDS, command_line

MAIN = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"

NOT_CONNECTED = "Not connected"
SCRIPT = """
create /a hello
ls /
get /a
get -s /a
stat /a
set /a bye
set -s /a again
create /a/c x
create /a/b
create /a/b/d
ls -s /a
ls -R /a
get /a/b
get /nowhere
ls /nowhere
ls -R /nowhere
stat /nowhere
create /nowhere/x
set /nowhere x
delete /nowhere
deleteall /nowhere
getAcl /nowhere
delete /a
create /a twice
getAcl /a
getAcl -s /a
create -e /a/e x
create /a/e/x
stat /a/e
create -s /a/q x
delete -v 9 /a/c
set -v 7 /a x
set -v 2 /a x
delete -v 0 /a/c
ls
set /a
getAcl
ls relative
ls /a/
ls //
ls /a/./b
ls /a/..
ls /a//b
create /a/w 'two words'
get /a/w
create /a/v "other 'words'"
get /a/v
create /a/acl x world:anyone:rw
getAcl /a/acl
create /a/two x world:anyone:cdrwa,world:anyone:r
getAcl /a/two
ls /zookeeper/quota watch
get /zookeeper/quota watch
stat /zookeeper/quota watch
set /a old 3
delete /a/b/d 0
delete /a/c 9
deleteall /a
ls /
history
close
ls /
quit
"""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    made = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield made.start()
    finally:
        made.kill()


def ours(*words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    line = command_line("zookeeper-shell", *words)
    return subprocess.run(line, input=script, capture_output=True, text=True, timeout=SECONDS)


def theirs(*words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    done = java.run("3.9.1", MAIN, "-server", *words, check=False, input=script.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def masked(printed: str) -> str:
    """Without what differs from session to session, and what Java's logger says."""
    shown = re.sub(r"0x[1-9a-f][0-9a-f]*", "0xN", re.sub(r"time = .*", "time = T", printed))
    return re.sub(r"log4j:.*\n", "", re.sub(r"\b(q\d{10})\b", "qN", shown))


def without_late(lines: list[str]) -> tuple[list[str], int]:
    """The lines without, and the number of, those that come before or after an event of another thread of Java."""
    return [line for line in lines if line != NOT_CONNECTED], lines.count(NOT_CONNECTED)


@pytest.mark.live
@pytest.mark.smoke
@pytest.mark.needs("java-3.9.1")
def test_each_command_as_theirs(zookeeper: ZooKeeper) -> None:
    mine, other = (run(zookeeper.connect, script=SCRIPT) for run in (ours, theirs))
    (printed, away), (expected, away_there) = (without_late(masked(one.stdout).split("\n")) for one in (mine, other))
    assert printed == expected and away == away_there
    assert masked(mine.stderr).split("\n") == masked(other.stderr).split("\n")
    assert mine.returncode == other.returncode


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(
    ("words", "code"), [("ls /", 0), ("get /nowhere", 1), ("get -s /zookeeper/quota", 0), ("quit", 0)]
)
def test_a_command_as_arguments(zookeeper: ZooKeeper, words: str, code: int) -> None:
    mine, other = (run(zookeeper.connect, *words.split()) for run in (ours, theirs))
    assert (masked(mine.stdout), masked(mine.stderr)) == (masked(other.stdout), masked(other.stderr))
    assert (mine.returncode, other.returncode) == (code, code)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_a_watch_reports_a_change(zookeeper: ZooKeeper) -> None:
    line = command_line("zookeeper-shell", zookeeper.connect)
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("create -e /watched x\nget -w /watched\nset /watched y\n")
        process.stdin.flush()
        event = "WatchedEvent state:SyncConnected type:NodeDataChanged path:/watched\n"
        assert event in iter(process.stdout.readline, "")
        process.stdin.write("quit\n")
        process.stdin.close()
        assert process.wait(SECONDS) == 0


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_a_chroot_is_not_created(zookeeper: ZooKeeper) -> None:
    done = ours(f"{zookeeper.connect}/missing", "ls", "/")
    assert (done.returncode, done.stderr) == (1, "Node does not exist: /\n")
    assert "missing" not in ours(zookeeper.connect, "ls", "/").stdout


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_what_theirs_does_badly(zookeeper: ZooKeeper) -> None:
    """Theirs creates a node without any permission for a wrong ACL, and ends with 0 for an unknown line."""
    script = "create /x x world:anyone:rq\ncreate /x x world\nget -q /x\ndelete -v\ndelete -v one /x\ndeleteall /\n"
    done = ours(zookeeper.connect, script=script + "nonsense\n")
    assert done.stderr.split("\n")[:6] == [
        "Unknown perm type: q",
        "world does not have the form scheme:id:perm",
        "get [-s] [-w] path",
        "delete [-v version] path",
        'For input string: "one"',
        "the root and all nodes of ZooKeeper itself cannot be deleted",
    ]
    assert done.stderr.endswith("Command not found: Command not found nonsense\n")
    assert done.returncode == 127


@pytest.mark.live
def test_no_server_is_one_line() -> None:
    done = ours("127.0.0.1:x", "ls", "/")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_usage() -> None:
    run = CliRunner().invoke
    assert run(command, ["-timeout", "5"]).exit_code == 2
    done = run(command, ["h:1", "-zk-tls-config-file"])
    assert done.exit_code == 2 and "needs a FILE" in done.output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls /", ["ls", "/"]),
        ("  create  /a 'two words' ", ["create", "/a", "two words"]),
        ("""set /a "it's" """, ["set", "/a", "it's"]),
        ('set /a ""', ["set", "/a", ""]),
        ("", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert words_of(line) == words


@given(st.lists(st.text(st.characters(blacklist_characters="'\"", blacklist_categories=("Z", "C")), min_size=1)))
def test_plain_words_are_kept(words: list[str]) -> None:
    assert words_of(" ".join(words)) == words


@given(st.sampled_from(["ls", "get", "set", "stat", "create", "delete", "deleteall", "getAcl"]), st.lists(st.text()))
def test_any_words_are_a_line_or_malformed(name: str, words: list[str]) -> None:
    try:
        line = parsed([name, *words])
        path = check_path(line.rest[0])
    except Malformed:
        return
    assert path.startswith("/") and "//" not in path
