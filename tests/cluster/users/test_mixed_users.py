"""Users and delegation tokens in one cluster of Apache Kafka 3.9.1 and this broker: each knows those of the other."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster import user_store
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.security.sasl import delegation_tokens
from odradek.security.sasl.client_exchange import AuthenticationError
from odradek.security.sasl.delegation_tokens import TokenSettings
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism, derive
from odradek.workers.dispatch.credentials import LiveCredentials
from tests.harness.apache import ApacheMember
from tests.harness.broker import Broker
from tests.harness.controller_process import ControllerProcess, catalog
from tests.harness.process import free_port, wait_until
from tests.harness.wire import Wire, informed
from tests.harness.zookeeper import ZooKeeper

from .sasl_wire import SaslWire
from .scram_requests import SECRET, alter, deletion, describe, upsertion

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SHA_256 = ScramMechanism.SCRAM_SHA_256
KEY = "the key of the cluster"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
DAY = 86_400_000


class Mixed:
    """Apache Kafka, the controller, with a SASL listener; and this broker, whose workers' lookups are used."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper").start()
        stack.callback(self.zookeeper.kill)
        self.kafka = ApacheMember(folder / "kafka", 0, self.zookeeper.connect)
        self.sasl = f"127.0.0.1:{free_port()}"
        self.kafka.properties.write_text(self.kafka.properties.read_text() + self._sasl_properties())
        stack.callback(self.kafka.kill)
        self.kafka.start()
        self.ours = Broker(
            folder / "ours", broker_id=1, zookeeper_connect=self.zookeeper.connect, zookeeper_session_timeout_ms=6000,
            delegation_token_master_key=KEY, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        )  # fmt: skip
        stack.callback(self.ours.close)
        self.ours.start()
        wait_until(lambda: informed([self.kafka.bootstrap, self.ours.bootstrap]), 30, "both to know both")
        self.tree = ZooKeeperTree(self.zookeeper.connect)
        with Wire(self.kafka.bootstrap) as wire:
            assert alter(wire, [upsertion("alice"), upsertion("bob")]) == [("alice", 0, ""), ("bob", 0, "")]

    def _sasl_properties(self) -> str:
        return f"""
listeners=PLAINTEXT://{self.kafka.bootstrap},SASL://{self.sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.scram-sha-256.sasl.jaas.config={MODULE}
listener.name.sasl.scram-sha-512.sasl.jaas.config={MODULE}
delegation.token.secret.key={KEY}
"""

    @property
    def live(self) -> LiveCredentials:
        """The credential lookups of one of our workers."""
        return LiveCredentials(catalog(self.ours), TokenSettings(Password(KEY)))

    def knows_token(self, token_id: str) -> bool:
        """Whether our workers accept this token."""
        return self.live.credential(SHA_256, token_id, 0) is not None


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    with ExitStack() as stack:
        yield Mixed(tmp_path_factory.mktemp("mixed"), stack)


@pytest.fixture
def theirs(mixed: Mixed) -> Iterator[SaslWire]:
    """A connection of alice to Kafka."""
    wire = wait_until(lambda: signed_in(mixed, "alice", SECRET), 30, "alice signs in at Kafka")
    yield wire
    wire.close()


@pytest.fixture
def ours(mixed: Mixed) -> Iterator[ControllerProcess]:
    """Our controller process, with requests of alice as a worker forwards them."""
    process = ControllerProcess(mixed.ours, "User:alice")
    yield process
    process.close()


def signed_in(mixed: Mixed, user: str, secret: str, token: bool = False) -> SaslWire | None:
    try:
        return SaslWire(mixed.sasl, user, secret, token=token)
    except AuthenticationError:
        return None


def secret_of(hmac: bytes) -> str:
    return base64.b64encode(hmac).decode()


# -- users


def test_user_created_by_kafka_is_known_here(mixed: Mixed) -> None:
    with Wire(mixed.kafka.bootstrap) as wire:
        alter(wire, [upsertion("new"), upsertion("new", 2)])
        wait_until(lambda: mixed.live.scram(SHA_256, "new"), 10, "our workers know it")
        alter(wire, [], [deletion("new")])
        wait_until(lambda: mixed.live.scram(SHA_256, "new") is None, 10, "our workers forget the credential")
        assert mixed.live.scram(ScramMechanism.SCRAM_SHA_512, "new")
        alter(wire, [], [deletion("new", 2)])
    with Wire(mixed.ours.bootstrap) as wire:
        assert describe(wire, ["new"])[1][0][1] == Error.RESOURCE_NOT_FOUND


def test_broker_that_is_not_the_controller_refuses_scram_changes(mixed: Mixed) -> None:
    with Wire(mixed.ours.bootstrap) as wire:
        code, text = Error.NOT_CONTROLLER, "This is not the correct controller for this cluster."
        assert alter(wire, [upsertion("b"), upsertion("a")], [deletion("a")]) == [("a", code, text), ("b", code, text)]


def test_user_created_here_authenticates_at_kafka(mixed: Mixed) -> None:
    """The user's node is as `odradek users add --zookeeper` writes it."""
    made = derive(SHA_256, Password("of ours"), 8192)
    user_store.write_credentials(mixed.tree, "our user", {SHA_256: made})
    wire = wait_until(lambda: signed_in(mixed, "our user", "of ours"), 10, "Kafka knows it")
    wire.close()
    assert wait_until(lambda: mixed.live.scram(SHA_256, "our user"), 10, "our workers know it") == made


def test_workers_use_the_decoy_key_of_the_tree(mixed: Mixed) -> None:
    key = base64.b64decode(mixed.tree.get("/odradek/scram_decoy_key")[0])
    assert len(key) == 32 and mixed.live.decoy_key() == key


# -- delegation tokens


def create(asked: Any, version: int = 3, **fields: Any) -> Any:
    return asked.ask("CreateDelegationToken", version, **({"renewers": [], "max_lifetime_ms": -1} | fields))


def described(asked: Any, owners: list[str] | None = None) -> dict[str, Any]:
    row = message_class("DescribeDelegationTokenRequest").DescribeDelegationTokenOwner
    named = None if owners is None else [row(principal_type="User", principal_name=owner) for owner in owners]
    answer = asked.ask("DescribeDelegationToken", 3, owners=named)
    assert answer.error_code == 0
    return {token.token_id: repr(token) for token in answer.tokens}


def renewer(name: str, kind: str = "User") -> Any:
    return message_class("CreateDelegationTokenRequest").CreatableRenewers(principal_type=kind, principal_name=name)


def test_token_created_here_is_valid_at_kafka(mixed: Mixed, ours: ControllerProcess, theirs: SaslWire) -> None:
    made = create(ours, renewers=[renewer("bob"), renewer("a b:c")])
    assert made.error_code == 0 and mixed.knows_token(made.token_id)
    secret = secret_of(made.hmac)
    token = wait_until(lambda: signed_in(mixed, made.token_id, secret, True), 10, "Kafka takes the token")
    answer = create(token)
    assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    token.close()
    assert described(theirs)[made.token_id] == described(ours)[made.token_id]
    renewed = theirs.ask("RenewDelegationToken", 2, hmac=made.hmac, renew_period_ms=2 * DAY)
    assert renewed.error_code == 0
    expiry = str(renewed.expiry_timestamp_ms)
    wait_until(lambda: expiry in described(ours)[made.token_id], 10, "our controller knows the renewal")
    assert ours.ask("ExpireDelegationToken", 2, hmac=made.hmac, expiry_time_period_ms=-1).error_code == 0
    assert not mixed.knows_token(made.token_id)
    wait_until(lambda: not signed_in(mixed, made.token_id, secret, True), 10, "Kafka forgets the token")


def test_token_created_by_kafka_is_valid_here(mixed: Mixed, ours: ControllerProcess, theirs: SaslWire) -> None:
    made = create(theirs, owner_principal_type="User", owner_principal_name="bob", renewers=[renewer("alice")])
    wait_until(lambda: mixed.knows_token(made.token_id), 10, "our workers know the token")
    credential = mixed.live.credential(SHA_256, made.token_id, 0)
    assert credential and credential.owner == "bob"
    assert described(theirs) == described(ours)
    assert ours.ask("RenewDelegationToken", 1, hmac=made.hmac, renew_period_ms=-1).error_code == 0
    assert theirs.ask("ExpireDelegationToken", 1, hmac=made.hmac, expiry_time_period_ms=-1).error_code == 0
    wait_until(lambda: not mixed.knows_token(made.token_id), 10, "our workers forget the token")


def test_token_node_equals_kafkas(mixed: Mixed, ours: ControllerProcess, theirs: SaslWire) -> None:
    shapes = []
    for asked in (theirs, ours):
        made = create(asked, renewers=[renewer("a b/c*~é:=,")])
        data = mixed.tree.get(f"{delegation_tokens.TOKENS_PATH}/{made.token_id}")[0].decode()
        times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
        for own in (made.token_id, *map(str, times)):
            data = data.replace(own, "OWN")
        shapes.append(sorted(data.strip("{}").split(",")))
    assert shapes[0] == shapes[1]


REQUESTS: list[tuple[str, int, dict[str, Any]]] = [
    ("CreateDelegationToken", 3, {"renewers": [renewer("g", "Group")], "max_lifetime_ms": 5}),
    ("RenewDelegationToken", 2, {"hmac": b"", "renew_period_ms": 5}),
    ("RenewDelegationToken", 0, {"hmac": bytes(64), "renew_period_ms": 5}),
    ("ExpireDelegationToken", 2, {"hmac": b"x", "expiry_time_period_ms": -1}),
    ("DescribeDelegationToken", 3, {"owners": []}),
    ("DescribeDelegationToken", 0, {"owners": []}),
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_refusals_equal_kafkas(ours: ControllerProcess, theirs: SaslWire, number: int) -> None:
    name, version, fields = REQUESTS[number]
    assert repr(ours.ask(name, version, **fields)) == repr(theirs.ask(name, version, **fields))


def test_only_owner_and_renewer_may_change_a_token(mixed: Mixed, ours: ControllerProcess, theirs: SaslWire) -> None:
    bob = ControllerProcess(mixed.ours, "User:bob")
    made = create(bob)
    wait_until(lambda: made.token_id in described(theirs), 10, "Kafka knows it")
    for name, period in (("Renew", "renew_period_ms"), ("Expire", "expiry_time_period_ms")):
        answers = [asked.ask(f"{name}DelegationToken", 2, hmac=made.hmac, **{period: 5}) for asked in (ours, theirs)]
        assert repr(answers[0]) == repr(answers[1])
        assert answers[0].error_code == Error.DELEGATION_TOKEN_OWNER_MISMATCH
    bob.close()


def test_token_lifetimes_equal_kafkas(ours: ControllerProcess, theirs: SaslWire) -> None:
    for most in (-1, 0, 1000, DAY, 8 * DAY):
        spans = []
        for asked in (theirs, ours):
            made = create(asked, max_lifetime_ms=most)
            since = made.issue_timestamp_ms
            spans.append((made.max_timestamp_ms - since, made.expiry_timestamp_ms - since))
        assert spans[0] == spans[1], most


@pytest.mark.parametrize(
    ("listener", "principal", "by_token"),
    [("PLAINTEXT", "User:ANONYMOUS", False), ("PLAINTEXT", "User:alice", False), ("SASL", "User:alice", True)],
)
def test_unauthenticated_or_token_clients_may_not_request_tokens(
    mixed: Mixed, listener: str, principal: str, by_token: bool
) -> None:
    process = ControllerProcess(mixed.ours, principal, listener, by_token)
    assert create(process).error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for name, _, fields in REQUESTS[1:]:
        assert process.ask(name, 1, **fields).error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    process.close()


def test_no_secret_is_in_the_log_or_a_command_line(mixed: Mixed, ours: ControllerProcess) -> None:
    made = create(ours)
    shown = mixed.ours.log + mixed.ours.command("status").stdout
    shown += repr(mixed.ours.commands())
    for secret in (KEY, SECRET, secret_of(made.hmac), made.hmac.hex(), repr(made.hmac)):
        assert secret not in shown
