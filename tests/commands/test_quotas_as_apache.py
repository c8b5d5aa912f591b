"""`odradek configs` and Kafka's kafka-configs.sh set, show and remove the same quotas of our broker."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..harness import java
from .conftest import command_line

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

RATES = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5,controller_mutation_rate=3"
ENTITIES = [
    (("--entity-type", "users", "--entity-name", "al ice"), RATES),
    (("--entity-type", "users", "--entity-default"), RATES),
    (("--entity-type", "clients", "--entity-name", "c-1"), RATES),
    (("--entity-type", "clients", "--entity-default"), "producer_byte_rate=5"),
    (("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-name", "c"), RATES),
    (("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default"), RATES),
    (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate=9"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=7"),
]
USUAL = {(0, 0), (5, 1), (7, 0)}  # (entity, which tool sets its quotas); other cases are long
Tool = Callable[..., str]


def _ours(bootstrap: str, *words: str) -> str:
    line = command_line("configs", "--bootstrap-server", bootstrap, *words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _theirs(bootstrap: str, *words: str) -> str:
    return java.run("3.9.1", "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *words).stdout.decode()


def cases() -> list[Any]:
    """Each entity, with quotas set by one tool and removed by the other."""
    pairs = [(_ours, _theirs), (_theirs, _ours)]
    return [
        pytest.param(*pairs[pair], *ENTITIES[entity], marks=[] if (entity, pair) in USUAL else [pytest.mark.long])
        for entity, pair in itertools.product(range(len(ENTITIES)), range(len(pairs)))
    ]


@pytest.mark.parametrize(("setter", "remover", "entity", "quotas"), cases())
def test_each_tool_shows_and_removes_quotas_of_the_other(
    broker: Any, setter: Tool, remover: Tool, entity: tuple[str, ...], quotas: str
) -> None:
    done = setter(broker.bootstrap, "--alter", *entity, "--add-config", quotas)
    shown = [_sorted(tool(broker.bootstrap, "--describe", *entity)) for tool in (_ours, _theirs)]
    assert shown[0] == shown[1] != []
    keys = ",".join(pair.partition("=")[0] for pair in quotas.split(","))
    removed = remover(broker.bootstrap, "--alter", *entity, "--delete-config", keys)
    assert done == removed
    assert _sorted(_ours(broker.bootstrap, "--describe", *entity)) == []
    assert _sorted(_theirs(broker.bootstrap, "--describe", *entity)) == []


def _sorted(printed: str) -> list[list[str]]:
    """Sort the quotas of a line, which Kafka's tool prints in hash order."""
    lines = [line.partition(" are ") for line in printed.splitlines() if line.startswith("Quota configs")]
    return sorted([before, *sorted(after.split(", "))] for before, _, after in lines)


OTHERS = [
    ("--entity-type", "users", "--entity-name", "nobody"),
    ("--entity-type", "users", "--entity-default"),
    ("--entity-type", "users", "--entity-type", "clients"),
    ("--entity-type", "users", "--entity-type", "clients", "--entity-name", "käthe b"),
    ("--entity-type", "ips"),
]


@pytest.mark.parametrize(
    "entity",
    [
        ("--entity-type", "users"),
        ("--entity-type", "users", "--entity-name", "käthe b"),
        *(pytest.param(entity, marks=pytest.mark.long) for entity in OTHERS),
    ],
)
def test_credentials_are_shown_as_by_kafka(broker: Any, users: None, entity: tuple[str, ...]) -> None:
    ours, theirs = (tool(broker.bootstrap, "--describe", *entity).splitlines() for tool in (_ours, _theirs))
    assert sorted(ours) == sorted(theirs)


@pytest.fixture
def users(broker: Any) -> Iterator[None]:
    """Two users with credentials, one of them with a quota, and one user with a quota only."""
    bob = ("--entity-type", "users", "--entity-name", "bob")
    _ours(broker.bootstrap, "--alter", *bob, "--add-config", "producer_byte_rate=1")
    _ours(broker.bootstrap, "--alter", "--user", "käthe b", "--add-config", "producer_byte_rate=2")
    for name, *options in (("käthe b",), ("carol", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192")):
        _users(broker, "add", name, *options, "--password-stdin")
    yield
    for name in ("käthe b", "carol"):
        _users(broker, "remove", name)
    for name in ("käthe b", "bob"):
        _ours(broker.bootstrap, "--alter", "--user", name, "--delete-config", "producer_byte_rate")


def _users(broker: Any, *words: str) -> None:
    line = command_line("users", *words, "--bootstrap-server", broker.bootstrap)
    subprocess.run(line, input="hunter2\n", capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.long
def test_json_output_has_quotas_and_credentials(broker: Any, users: None) -> None:
    found = json.loads(_ours(broker.bootstrap, "--describe", "--entity-type", "users", "--json"))
    assert {(one["entity"]["user"], *one["quotas"], *one.get("scram", {}).items()) for one in found} == {
        ("bob", "producer_byte_rate"),
        ("käthe b", "producer_byte_rate", ("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096)),
        ("carol", ("SCRAM-SHA-512", 8192)),
    }


def test_unknown_quota_is_refused(broker: Any) -> None:
    for words in (
        ("--user", "alice", "--add-config", "retention.ms=5"),
        ("--client", "alice", "--add-config", "connection_creation_rate=5"),
        ("--user", "alice", "--delete-config", "SCRAM-SHA-256"),
    ):
        done = _altered(broker, words)
        assert done.returncode == 1
        assert words[3].partition("=")[0] in done.stderr
        assert done.stderr.count("\n") == 1


def test_password_in_an_argument_is_refused(broker: Any) -> None:
    done = _altered(broker, ("--user", "alice", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=x]"))
    assert done.returncode == 2
    assert "odradek users add" in done.stderr


def _altered(broker: Any, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    line = command_line("configs", "--bootstrap-server", broker.bootstrap, "--alter", *words)
    return subprocess.run(line, capture_output=True, text=True, timeout=120)
