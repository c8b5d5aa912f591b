"""A console that other machines reach: users of a real broker, what their ACLs show, and hostile readers."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from kafka.admin import KafkaAdminClient
from kafka.admin._acls import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)
from kafka.admin._users import UserScramCredentialDeletion, UserScramCredentialUpsertion

from odradek.broker.commands.tls import authority

from ....harness.browser import Browser
from ....harness.process import free_port, wait_until
from ....workers.authentication.secured_broker import SecuredBroker
from .conftest import GROUP, fill

pytestmark = pytest.mark.live

PASSWORDS = {"alice": "alice-secret-41c7", "root": "root-secret-0d2e", "zoë": "pässwörd-κλειδί-83b1:x"}
CAROL = "carol-secret-5b90"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{password}"' for user, password in PASSWORDS.items()
)


def login(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


NOBODY: Mapping[str, str] = MappingProxyType({})
ALICE, ROOT = login("alice", PASSWORDS["alice"]), login("root", PASSWORDS["root"])


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Secured(NamedTuple):
    """A broker whose console and metrics ask for users."""

    broker: SecuredBroker
    console: int
    metrics: int

    def get(self, path: str, headers: Mapping[str, str] = NOBODY, method: str = "GET", port: int = 0) -> Answer:
        """One request on a connection of its own."""
        context = ssl.create_default_context(cafile=self.broker.ca)
        connection = http.client.HTTPSConnection("127.0.0.1", port or self.console, context=context, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), answer.headers)

    def ask(self, view: str, who: dict[str, str], /, **parameters: object) -> Any:
        """The data of an address below /api/; of a refusal, its status and its line."""
        found = self.get(f"/api/{view}?{urlencode(parameters)}", who)
        return found.data if found.status == 200 else (found.status, found.data["error"])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """alice may read the topic orders and see its group, root may do everything, and so may clients without TLS."""
    console, metrics = free_port(), free_port()
    broker = SecuredBroker(
        tmp_path_factory.mktemp("users"), sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:ANONYMOUS;User:root",
        odradek_console_listener=f"0.0.0.0:{console}", odradek_metrics_listener=f"127.0.0.1:{metrics}",
        odradek_metrics_security_protocol="SASL_SSL", odradek_workers=1,
    )  # fmt: skip
    client = broker.folder / "console.properties"
    client.write_text("security.protocol=PLAINTEXT\n")
    broker.set(odradek_console_command_config=client)
    broker.properties |= {
        "odradek.exporter.listener.name": "SASL_SSL", "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{JAAS};",
    }  # fmt: skip
    made = Secured(broker, console, metrics)
    try:
        broker.start()
        wait_until(lambda: answers(made), 60, "the console answers")
        fill(broker)
        change(made, lambda admin: admin.create_acls(RULES))
        wait_until(lambda: names(made) == ["orders"], 30, "alice sees a topic")
        yield made
    finally:
        broker.close()


def answers(secured: Secured) -> bool:
    try:
        return secured.get("/").status == 401
    except OSError:
        return False


def rule(kind: ResourceType, name: str, operation: ACLOperation, user: str = "alice") -> ACL:
    pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)


READ_ORDERS = rule(ResourceType.TOPIC, "orders", ACLOperation.READ)
RULES = [READ_ORDERS, rule(ResourceType.GROUP, GROUP, ACLOperation.DESCRIBE)]


def change(secured: Secured, call: Callable[[Any], object]) -> None:
    """A change by an admin client."""
    admin = KafkaAdminClient(bootstrap_servers=secured.broker.bootstrap)
    try:
        call(admin)
    finally:
        admin.close()


def names(secured: Secured, who: dict[str, str] = ALICE) -> list[str]:
    return [row["name"] for row in secured.ask("topics", who)["rows"]]


@pytest.mark.smoke
def test_a_reader_sees_what_its_acls_allow(secured: Secured) -> None:
    found = secured.ask("overview", ALICE)
    assert (found["user"], found["topics"], found["processes"], found["findings"]) == ("User:alice", 1, [], [])
    assert "User:alice needs Describe on the cluster: odradek acls --add" in found["needs"] and "rates" not in found
    assert secured.ask("topic", ALICE, name="orders")["config"] is None
    wait_until(lambda: secured.ask("groups", ALICE)["total"] == 1, 30, "the group's offset is read")
    assert secured.ask("group", ALICE, name=GROUP)["rows"][0]["topic"] == "orders"
    assert len(secured.ask("messages", ALICE, topic="orders", limit=5)["rows"]) == 5
    everything = secured.ask("overview", ROOT)
    assert everything["topics"] >= 3 and everything["processes"] and everything["needs"] == ""
    assert {"orders", "payments", "clicks"} <= set(names(secured, ROOT))
    assert secured.ask("settings", ROOT)["total"] > 100


def test_without_a_user_nothing_is_said(secured: Secured) -> None:
    for path in ("/", "/console.js", "/api/topics", "/api/topic?name=orders", "/nothing"):
        found = secured.get(path)
        assert found.status == 401 and found.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert b"orders" not in found.body and found.body.count(b"\n") == 0


@pytest.mark.parametrize(
    ("view", "parameters"),
    [("topic", {"name": "payments"}), ("group", {"name": "other"}), ("messages", {"topic": "payments"})],
)
def test_what_a_reader_may_not_see_is_as_what_does_not_exist(
    secured: Secured, view: str, parameters: dict[str, str]
) -> None:
    status, line = secured.ask(view, ALICE, **parameters)
    (key, name), none = *parameters.items(), "nothing-at-all"
    assert status == 403 and "\n" not in line and "odradek acls --add --allow-principal User:alice" in line
    assert secured.ask(view, ALICE, **{key: none}) == (403, line.replace(name, none))
    kind = "Group" if view == "group" else "Topic"
    operation = "Read" if view == "messages" else "Describe"
    assert f"refused: User:alice from 127.0.0.1: {operation} on {kind} {name}" in secured.broker.log


def test_settings_need_describe_configs(secured: Secured) -> None:
    for view in ("settings", "differences"):
        status, line = secured.ask(view, ALICE)
        assert status == 403 and "User:alice needs DescribeConfigs on the cluster" in line


def test_names_and_passwords_may_have_any_character(secured: Secured) -> None:
    assert secured.ask("overview", login("zoë", PASSWORDS["zoë"]))["user"] == "User:zoë"
    assert secured.ask("overview", login("zoë", PASSWORDS["zoë"][:-1]))[0] == 401
    latin = base64.b64encode(f"zoë:{PASSWORDS['alice']}".encode("latin-1")).decode()
    assert secured.get("/", {"Authorization": f"Basic {latin}"}).status == 401


def test_a_wrong_user_many_times_holds_up_nobody_else(secured: Secured) -> None:
    """Who has logged in before is answered; the flood is refused, some of it at once."""

    def guess(number: int) -> int:
        return secured.get("/api/topics", login("alice", f"guess-{number}")).status

    with ThreadPoolExecutor(24) as pool:
        guesses = [pool.submit(guess, number) for number in range(48)]
        while not all(one.done() for one in guesses):
            assert names(secured) == ["orders"]
    found = {one.result() for one in guesses}
    assert found == {401, 429}
    assert "refused: a login from 127.0.0.1: wrong user or password" in secured.broker.log
    assert secured.get("/api/topics", ALICE).status == 200


def test_logins_at_once_are_all_answered(secured: Secured) -> None:
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: secured.get("/api/topics", login("zoë", PASSWORDS["zoë"])).status, range(40)))
    assert found == [200] * 40


def add_carol(secured: Secured) -> None:
    made = UserScramCredentialUpsertion("carol", "SCRAM-SHA-256", CAROL)
    change(secured, lambda admin: admin.alter_user_scram_credentials([made]))
    wait_until(lambda: secured.get("/", login("carol", CAROL)).status == 200, 30, "carol is known")


def remove_carol(secured: Secured) -> None:
    gone = UserScramCredentialDeletion("carol", "SCRAM-SHA-256")
    change(secured, lambda admin: admin.alter_user_scram_credentials([gone]))


def test_a_user_that_is_removed_is_out(secured: Secured) -> None:
    add_carol(secured)
    assert names(secured, login("carol", CAROL)) == []
    remove_carol(secured)
    wait_until(lambda: secured.get("/", login("carol", CAROL)).status == 401, 30, "carol is out")


def test_an_acl_that_is_removed_hides_at_once(secured: Secured) -> None:
    one = READ_ORDERS
    which = ACLFilter(one.principal, one.host, one.operation, one.permission_type, one.resource_pattern)
    change(secured, lambda admin: admin.delete_acls([which]))
    try:
        wait_until(lambda: names(secured) == [], 30, "alice sees no topic")
        assert secured.ask("messages", ALICE, topic="orders")[0] == 403
        assert secured.ask("group", ALICE, name=GROUP)["rows"] == []
    finally:
        change(secured, lambda admin: admin.create_acls([one]))
        wait_until(lambda: names(secured) == ["orders"], 30, "alice sees it again")


@pytest.mark.parametrize(
    "path",
    ["/api/../api/topics", "//api/topics", "/api/%2e%2e/%2e%2e/etc/passwd", "/API/TOPICS", "/api/topics/", "/%00"],
)
def test_no_path_goes_past_the_login(secured: Secured, path: str) -> None:
    assert secured.get(path).status == 401
    assert secured.get(path, ALICE).status in (200, 404)


def test_a_web_site_gets_nothing_by_the_readers_browser(secured: Secured) -> None:
    """The browser sends the password along, and a preflight without it."""
    there = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    preflight = secured.get("/api/topics", there, "OPTIONS")
    assert preflight.status == 405 and not [name for name in preflight.headers if "access-control" in name.lower()]
    assert secured.get("/api/topics", {**ALICE, "Sec-Fetch-Site": "cross-site"}).status == 403
    assert secured.get("/api/topics", ALICE, "POST").status == 405
    assert secured.get("/api/topics", {**ALICE, "Host": "console.example"}).status == 200


def test_hostile_connections_end_alone(secured: Secured) -> None:
    """Large heads, no TLS, silence: more of them than may wait."""
    huge = {"Authorization": "Basic " + "A" * 70_000}
    with contextlib.suppress(OSError):  # the answer and the end may come before all of it is sent
        assert secured.get("/", huge).status == 400
    with socket.create_connection(("127.0.0.1", secured.console), 30) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    silent = [socket.create_connection(("127.0.0.1", secured.console), 30) for _ in range(150)]
    try:
        assert names(secured) == ["orders"]
    finally:
        for one in silent:
            one.close()


def test_metrics_need_a_user_and_probes_do_not(secured: Secured) -> None:
    def metrics(path: str, who: Mapping[str, str] = NOBODY) -> Answer:
        return secured.get(path, who, port=secured.metrics)

    assert [metrics(path).status for path in ("/healthz", "/ready", "/metrics")] == [200, 200, 401]
    refused = metrics("/metrics", ALICE)
    assert refused.status == 403 and b"metrics: User:alice needs Describe on the cluster: odradek acls" in refused.body
    assert b"odradek_group_lag" in metrics("/metrics", ROOT).body
    elsewhere = metrics("/metrics", {**ROOT, "Sec-Fetch-Site": "cross-site"})
    assert elsewhere.status == 403 and b"another web site" in elsewhere.body


def test_a_new_certificate_is_served(secured: Secured) -> None:
    def serial() -> str:
        context = ssl.create_default_context(cafile=secured.broker.ca)
        plain = socket.create_connection(("127.0.0.1", secured.console), 30)
        with context.wrap_socket(plain, server_hostname="localhost") as wire:
            return str(wire.getpeercert()["serialNumber"])  # type: ignore[index]

    former = serial()
    authority.renew(secured.broker.tls, 90)
    wait_until(lambda: serial() != former, 60, "the new certificate")


# What a page gets once its reader has cancelled the browser's dialog, which no script can do.
CANCELLED = 'window.fetch = async () => new Response(\'{"error": "wrong user or password"}\', {status: 401})'


@pytest.mark.needs("chromium")
def test_a_browser_logs_in(secured: Secured, tmp_path: Path) -> None:
    """Also by an address with the password in it, which the page's own requests may not have.

    When its user is not known any more, the page says so and waits: each refresh would open the dialog again.
    """
    with Browser(tmp_path / "browser") as browser:
        browser.command("Security.setIgnoreCertificateErrors", ignore=True)
        browser.open(f"https://alice:{quote(PASSWORDS['alice'])}@localhost:{secured.console}/#/topics")
        browser.wait("document.body.innerText.includes('read as User:alice')", "the head names the reader")
        browser.wait("document.body.innerText.includes('1 topics')", "the topic is shown")
        browser.evaluate("location.hash = '#/overview'")
        browser.wait("document.body.innerText.includes('needs Describe on the cluster')", "the missing right is named")
        browser.evaluate(CANCELLED)
        browser.wait("document.body.innerText.includes('wrong user or password')", "the page says so")
        assert browser.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
        assert "PLAINTEXT://" not in browser.text() and browser.faults == []


def test_no_password_is_shown(secured: Secured) -> None:
    """The last test of this file: neither log, nor command lines, nor the settings have one."""
    settings = json.dumps(secured.ask("settings", ROOT, filter="jaas"))
    shown = secured.broker.log + str(secured.broker.commands()) + settings
    secrets = [*PASSWORDS.values(), CAROL, "guess-1", *(who["Authorization"].split()[1] for who in (ALICE, ROOT))]
    assert [secret for secret in secrets if secret in shown] == []
