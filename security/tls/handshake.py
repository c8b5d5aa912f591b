"""A handshake step by step, without a socket of its own, a clock, or waiting.

State: the connection (a non-blocking `ssl.SSLSocket`, or an `ssl.SSLObject` on memory), the time by which it must be
done, and the outcome. Owner: the event loop that calls `step()` when the peer sent something, may take something, or
the time is over. A crash leaves nothing: the socket dies with the process.
"""

from __future__ import annotations

import enum
import ssl
from typing import Protocol


class Progress(enum.Enum):
    """The event that a handshake waits for, or its result."""

    WANTS_READ = "read"
    WANTS_WRITE = "write"
    DONE = "done"
    FAILED = "failed"


class Connection(Protocol):
    """The methods that SSLSocket and SSLObject share."""

    def do_handshake(self) -> None: ...


class Handshake:
    """One handshake; `failure` says why it failed, in one line without anything that the peer wrote."""

    __slots__ = ("_connection", "_deadline", "failure", "progress")

    def __init__(self, connection: Connection, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self.progress = Progress.WANTS_READ
        self.failure = ""

    def step(self, now: float) -> Progress:
        """Continue as far as the peer allows; call it again after the event that it returns, or at the deadline."""
        if self.is_over:
            return self.progress
        if now >= self._deadline:
            return self._fail("the peer was too slow")
        try:
            self._connection.do_handshake()
        except ssl.SSLWantReadError:
            self.progress = Progress.WANTS_READ
        except ssl.SSLWantWriteError:
            self.progress = Progress.WANTS_WRITE
        except (OSError, ValueError) as error:
            return self._fail(reason(error))
        else:
            self.progress = Progress.DONE
        return self.progress

    @property
    def is_over(self) -> bool:
        """Whether it is done or failed."""
        return self.progress in (Progress.DONE, Progress.FAILED)

    def _fail(self, why: str) -> Progress:
        self.failure = why
        self.progress = Progress.FAILED
        return self.progress


_REASONS = {
    "HTTP_REQUEST": "the peer speaks HTTP",
    "WRONG_VERSION_NUMBER": "the peer speaks no TLS",
    "UNSUPPORTED_PROTOCOL": "the peer's versions of TLS are not in ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer takes none of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the peer has none of ssl.cipher.suites",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer found no version or cipher suite in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate, but ssl.client.auth=required",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate: set ssl.keystore.*",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust this certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refuses this certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refuses this certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer says that this certificate is expired",
}

_NAME, _TRUST = "ssl.endpoint.identification.algorithm", "ssl.truststore.location"
_REFUSING = {18: _TRUST, 19: _TRUST, 20: _TRUST, 21: _TRUST, 62: _NAME, 64: _NAME}  # by OpenSSL's X509_V_ERR_…


def reason(error: Exception) -> str:
    """Why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        name = _REFUSING.get(error.verify_code)
        why = error.verify_message.rstrip(".")
        return f"the peer's certificate is refused: {why}" + (f" ({name})" if name else "")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return "the peer closed the connection"
    if isinstance(error, ssl.SSLError):
        name = error.reason or "unknown"
        return _REASONS.get(name, name.lower().replace("_", " "))
    return str(error)


def rehearse(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """A handshake between two contexts in memory, without the server's name; why it fails, or empty."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        Handshake(client.wrap_bio(to_client, to_server), 1),
        Handshake(server.wrap_bio(to_server, to_client, server_side=True), 1),
    )
    while not all(side.is_over for side in sides):
        for side in sides:
            if side.step(0) is Progress.FAILED:
                return side.failure
    return ""
