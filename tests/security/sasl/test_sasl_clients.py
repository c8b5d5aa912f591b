"""kafka-python and librdkafka authenticate over a socket with our exchange."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from odradek.protocol.library import message_class
from odradek.protocol.responses import encoded
from odradek.security.sasl.exchange import Authenticated, Exchange, Fail, Now, SaslListener, Send
from odradek.security.sasl.exchange_states import State
from odradek.security.sasl.mechanism import ServerMechanism
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram_keys import ScramMechanism, derive
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from tests.harness.process import wait_until

pytestmark = pytest.mark.live
USERS = {mechanism: {"alice": derive(mechanism, Password("secret"))} for mechanism in ScramMechanism}
SERVED = {3: (0, 1), 17: (0, 1), 18: (0, 3), 36: (0, 2)}


def versions(version: int, error: int) -> bytes:
    response = message_class("ApiVersionsResponse")
    rows = [response.ApiVersion(api_key=key, min_version=low, max_version=top) for key, (low, top) in SERVED.items()]
    return encoded(response(error_code=error, api_keys=rows), version)


def scram(mechanism: ScramMechanism) -> Callable[[], ScramServer]:
    store = ScramStore(mechanism, USERS[mechanism].get)
    return lambda: ScramServer(store)


MECHANISMS: dict[str, Callable[[], ServerMechanism]] = {"PLAIN": lambda: PlainServer({"alice": Password("secret")})}
MECHANISMS |= {mechanism.value: scram(mechanism) for mechanism in ScramMechanism}
LISTENER = SaslListener(MECHANISMS, versions, {})


class Server:
    """Authenticates each client and closes the connection; `ended` has the outcomes."""

    def __init__(self) -> None:
        self.ended: list[Authenticated | Fail] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                self._authenticate(connection)

    def _authenticate(self, connection: socket.socket) -> None:
        exchange = Exchange(LISTENER)
        while exchange.state not in (State.COMPLETE, State.FAILED):
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            for effect in exchange.receive(data, Now(int(time.time() * 1000), int(time.monotonic() * 1000))):
                sent = effect.data if isinstance(effect, Send) else effect.response if isinstance(effect, Fail) else b""
                connection.sendall(sent)
                self.ended += [] if isinstance(effect, Send) else [effect]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(20)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize("password", ["secret", "wrong"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_authenticates_or_is_refused(server: Server, mechanism: str, password: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": server.address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": password, "log_level": 0, "error_cb": lambda error: None,
    })  # fmt: skip
    wait_until(lambda: producer.poll(0.05) >= 0 and bool(server.ended), 20, "the client has authenticated")
    assert isinstance(server.ended[0], Authenticated if password == "secret" else Fail)


@pytest.mark.parametrize("password", ["secret", "wrong"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_authenticates_or_is_refused(server: Server, mechanism: str, password: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    with pytest.raises(KafkaError):  # the server closes after the authentication
        KafkaProducer(
            bootstrap_servers=server.address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username="alice", sasl_plain_password=password, bootstrap_timeout_ms=2000,
        )  # fmt: skip
    assert isinstance(server.ended[0], Authenticated if password == "secret" else Fail)
