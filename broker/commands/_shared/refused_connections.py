"""Ends a command whose TLS or SASL no other attempt mends, with one line that names the setting to change.

kafka-python tries again until its time is over, unless an error is an IncompatibleBrokerVersion. `install` gives it
such an error when a connection is lost

- because of a certificate, an alert of TLS, the mechanism or the credentials: at once;
- because the peer closes it before an answer, as a listener of another security.protocol does: when the peers have done
  so for PATIENCE_S, as a broker that stops does it too.

State: since when the peers of a client close first connections, by its event loop. A crash leaves nothing.
"""

from __future__ import annotations

import logging
import ssl
import time
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import click
from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager

from odradek.security.tls.handshake import reason

PATIENCE_S = 1.0
_TLS_ALERT = (0x1503 << 16, 0x1504 << 16)  # a frame size that is an alert: a listener of TLS got plain text
_PROTOCOL, _CERTIFICATE = "security.protocol", "ssl.keystore.location"
_SETTINGS = {  # of the client, by OpenSSL's reasons
    "WRONG_VERSION_NUMBER": _PROTOCOL,
    "RECORD_LAYER_FAILURE": _PROTOCOL,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": f"ssl.enabled.protocols, ssl.cipher.suites, {_CERTIFICATE}",
    "TLSV1_ALERT_UNKNOWN_CA": _CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _CERTIFICATE,
}
_CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)
_closing: WeakKeyDictionary[Any, float] = WeakKeyDictionary()


class Refused(kafka_errors.SaslAuthenticationFailedError, kafka_errors.IncompatibleBrokerVersion):  # type: ignore[misc]
    """The text says why, and names the setting."""

    def __str__(self) -> str:
        return str(self.args[0])


@cache
def install() -> None:
    """Have kafka-python's connections end a command that is refused."""
    connect, lose = KafkaConnectionManager._connect, KafkaConnection.connection_lost

    async def connect_once(manager: Any, node: Any, connection: Any, *args: Any, **options: Any) -> None:
        connection.refusals = manager._auth_failures
        await connect(manager, node, connection, *args, **options)

    def connection_lost(connection: Any, error: Exception | None) -> None:
        if not connection.closed and (why := _why(connection, error)):
            error = connection.refusals[connection.node_id] = Refused(why)
        lose(connection, error)

    KafkaConnectionManager._connect = connect_once
    KafkaConnection.connection_lost = connection_lost
    logging.getLogger("kafka.net.transport").setLevel(logging.CRITICAL)  # kafka.net.manager logs the same failures
    logging.getLogger("kafka.net.manager").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the failure does not end the command, which then prints it."""
    text = record.getMessage()
    ends = text.startswith(("Bootstrap", "Did you attempt")) or "Handshake failed" in text
    return not ends and not any(isinstance(word, Refused) for word in record.args or ())


def _why(connection: Any, error: Exception | None) -> str:
    """Why the command ends; empty if another attempt may mend it."""
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return f"{', '.join(map(str, error.args))} (sasl.jaas.config)"
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return f"the broker does not enable sasl.mechanism={connection.config['sasl_mechanism']}"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"the listener does not use SASL ({_PROTOCOL})"
    if isinstance(error, click.ClickException):  # a mechanism has no token
        return error.message
    if isinstance(error, kafka_errors.InvalidReceiveError) and connection.initializing:
        return _why_malformed(int(str(error).rpartition(" ")[2]))
    return _why_closed(connection, error)


def _why_malformed(size: int) -> str:
    """Why the size of a frame is none."""
    if _TLS_ALERT[0] <= size < _TLS_ALERT[1]:
        return f"the listener speaks TLS ({_PROTOCOL})"
    return f"the peer does not speak Kafka's protocol: a response of {size} bytes (bootstrap.servers, {_PROTOCOL})"


def _why_closed(connection: Any, error: Exception | None) -> str:
    cause = _cause(error)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _CLOSED):
        setting = _SETTINGS.get(cause.reason or "")
        return reason(cause) + (f" ({setting})" if setting else "")
    if not str(connection.node_id).startswith("bootstrap"):
        return ""
    if connection.transport is None and not isinstance(cause, _CLOSED):  # nothing listens
        _closing.pop(connection.net, None)
        return ""
    return _why_unanswered(connection, error)


def _cause(error: Exception | None) -> BaseException | None:
    """What kafka-python made a KafkaConnectionError of."""
    if not isinstance(error, kafka_errors.KafkaConnectionError):
        return error
    return error.args[0] if error.args and isinstance(error.args[0], Exception) else error.__context__


def _why_unanswered(connection: Any, error: Exception | None) -> str:
    """Why the first connections are closed, once it is plain that they are."""
    now = time.monotonic()
    since = _closing.setdefault(connection.net, now)
    if error is None:  # it was answered
        _closing[connection.net] = float("inf")
    if now - since < PATIENCE_S:
        return ""
    protocol = connection.config["security_protocol"]
    others = [f", or require a certificate ({_CERTIFICATE})"] if protocol.endswith("SSL") else []
    if protocol.startswith("SASL"):  # kafka-python may see the end before the answer to its credentials
        others.append(", or refuse the user (sasl.jaas.config)")
    return f"the peer closes connections: its listener may not have {_PROTOCOL}={protocol}{''.join(others)}"
