"""What kazoo lacks: TLS with a context of ours, and SASL by DIGEST-MD5 (ZooKeeper's DigestLoginModule).

Owner: kazoo's thread of the connection runs all of it. The last failure is in `failure`, which others may read.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import SASL

from odradek.security.sasl.digest_md5 import DigestMd5Client
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.tls.handshake import reason

if TYPE_CHECKING:
    from kazoo.client import KazooClient

log = logging.getLogger(__name__)

_PASSING = (ssl.SSLEOFError, ssl.SSLZeroReturnError)  # a server that ends, or starts


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with connections over TLS. `context` is asked for each; it raises ValueError in one line."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._context = context
        self.failure = ""
        self._refusing: set[tuple[str, int]] = set()

    def refuse(self, hosts: Collection[tuple[str, int]]) -> bool:
        """Whether TLS failed with each host for a reason that the next try has too: a certificate, a setting."""
        return self._refusing.issuperset(hosts)

    def create_connection(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Connect, and shake hands within the same timeout."""
        host, port = kwargs["hostname"], kwargs["address"][1]
        sock = super().create_connection(kwargs["address"], timeout=kwargs["timeout"])
        try:
            sock.settimeout(kwargs["timeout"])
            context = self._context()
            context.sslsocket_class = _Socket
            connection = context.wrap_socket(sock, server_hostname=host)
        except (OSError, ValueError) as error:
            sock.close()
            self._failed(host, port, error)
            raise OSError(errno.EPROTO, self.failure) from None
        assert isinstance(connection, _Socket)
        connection.failed = partial(self._failed, host, port)
        self.failure = ""
        return connection

    def _failed(self, host: str, port: int, error: Exception) -> None:
        self.failure = f"TLS with {host} (zookeeper.ssl.client.enable): {reason(error)}"
        if isinstance(error, ValueError | ssl.SSLError) and not isinstance(error, _PASSING):
            self._refusing.add((host, port))

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """As select.select; what OpenSSL has in its buffer makes no descriptor readable."""
        pending = [sock for sock in args[0] if isinstance(sock, ssl.SSLSocket) and sock.pending()]
        if not pending:
            return super().select(*args, **kwargs)
        others = [sock for sock in args[0] if sock not in pending]
        readable, writable, broken = super().select(others, args[1], args[2], 0)
        return [*pending, *readable], writable, broken


class _Socket(ssl.SSLSocket):
    """A server of TLS 1.3 refuses a client's certificate after the handshake, by an alert that is read first.

    It closes then: where the first write already fails for that, the alert is there to be read.
    """

    failed: Callable[[ssl.SSLError], None]

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """See ssl.SSLSocket."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.failed(error)
            raise

    def send(self, data: Any, flags: int = 0) -> int:
        """See ssl.SSLSocket."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            with suppress(OSError):
                self.recv()
            raise


class Refusals:
    """What becomes of connections whose user ZooKeeper refuses: the first one fails; after that each is tried again.

    kazoo would never connect again (AuthFailedError), also where a restarted server knows the user a moment later.
    """

    def __init__(self) -> None:
        self._has_succeeded = False
        self.failure = ""

    def refused(self, line: str) -> NoReturn:
        """Raise the exception that kazoo expects; log the line, once until ZooKeeper accepts the user."""
        if not self._has_succeeded:
            self.failure = line
            raise AuthFailedError(line)
        if line != self.failure:
            self.failure = line
            log.error("%s; trying again", line)
        raise ConnectionDropped(line)

    def accepted(self) -> None:
        """ZooKeeper has accepted the user."""
        if self.failure:
            log.info("ZooKeeper accepts the user again (odradek.zookeeper.auth, odradek.zookeeper.login.config)")
        self._has_succeeded, self.failure = True, ""


class AuthScheme:
    """odradek.zookeeper.auth: kazoo sends it with each connection."""

    def __init__(self, auth: str) -> None:
        self._scheme, _, self._credential = auth.partition(":")
        self.refusals = Refusals()

    def attach(self, client: KazooClient) -> None:
        """Let kazoo send it, and take the answers."""
        client.auth_data = {(self._scheme, self._credential)}
        invoke = client._connection._invoke

        def invoking(timeout: float, request: Any, xid: int | None = None) -> Any:
            if xid != AUTH_XID:
                return invoke(timeout, request, xid)
            try:
                answer = invoke(timeout, request, xid)
            except AuthFailedError:
                self.refusals.refused(f"odradek.zookeeper.auth: ZooKeeper refuses this {self._scheme}")
            self.refusals.accepted()
            return answer

        client._connection._invoke = invoking


class Login:
    """The user of the JAAS section Client: authenticates each connection of a client of kazoo."""

    def __init__(self, begin: Callable[[], DigestMd5Client]) -> None:
        self._begin = begin
        self.refusals = Refusals()

    def attach(self, client: KazooClient) -> None:
        """Take the place of kazoo's own, which needs a library that is not kept up."""
        connection = client._connection
        connection.sasl_options = {}
        connection._authenticate_with_sasl = lambda host, timeout: self._authenticate(connection, timeout)

    def _authenticate(self, connection: ConnectionHandler, timeout: float) -> None:
        try:
            self._exchange(connection, timeout)
        except (AuthFailedError, MechanismFailure) as error:
            self.refusals.refused(f"odradek.zookeeper.login.config: {error}")
        self.refusals.accepted()

    def _exchange(self, connection: ConnectionHandler, timeout: float) -> None:
        mechanism = self._begin()
        token: bytes | None = mechanism.first()
        xid = 0
        while token is not None:
            xid += 1
            connection._submit(SASL(token), timeout, xid)
            header, buffer, offset = connection._read_header(timeout)
            if header.err or header.xid != xid:
                raise AuthFailedError("ZooKeeper refuses user or password")
            token = mechanism.respond(bytes(SASL.deserialize(buffer, offset)[0] or b""))
