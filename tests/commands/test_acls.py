"""`odradek acls`: the ACLs that its options select, and its output compared with Apache Kafka's tool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from odradek.broker.commands.acls import acl_options, command
from odradek.broker.commands.acls.change_acls import create_request, delete_request
from odradek.broker.commands.acls.list_acls import describe_request
from odradek.security.acls.acl_filters import ResourcePatternFilter
from odradek.security.acls.acl_types import Operation

from ..harness import java
from ..harness.apache import Apache
from .conftest import command_line

ALICE = ("--allow-principal", "User:alice")


def wanted(*words: str) -> dict[str, list[str]]:
    """The ACLs that a command requests, as text."""
    options = command.make_context("acls", ["--bootstrap-server", "x", *words]).params
    found = acl_options.listed(options) if options["list"] else acl_options.changed(options)
    return {str(resource): [str(entry) for entry in entries] for resource, entries in found.items()}


def pattern(kind: str, name: str, pattern_type: str = "LITERAL") -> str:
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern_type})"


def allow(operation: str, host: str = "*", permission: str = "ALLOW", principal: str = "User:alice") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def test_default_is_all_operations() -> None:
    assert wanted("--add", *ALICE, "--topic", "t") == {pattern("TOPIC", "t"): [allow("ALL")]}


def test_principals_operations_and_hosts_are_multiplied() -> None:
    words = ("--operation", "read", "--operation", "Describe", "--allow-host", "h", "--allow-host", "10.0.0.0/8")
    denied = ("--deny-principal", "User:bob", "--resource-pattern-type", "prefixed")
    found = wanted("--add", *ALICE, *words, *denied, "--topic", "t", "--group", "g")
    entries = [
        allow(operation, host) for operation in ("READ", "DESCRIBE") for host in ("h", "10.0.0.0/8")
    ] + [allow(operation, "*", "DENY", "User:bob") for operation in ("READ", "DESCRIBE")]  # fmt: skip
    assert found == {pattern("TOPIC", "t", "PREFIXED"): entries, pattern("GROUP", "g", "PREFIXED"): entries}


def test_producer_and_consumer_options_add_the_acls_of_their_roles() -> None:
    producer = ("--producer", "--idempotent", "--transactional-id", "x")
    found = wanted("--add", *ALICE, *producer, "--consumer", "--topic", "t", "--group", "g")
    assert found == {
        pattern("TOPIC", "t"): [allow("WRITE"), allow("DESCRIBE"), allow("CREATE"), allow("READ")],
        pattern("TRANSACTIONAL_ID", "x"): [allow("WRITE"), allow("DESCRIBE")],
        pattern("GROUP", "g"): [allow("READ")],
        pattern("CLUSTER", "kafka-cluster"): [allow("IDEMPOTENT_WRITE")],
    }


def test_removal_without_entries_removes_all_acls() -> None:
    assert wanted("--remove", "--topic", "t", "--topic", "t") == {pattern("TOPIC", "t"): []}
    assert wanted("--list") == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--add --remove", "exactly one action"),
        ("--topic t", "exactly one action"),
        ("--add --allow-principal User:a", "give a resource"),
        ("--add --topic t", "--add needs --allow-principal"),
        ("--add --topic t --allow-principal alice", "User:alice"),
        ("--add --topic t --allow-principal User:a --resource-pattern-type match", "literal or prefixed"),
        ("--add --group g --allow-principal User:a --operation Write", "GROUP has only the operations Read"),
        ("--add --group g --allow-principal User:a --operation Fly", "must be one of All, Read"),
        ("--add --producer --allow-principal User:a --group g", "--producer needs --topic"),
        ("--add --consumer --allow-principal User:a --topic t", "needs --topic and --group"),
        ("--add --consumer --topic t --group g --cluster --allow-principal User:a", "--cluster cannot be given"),
        ("--add --producer --topic t --operation Read --allow-principal User:a", "--operation cannot be given"),
        ("--add --idempotent --topic t --allow-principal User:a", "with --producer only"),
        ("--list --allow-principal User:a", "--allow-principal cannot be given with --list"),
        ("--add --topic t --principal User:a", "with --list only"),
    ],
)
def test_wrong_usage_is_one_line(words: str, message: str) -> None:
    result = CliRunner().invoke(command, ["--bootstrap-server", "127.0.0.1:1", *words.split()])
    assert result.exit_code == 2 and message in result.output.splitlines()[-1]


def test_requests_can_be_written_in_every_version() -> None:
    options = command.make_context("acls", ["--bootstrap-server", "x", "--add", *ALICE, "--topic", "t"]).params
    for resource, entries in acl_options.changed(options).items():
        for request in (create_request(resource, entries), delete_request(resource, entries)):
            assert all(request.encode(version=version) for version in range(1, 4))
        assert len(delete_request(resource, []).filters) == 1
        assert entries[0].operation == Operation.ALL
    assert all(describe_request(ResourcePatternFilter()).encode(version=version) for version in range(1, 4))


def test_an_unknown_principal_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="User:alice"):
        acl_options.principals(["alice"])


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache Kafka with an authorizer for which every user is a super user."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    users = {"super_users": "User:ANONYMOUS", "authorizer_class_name": authorizer}
    broker = Apache("3.9.1", tmp_path_factory.mktemp("apache"), **users)
    yield broker.start()
    broker.stop()


LINES = [
    "--add --allow-principal User:alice --topic t",
    "--add --deny-principal User:bob --deny-host 1.2.3.4 --operation Read --topic t",
    "--add --allow-principal User:carol --consumer --topic p --group g --resource-pattern-type prefixed",
    "--list",
    "--list --topic t",
    "--list --topic p --resource-pattern-type match",
    "--list --principal User:bob --principal User:nobody",
    "--remove --allow-principal User:alice --topic t --force",
    "--list --topic t",
    "--remove --topic p --resource-pattern-type any --force",
    "--list",
]


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_output_and_effect_equal_kafkas_tool(apache: Apache) -> None:
    """Both tools run each line; the second addition or removal changes nothing."""
    for line in LINES:
        words = ["--bootstrap-server", apache.bootstrap, *line.split()]
        ours = subprocess.run(command_line("acls", *words), capture_output=True, text=True, timeout=120, check=True)
        theirs = java.run("3.9.1", "kafka.admin.AclCommand", *words).stdout.decode()
        assert printed(ours.stdout) == printed(theirs), line


def printed(text: str) -> Any:
    """Resources and their ACLs, sorted, since Kafka prints them in hash order."""
    return sorted(sorted(line.strip() for line in part.split("\n")) for part in text.split("\n\n"))


@pytest.mark.live
def test_broker_without_authorizer_is_an_error(broker: Any, tmp_path: Path) -> None:
    words = command_line("acls", "--bootstrap-server", broker.bootstrap, "--list")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "No Authorizer is configured on the broker" in done.stderr
