"""Ends a command whose TLS or SASL no other attempt mends, with one line that names the setting to change.

kafka-python tries again until its time is over, unless an error is an IncompatibleBrokerVersion. `install` gives it
such an error when a connection is lost because of a certificate, an alert of TLS, the mechanism or the credentials, or
since the peer does not speak Kafka's protocol. It also limits the time of a TLS handshake, which kafka-python would
wait for without end, and keeps what a peer sends before it closes: an alert of TLS, the answer to credentials, or that
of an HTTP server. `_shared.bootstrap` uses it for the first connections of a client.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import click
from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from odradek.security.tls.handshake import reason

PROTOCOL, CERTIFICATE = "security.protocol", "ssl.keystore.location"
_TLS_ALERT = (0x1503 << 16, 0x1504 << 16)  # a frame size that is an alert: a listener of TLS got plain text
_HTTP = int.from_bytes(b"HTTP", "big")  # one that is the start of an answer of an HTTP server
_SETTINGS = {  # of the client, by OpenSSL's reasons
    "WRONG_VERSION_NUMBER": PROTOCOL,
    "RECORD_LAYER_FAILURE": PROTOCOL,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": f"ssl.enabled.protocols, ssl.cipher.suites, {CERTIFICATE}",
    "TLSV1_ALERT_UNKNOWN_CA": CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": CERTIFICATE,
}
_CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


class Refused(kafka_errors.SaslAuthenticationFailedError, kafka_errors.IncompatibleBrokerVersion):  # type: ignore[misc]
    """The text says why, and names the setting."""

    def __str__(self) -> str:
        return str(self.args[0])


@cache
def install() -> None:
    """Have kafka-python's connections end a command that is refused."""
    connect, lose = KafkaConnectionManager._connect, KafkaConnection.connection_lost
    build = KafkaConnectionManager._build_transport

    async def connect_once(manager: Any, node: Any, connection: Any, *args: Any, **options: Any) -> None:
        connection.refusals = manager._auth_failures
        await connect(manager, node, connection, *args, **options)

    async def build_in_time(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
        limit_ms = manager.config["request_timeout_ms"]
        if timeout_at is not None:
            limit_ms = max(0.0, timeout_at - time.monotonic()) * 1000
        return await manager.wait_for(manager.call_soon(build, manager, node, timeout_at), limit_ms)

    def connection_lost(connection: Any, error: Exception | None) -> None:
        if not connection.closed and (why := why_refused(error, connection.config, connection.initializing)):
            error = connection.refusals[connection.node_id] = Refused(why)
        lose(connection, error)

    for kind in (KafkaTCPTransport, KafkaSSLTransport):
        kind._sock_recv = _data_before_error(kind._sock_recv)
    KafkaConnectionManager._connect = connect_once
    KafkaConnectionManager._build_transport = build_in_time
    KafkaConnection.connection_lost = connection_lost
    logging.getLogger("kafka.net.transport").setLevel(logging.CRITICAL)  # kafka.net.manager logs the same failures
    logging.getLogger("kafka.net.manager").addFilter(_is_news)


def _data_before_error(receive: Callable[[Any], tuple[bytes, Any]]) -> Callable[[Any], tuple[bytes, Any]]:
    """kafka-python drops data that comes with the end of the connection; the next call finds the end again."""

    def received(transport: Any) -> tuple[bytes, Any]:
        data, error = receive(transport)
        return data, None if data else error

    return received


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the failure does not end the command, which then prints it."""
    text = record.getMessage()
    ends = text.startswith(("Bootstrap", "Did you attempt")) or "Handshake failed" in text
    return not ends and not any(isinstance(word, Refused) for word in record.args or ())


def why_refused(error: Exception | None, config: Mapping[str, Any], initializing: bool) -> str:
    """Why the command ends; empty if another attempt may mend it. `config` and `initializing`: of the connection."""
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return f"{', '.join(map(str, error.args))} (sasl.jaas.config)"
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return f"the broker does not enable sasl.mechanism={config['sasl_mechanism']}"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"the listener does not use SASL ({PROTOCOL})"
    if isinstance(error, click.ClickException):  # a mechanism has no token
        return error.message
    if isinstance(error, kafka_errors.InvalidReceiveError) and initializing:
        return _why_malformed(int(str(error).rpartition(" ")[2]))
    return _why_insecure(cause_of(error))


def _why_malformed(size: int) -> str:
    """Why the size of a frame is none."""
    if _TLS_ALERT[0] <= size < _TLS_ALERT[1]:
        return f"the listener speaks TLS ({PROTOCOL})"
    if size == _HTTP:
        return "the peer speaks HTTP, not Kafka's protocol (--bootstrap-server)"
    return f"the peer does not speak Kafka's protocol: a response of {size} bytes (--bootstrap-server, {PROTOCOL})"


def _why_insecure(cause: BaseException | None) -> str:
    """Why TLS ends a connection."""
    if not isinstance(cause, ssl.SSLError) or isinstance(cause, _CLOSED):
        return ""
    setting = _SETTINGS.get(cause.reason or "")
    return reason(cause) + (f" ({setting})" if setting else "")


def cause_of(error: Exception | None) -> BaseException | None:
    """What kafka-python made a KafkaConnectionError of."""
    if not isinstance(error, kafka_errors.KafkaConnectionError):
        return error
    return error.args[0] if error.args and isinstance(error.args[0], Exception) else error.__context__
