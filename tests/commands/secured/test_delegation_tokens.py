"""Compares `odradek delegation-tokens` with kafka-delegation-tokens.sh, at Apache Kafka."""

from __future__ import annotations

import re
import subprocess

import pytest
from click.testing import CliRunner

from odradek.broker.commands.delegation_tokens import command
from tests.commands.conftest import command_line
from tests.harness import java
from tests.harness.process import wait_until

from .conftest import SCRAM, Secured

JAVA = "org.apache.kafka.tools.DelegationTokenCommand"
ALICE = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM}


def ours(secured: Secured, *words: str, stdin: str = "", **properties: str) -> subprocess.CompletedProcess[str]:
    connection = secured.connection("SASL", **(properties or ALICE))
    full = command_line("delegation-tokens", *connection, *words)
    return subprocess.run(full, capture_output=True, text=True, timeout=120, input=stdin)


def theirs(secured: Secured, *words: str) -> str:
    return java.run("3.9.1", JAVA, *secured.connection("SASL", **ALICE), *words).stdout.decode()


def shape(output: str) -> str:
    """The output with placeholders for the fields that differ for each token."""
    blank = re.sub(r"[\w-]{22}(?= )|(?<= )[\w-]{22}(?=\n)", "ID", output)
    return re.sub(r"20\d\d-[\dT:-]+ *", "DATE", re.sub(r"[A-Za-z0-9+/]{86}==", "HMAC", blank)).strip()


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_tokens_are_created_described_renewed_and_expired_as_by_kafka(secured: Secured) -> None:
    words = ["--create", "--max-life-time-period", "-1"]
    for name in ("bob", "c"):
        words += ["--renewer-principal", f"User:{name}"]
    made = ours(secured, *words)
    assert made.returncode == 0, made.stderr
    assert shape(made.stdout) == shape(theirs(secured, *words))
    (hmac,) = re.findall(r"[A-Za-z0-9+/]{86}==", made.stdout)
    (token,) = re.findall(r"tokenId : (\S+)", made.stdout)
    wait_until(lambda: token in ours(secured, "--describe").stdout, 30, "Kafka lists the token")
    mine = [
        "--describe",
        "--owner-principal",
        "User:al,i=ce",
    ]  # without an owner Kafka's tool lists no token
    described, expected = ours(secured, *mine).stdout, theirs(secured, *mine)
    assert token in described and sorted(described.splitlines()) == sorted(expected.splitlines())
    jaas = SCRAM.replace("al,i=ce", token).replace('password="', f'tokenauth=true password="{hmac}" x="')
    listed = secured.topics("SASL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas)
    assert listed.returncode == 0, listed.stderr
    renewed = ours(secured, "--renew", "--renew-time-period", "1000000", "--hmac", "-", stdin=hmac + "\n")
    assert renewed.returncode == 0 and "Completed renew operation. New expiry date" in renewed.stdout, renewed.stderr
    ended = ours(secured, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert ended.returncode == 0 and "Completed expire operation" in ended.stdout
    assert hmac not in renewed.stdout + ended.stdout
    wait_until(lambda: token not in ours(secured, "--describe").stdout, 30, "the token is deleted")


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_refused_renewal_is_an_error(secured: Secured) -> None:
    done = ours(secured, "--renew", "--renew-time-period", "1", "--hmac", "AAAA")
    assert done.returncode == 1 and "DELEGATION_TOKEN_NOT_FOUND" in done.stderr.upper().replace(" ", "_"), done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "exactly one action"),
        (["--create"], "--create needs --max-life-time-period"),
        (["--renew", "--renew-time-period", "1"], "--renew needs --hmac"),
        (["--create", "--max-life-time-period", "1", "--hmac", "x"], "--hmac cannot be given with --create"),
        (["--describe"], "give --command-config"),
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], text: str) -> None:
    done = CliRunner().invoke(command, ["--bootstrap-server", "127.0.0.1:1", *words])
    assert done.exit_code == 2 and text in done.output
