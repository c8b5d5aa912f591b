"""The authentication of a worker's connections: before their first request, and when their sessions end (KIP-368).

A connection whose session has ended, or whose client begins another exchange, takes no more requests. Once those under
way are answered it goes back to the unauthenticated ones, where only an exchange can follow; a client that sends
nothing has time for that (workers.authentication.expired_connections).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from odradek.cluster.configs import dynamic_passwords
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc.notices import IsFirst
from odradek.security import core_dumps
from odradek.security.principal import Principal
from odradek.security.sasl.exchange import Exchange
from odradek.security.sasl.sasl_settings import Credentials
from odradek.security.tls import ktls
from odradek.workers.authentication import kept_sessions, unauthenticated
from odradek.workers.authentication.expired_connections import ExpiredConnections
from odradek.workers.authentication.listener_security import ApiVersions, ListenerSecurity
from odradek.workers.authentication.unauthenticated import Unauthenticated
from odradek.workers.net import connection_state
from odradek.workers.net.connection import Connection
from odradek.workers.net.loop import Loop

log = logging.getLogger(__name__)

POLL_S = 0.4  # a change of a file is loaded by the second look that sees it: within a second, or two of a busy worker


class Worker(unauthenticated.Owner, Protocol):
    """What this needs of the worker."""

    loop: Loop

    def drop(self, connection: Connection, why: str) -> None: ...
    def keep(self, connection: Connection) -> None: ...


class Authentication:
    """All of it for one worker."""

    def __init__(
        self, worker: Worker, config: Any, credentials: Credentials, api_versions: ApiVersions, is_first: IsFirst
    ) -> None:
        """`config`: a BrokerConfig, whose secured listeners were loaded once before anything was started.

        `follow` comes before the first connection."""
        self._worker = worker
        self._originals: Mapping[str, str] = config.originals
        self._settings = self._originals
        self._encoder = dynamic_passwords.encoder_of(config)
        self._undecodable: list[str] = []  # passwords among the dynamic configs
        self._broker: int = config["broker.id"]
        self._credentials = credentials
        self._api_versions = api_versions
        self._is_first = is_first
        self._between_brokers: str = config.between_brokers
        self._listeners: dict[str, ListenerSecurity] = {}
        self._kernel = ktls.support(_read(ktls.ULP_FILE)).available
        core_dumps.disable()  # from now on there are keys, also where the start had none
        timeout = config["odradek.authentication.timeout.ms"] / 1000
        self.unauthenticated = Unauthenticated(worker.loop, worker, timeout)
        self.expired = ExpiredConnections(
            worker.loop, config["connections.max.idle.ms"], self._begin_again, worker.refuse
        )
        self._sessions: dict[Connection, None] = {}  # that will end
        self._next_end = 0  # ms: no session ends before
        self._leaving: dict[Connection, bytes] = {}  # once all is answered, with the frame that begins an exchange
        self._next_poll = 0.0

    @property
    def connections(self) -> Iterable[Connection]:
        """Those that are not authenticated yet."""
        return [*(peer.connection for peer in self.unauthenticated.peers.values()), *self.expired]

    @property
    def expires_s(self) -> float:
        """When the first certificate expires, in seconds since 1970; 0 without one."""
        return min((one.tls.expires_s for one in self._listeners.values() if one.tls is not None), default=0)

    def takes(self, connection: Connection) -> bool:
        """Take a new connection, unless its listener is not secured. Raises OSError when its socket is dead."""
        security = self._listeners.get(connection.listener)
        if security is None:
            return False
        security.in_use = True
        self.unauthenticated.take(connection, security)
        return True

    def authenticated(self, connection: Connection) -> None:
        """A connection has begun a session."""
        exchange = connection.exchange
        end = exchange.session.expires_ms if exchange is not None and exchange.session is not None else None
        if end is not None:
            self._sessions[connection] = None
            self._next_end = min(self._next_end, end) if self._next_end else end

    def session_of(self, connection: Connection) -> dict[str, Any] | None:
        """The session of a connection for the worker that takes it over; None without SASL."""
        return kept_sessions.fields(connection.exchange)

    def resumed(self, listener: str, kept: dict[str, Any], principal: Principal, by_token: bool) -> Exchange:
        """The exchange of a connection that another worker has authenticated. Raises ValueError and KeyError."""
        security = self._listeners.get(listener)
        if security is None or security.sasl is None:
            raise ValueError(f"listener {listener} has no SASL here")
        security.in_use = True
        return kept_sessions.exchange_of(security.sasl, kept, principal, by_token)

    def follow(self, snapshot: Snapshot, protocols: Mapping[str, str]) -> None:
        """Dynamic configs may have changed, and with them the listeners; `protocols`: of those there are now."""
        own, default = snapshot.dynamic_layers(self._broker)
        self._report(dynamic_passwords.undecodable(own, self._encoder))
        self._settings = dynamic_passwords.settings(self._originals, own, default, self._encoder)
        for one in self._listeners.values():
            one.follow(self._settings, time.time(), self._credentials, self._api_versions)
        self._follow_listeners(protocols)

    def _follow_listeners(self, protocols: Mapping[str, str]) -> None:
        known = {name: one.protocol for name, one in self._listeners.items()}
        secured = {name: protocol for name, protocol in protocols.items() if protocol != "PLAINTEXT"}
        for name in known.keys() - {name for name, protocol in secured.items() if known.get(name) == protocol}:
            del self._listeners[name]
            self.unauthenticated.close_listener(name)
            self.expired.close([one for one in self.expired if one.listener == name], "its listener was removed")
        for name, protocol in secured.items() - known.items():
            one = ListenerSecurity(name, protocol, name == self._between_brokers, self._is_first)
            self._listeners[name] = one
            one.try_to_load(self._settings, time.time(), self._credentials, self._api_versions, self._kernel)

    def _report(self, undecodable: list[str]) -> None:
        if undecodable and undecodable != self._undecodable:
            log.error("ignoring %s: not encoded with password.encoder.secret, or it is not set", ", ".join(undecodable))
        self._undecodable = undecodable

    def tick(self, time_s: float) -> None:
        """Run what is due, a few times a second; `time_s`: monotonic."""
        self.unauthenticated.tick(time_s)
        self.expired.tick(time_s)
        if self._next_end and time_s * 1000 > self._next_end:
            self._end_sessions(int(time_s * 1000))
        self._take_back()
        if time_s >= self._next_poll:
            self._next_poll = time_s + POLL_S
            self._poll(time.time())

    def _poll(self, now: float) -> None:
        for one in self._listeners.values():
            if one.fault:
                one.try_again(self._settings, now, self._credentials, self._api_versions, self._kernel)
            else:
                one.poll(now)

    # -- the end of a session, and another exchange before it

    def _end_sessions(self, now_ms: int) -> None:
        for connection, end in dict(self._ends()).items():
            if end < now_ms:
                self._leave(connection, b"")
        self._next_end = min(dict(self._ends()).values(), default=0)

    def _ends(self) -> Iterator[tuple[Connection, int]]:
        for connection in list(self._sessions):
            session = connection.exchange.session if connection.exchange is not None else None
            if connection.closed or session is None or session.expires_ms is None:
                del self._sessions[connection]
            else:
                yield connection, session.expires_ms

    def reauthenticate(self, connection: Connection, frame: bytes) -> bool:
        """Take a frame of SaslHandshake on a known connection; False where no exchange can follow now."""
        if connection.exchange is None or not connection.exchange.may_reauthenticate(unauthenticated.now()):
            return False
        connection.state = connection_state.ANSWER[connection.state]  # the exchange answers it
        self._leave(connection, len(frame).to_bytes(4, "big") + frame)
        self._worker.again(self._take_back)
        return True

    def _leave(self, connection: Connection, frame: bytes) -> None:
        connection.state = connection_state.EXPIRE[connection.state]
        self._sessions.pop(connection, None)
        self._leaving[connection] = frame

    def _take_back(self) -> bool:
        """Take those that have got all their answers from the loop."""
        for connection in list(self._leaving):
            if connection.closed:
                del self._leaving[connection]
            elif not (connection.in_flight or connection.out or connection.waits or connection.throttled):
                self._take_one_back(connection, self._leaving.pop(connection))
        return True

    def _take_one_back(self, connection: Connection, data: bytes) -> None:
        if connection.big is not None:
            self._worker.drop(connection, unauthenticated.EXPIRED)
            return
        security = self._listeners.get(connection.listener)
        if security is None:
            self._worker.drop(connection, "closed: its listener was removed")
            return
        data += connection.partial
        if connection.backlog is not None:
            view, at, end = connection.backlog
            data += view[at:end]
        connection.partial, connection.backlog, connection.repeated = b"", None, None
        self._worker.keep(connection)
        self._worker.loop.give_up(connection)
        if data or (connection.tls is not None and connection.tls.has_more):
            self._attempt(connection, lambda: self.unauthenticated.take_back(connection, security, data))
        else:
            self._attempt(connection, lambda: self.expired.add(connection))

    def _begin_again(self, connection: Connection) -> None:
        """Take a connection that has received something since its session ended."""
        security = self._listeners[connection.listener]
        self._attempt(connection, lambda: self.unauthenticated.take_back(connection, security, b""))

    def _attempt(self, connection: Connection, watch: Callable[[], None]) -> None:
        try:
            watch()
        except OSError as error:  # of epoll
            log.debug("%r: cannot authenticate again: %s", connection, error)
            self._worker.loop.close(connection)
            self._worker.refuse(connection)

    # -- the worker stops

    def drain(self) -> None:
        """Those that are not authenticated yet have little time left."""
        self.unauthenticated.drain()
        self.expired.close(list(self.expired), "the worker is stopping")

    def close(self) -> None:
        """Close all connections that are not authenticated."""
        self.unauthenticated.close()
        self.expired.close(list(self.expired), "the worker is stopping")


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
