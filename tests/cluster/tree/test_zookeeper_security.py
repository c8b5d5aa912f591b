"""Sessions with a real ZooKeeper over TLS, and authenticated ones: SASL DIGEST-MD5, certificates, ACLs."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.interbroker import zookeeper_credentials, zookeeper_session
from odradek.cluster.configs import configdef
from odradek.cluster.tree import tree as t
from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ...harness.process import wait_until
from ...harness.zookeeper import ZooKeeper
from ...security.tls.conftest import private
from .secured_zookeeper import LOGIN, NOW, PROVIDERS, SecuredZooKeeper

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SESSION_MS = 10_000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    running = SecuredZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield running
    running.zookeeper.kill()


Open = Callable[..., ZooKeeperTree]


class Config(dict[str, Any]):
    """A broker's typed settings."""

    run_dir = Path("/nowhere")

    def __init__(self, **changes: Any) -> None:
        super().__init__({name: configdef.broker_default(name) for name in configdef.BROKER})
        self.update({name.replace("_", "."): value for name, value in changes.items()})
        self.update({name: self.pop(name.lower()) for name in ("zookeeper.clientCnxnSocket",) if name.lower() in self})


def tls(secured: SecuredZooKeeper, **changes: Any) -> dict[str, Any]:
    """The settings for the secure port."""
    given = {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": secured.trusted}
    return given | {"zookeeper_connect": f"localhost:{secured.port}"} | changes


@pytest.fixture
def connect(secured: SecuredZooKeeper) -> Iterator[Open]:
    """Opens sessions with a broker's settings, below this test's path."""
    opened: list[ZooKeeperTree] = []
    chroot = f"/test-{time.monotonic_ns()}"

    def connect(path: str = chroot, **changes: Any) -> ZooKeeperTree:
        given = {
            "zookeeper_connect": secured.zookeeper.connect,
            "zookeeper_session_timeout_ms": 3 * SESSION_MS,
        } | changes
        given["zookeeper_connect"] = f"{given['zookeeper_connect']}{path}"
        opened.append(zookeeper_session.open_tree(Config(**given)))  # type: ignore[arg-type]  # a test double
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def version_of(tree: ZooKeeperTree) -> str | None:
    return tree._client._connection._socket.version()


def acl_of(tree: ZooKeeperTree, path: str) -> set[tuple[str, str, int]]:
    return {(acl.id.scheme, acl.id.id, acl.perms) for acl in tree._client.get_acls(path)[0]}


# -- TLS


@pytest.mark.parametrize("versions", [{}, {"zookeeper_ssl_enabled_protocols": ["TLSv1.3", "TLSv1.2"]}])
def test_session_over_tls_reads_and_writes(secured: SecuredZooKeeper, connect: Open, versions: dict[str, Any]) -> None:
    tree = connect(**tls(secured, **versions))
    assert version_of(tree) == "TLSv1.2", "the version of this ZooKeeper"
    tree.ensure("/many")
    tree.multi([t.Create(f"/many/{n}", b"%d" % n * 100) for n in range(500)])
    found = tree.get_many([f"/many/{n}" for n in range(500)])
    assert [one and one[0] for one in found] == [b"%d" % n * 100 for n in range(500)]


def test_large_node_is_read_over_tls(secured: SecuredZooKeeper, connect: Open) -> None:
    tree = connect(**tls(secured))
    tree.create("/large", bytes(900_000))
    assert tree.get("/large", watch=True)[0] == bytes(900_000)
    tree.set("/large", b"x" * 900_000)
    events: list[t.Event] = []
    wait_until(lambda: events.extend(tree.poll()) or t.Event(t.CHANGED, "/large") in events, 20, "the event")


def test_lost_connection_is_replaced_over_tls(secured: SecuredZooKeeper, connect: Open) -> None:
    import socket

    tree = connect(**tls(secured))
    session = tree.session
    tree._client._connection._socket.shutdown(socket.SHUT_RDWR)
    events: list[t.Event] = []
    wait_until(lambda: events.extend(tree.poll()) or t.Event(t.DISCONNECTED, "/") in events, 20, "the loss")
    wait_until(lambda: tree._client.connected, 20, "the next connection")
    assert tree.session == session and isinstance(tree._client._connection._socket, ssl.SSLSocket)


@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_certificate_authenticates_a_user(secured: SecuredZooKeeper, connect: Open, kind: str) -> None:
    path = secured.pair("broker1", [])
    given: dict[str, Any] = {"zookeeper_ssl_keystore_location": path}
    if kind == "p12":
        given = {"zookeeper_ssl_keystore_location": _pkcs12(Path(path)), "zookeeper_ssl_keystore_password": "hunter4"}
    tree = connect(**tls(secured, zookeeper_set_acl=True, **given))
    tree.ensure("/brokers")
    assert acl_of(tree, "/brokers") == {("x509", "CN=broker1", 31), ("world", "anyone", 1)}
    with pytest.raises(t.TreeUnavailable, match="NoAuth"):
        connect(**tls(secured)).create("/brokers/ids")


def _pkcs12(pem: Path) -> str:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    pair = certificates.load(pem.read_bytes())
    data = pkcs12.serialize_key_and_certificates(
        b"k", pair.key, pair.certificate, None, BestAvailableEncryption(b"hunter4")
    )
    return private(pem.with_suffix(".p12"), data)


def test_untrusted_certificate_error_names_the_setting(
    secured: SecuredZooKeeper, connect: Open, tmp_path: Path
) -> None:
    other = private(tmp_path / "other.pem", certificates.new_ca(NOW, "Other").certificate_pem)
    given = {"zookeeper_connection_timeout_ms": 2000}
    with pytest.raises(OdradekError, match=r"certificate is refused: .*\(ssl.truststore.location\)"):
        connect(**tls(secured, zookeeper_ssl_truststore_location=other), **given)
    with pytest.raises(OdradekError, match=r"\(ssl.endpoint.identification.algorithm\)"):
        connect(**tls(secured, zookeeper_connect=f"127.0.0.1:{secured.port}"), **given)
    any_name = {"zookeeper_connect": f"127.0.0.1:{secured.port}"}
    assert connect(**tls(secured, **any_name, zookeeper_ssl_endpoint_identification_algorithm=""), **given).session


def test_error_of_a_port_without_tls_names_the_setting(secured: SecuredZooKeeper, connect: Open) -> None:
    plain = {"zookeeper_connect": f"localhost:{secured.zookeeper.port}", "zookeeper_connection_timeout_ms": 3000}
    with pytest.raises(OdradekError, match=r"does not respond: TLS with localhost \(zookeeper.ssl.client.enable\)"):
        connect(**tls(secured, **plain))


# -- SASL


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(("user", "password"), [("kafka", "hunter2"), ("käthe", 'pass"wörd€')])
def test_jaas_user_owns_the_nodes(
    secured: SecuredZooKeeper, connect: Open, user: str, password: str, over_tls: bool
) -> None:
    given = tls(secured) if over_tls else {}
    given["odradek_zookeeper_login_config"] = secured.jaas(user, password)
    tree = connect(**given, zookeeper_set_acl=True)
    for path in ("/consumers/ours", "/brokers", "/config/users"):
        tree.ensure(path)
    everything = ("sasl", user, 31)
    assert acl_of(tree, "/") == acl_of(tree, "/brokers") == {everything, ("world", "anyone", 1)}
    assert acl_of(tree, "/config/users") == {everything}
    assert acl_of(tree, "/consumers") == {("world", "anyone", 31)}


def test_wrong_password_is_one_line_without_the_password(secured: SecuredZooKeeper, connect: Open) -> None:
    with pytest.raises(
        BootError, match=r"odradek.zookeeper.login.config: ZooKeeper refuses user or password"
    ) as caught:
        connect(odradek_zookeeper_login_config=secured.jaas("kafka", "hunter5"))
    assert "hunter5" not in str(caught.value) and "\n" not in str(caught.value)


def test_user_is_authenticated_again_after_a_lost_connection(secured: SecuredZooKeeper, connect: Open) -> None:
    import socket

    tree = connect(odradek_zookeeper_login_config=secured.jaas("kafka", "hunter2"), zookeeper_set_acl=True)
    tree._client._connection._socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: _creates(tree, "/brokers"), 20, "a node")
    assert ("sasl", "kafka", 31) in acl_of(tree, "/brokers")


def _creates(tree: ZooKeeperTree, path: str) -> bool:
    try:
        tree.ensure(path)
    except t.TreeUnavailable:
        return False
    return True


# -- ZooKeeper refuses the user after a lost connection

_NO_DIGEST = "-Dzookeeper.DigestAuthenticationProvider.enabled=false"


class Restarted:
    """A separate server that restarts with other options, and the sessions with it."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.zookeeper = ZooKeeper(folder / "server", options=options).start()
        self.trees: list[ZooKeeperTree] = []

    def open(self, **changes: Any) -> ZooKeeperTree:
        given = {"zookeeper_connect": self.zookeeper.connect, "zookeeper_session_timeout_ms": 3 * SESSION_MS} | changes
        self.trees.append(zookeeper_session.open_tree(Config(**given)))  # type: ignore[arg-type]  # a test double
        return self.trees[-1]

    def restart(self, options: list[str]) -> None:
        self.zookeeper.kill()
        self.zookeeper._options = options
        self.zookeeper.start()

    def close(self) -> None:
        for tree in self.trees:
            tree.close()
        self.zookeeper.kill()


@pytest.fixture
def jaas(tmp_path: Path) -> Callable[[str], list[str]]:
    """The options of a server with a user kafka and this password."""

    def options(password: str) -> list[str]:
        text = f'Server {{ {LOGIN} user_kafka="{password}"; }};'
        path = private(tmp_path / f"{password}.conf", text.encode())
        return [
            f"-Djava.security.auth.login.config={path}",
            f"-Dzookeeper.authProvider.sasl={PROVIDERS}SASLAuthenticationProvider",
        ]

    return options


@pytest.mark.parametrize("setting", ["odradek.zookeeper.auth", "odradek.zookeeper.login.config"])
def test_session_continues_after_its_user_was_refused_for_a_while(
    setting: str, tmp_path: Path, jaas: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted server refuses the user for a while: the session counts as disconnected, and one line is logged."""
    client = private(tmp_path / "client.conf", f'Client {{ {LOGIN} username="kafka" password="hunter2"; }};'.encode())
    value, takes, refuses = {
        "odradek.zookeeper.auth": ("digest:kafka:hunter2", [], [_NO_DIGEST]),
        "odradek.zookeeper.login.config": (client, jaas("hunter2"), jaas("hunter3")),
    }[setting]
    server = Restarted(tmp_path, takes)
    try:
        tree = server.open(**{setting.replace(".", "_"): value}, zookeeper_set_acl=True)
        session = tree.session
        tree.ensure("/brokers")
        tree.poll()
        server.restart(refuses)
        wait_until(lambda: setting in caplog.text, 20, "the line")
        lines = _over(2, tree, caplog)
        assert len(lines) == 1 and lines[0].startswith(f"{setting}: ZooKeeper refuses "), lines
        assert lines[0].endswith("; trying again") and "hunter" not in caplog.text
        assert [event.kind for event in tree.poll()] == [t.DISCONNECTED], (
            "the session is disconnected until the user is authenticated"
        )
        server.restart(takes)
        wait_until(lambda: _creates(tree, "/config"), 30, "a node")
        assert acl_of(tree, "/config") == acl_of(tree, "/brokers") and tree.session == session
        assert [event.kind for event in tree.poll()] == [t.CONNECTED]
    finally:
        server.close()


def _over(seconds: float, tree: ZooKeeperTree, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines logged during retries; no request is sent meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with pytest.raises(t.NotDone):
            tree.exists("/")
    return [one.getMessage() for one in caplog.records if one.name.startswith("odradek") and one.levelno >= 30]


def test_refused_user_of_a_resumed_session_is_no_boot_error(tmp_path: Path) -> None:
    """The broker serves; a BootError would stop it permanently (broker.errors)."""
    server = Restarted(tmp_path, [])
    auth = {"odradek_zookeeper_auth": "digest:kafka:hunter2"}
    try:
        session = server.open(**auth).credentials
        server.restart([_NO_DIGEST])
        config: Any = Config(zookeeper_connect=server.zookeeper.connect, **auth)
        with pytest.raises(OdradekError, match=r"odradek.zookeeper.auth: ZooKeeper refuses this") as caught:
            zookeeper_session.open_tree(config, session)
        assert not isinstance(caught.value, BootError)
    finally:
        server.close()


def test_start_with_a_refused_user_is_a_boot_error(tmp_path: Path) -> None:
    server = Restarted(tmp_path, [_NO_DIGEST])
    try:
        with pytest.raises(
            BootError, match=r"refused the connection: odradek.zookeeper.auth: ZooKeeper refuses"
        ) as one:
            server.open(odradek_zookeeper_auth="digest:kafka:hunter2")
        assert "hunter2" not in str(one.value) and "\n" not in str(one.value)
    finally:
        server.close()


# -- zookeeper.set.acl


def test_tree_with_open_acls_is_refused(secured: SecuredZooKeeper, connect: Open) -> None:
    """The tree is as after Kafka's first step to a secure ZooKeeper; Kafka's tool, which sets ACLs, is the second."""
    login = {"odradek_zookeeper_login_config": secured.jaas("kafka", "hunter2")}
    tree = connect(**login)
    for path in znodes.PERSISTENT:
        tree.ensure(path)
    tree.create("/odradek/starts", b"1")
    config: Any = Config(**login, zookeeper_set_acl=True)
    with pytest.raises(BootError, match=r"zookeeper.set.acl: any client may change /brokers/ids and \d+ other nodes"):
        zookeeper_session._check_acls(connect(**login, zookeeper_set_acl=True), config)
    assert not tree.is_open("/odradek/starts") and not tree.is_open("/odradek")
    closed = connect(**login, zookeeper_set_acl=True)
    for path in ("/brokers", "/config", "/admin", "/isr_change_notification", "/log_dir_event_notification",
                 "/latest_producer_id_block", "/cluster"):  # fmt: skip
        closed.close_off(path)
    zookeeper_session._check_acls(closed, config)
    assert tree.is_open("/consumers")


def test_new_tree_has_closed_acls(secured: SecuredZooKeeper, connect: Open) -> None:
    given = {"odradek_zookeeper_login_config": secured.jaas("kafka", "hunter2"), "zookeeper_set_acl": True}
    tree = connect(**given)
    for path in znodes.PERSISTENT:
        tree.ensure(path)
    zookeeper_session._check_acls(tree, Config(**given))  # type: ignore[arg-type]  # a test double


# -- settings


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"zookeeper_ssl_crl_enable": True}, "zookeeper.ssl.crl.enable: "),
        (
            {"zookeeper_clientcnxnsocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "zookeeper.clientCnxnSocket: must",
        ),
        (
            {"zookeeper_ssl_truststore_location": "/nowhere"},
            "zookeeper.ssl.truststore.location: /nowhere does not exist",
        ),
        ({"zookeeper_ssl_protocol": "SSLv3"}, "zookeeper.ssl.enabled.protocols: SSLv3 is broken"),
        ({"zookeeper_ssl_keystore_location": "/nowhere.pem"}, "zookeeper.ssl.keystore.location: /nowhere.pem does"),
    ],
)
def test_invalid_setting_is_one_line(secured: SecuredZooKeeper, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        zookeeper_credentials.tls_context(Config(**tls(secured, **changes)))
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "cannot read"),
        ("Client {", "must end"),
        ("Server { a.B required; };", "must have a section Client"),
        ("Client { a.B required; };", "must have a section Client"),
        (f'Client {{ {LOGIN} username="u"; }};', "must have username and password"),
        (f'Client {{ {LOGIN} username="u" password="hunter2" }};', "must end with ;"),
    ],
)
def test_invalid_jaas_file_is_one_line(tmp_path: Path, text: str | None, line: str) -> None:
    path = tmp_path / "jaas.conf"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=line) as caught:
        zookeeper_credentials.login(Config(odradek_zookeeper_login_config=str(path)))
    said = str(caught.value)
    assert said.startswith("odradek.zookeeper.login.config: ") and "\n" not in said and "hunter2" not in said
