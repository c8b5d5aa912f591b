"""Who sends a request: HTTP Basic, checked by the broker's users, with a bound on failures.

Owner: the exporter process, one event loop. All that asks LiveSecurity runs in one thread of its own (`_thread`), a
call at a time: checks of passwords take milliseconds. A login that was right is kept, as a digest by a key of this
process; nothing else of a password is kept. It is checked again once users, ACLs or settings have changed, and needs no
place in `attempts` for that, so that strangers keep no reader out. Requests with the same login wait for one check. A
failure is answered FAILED_S after it came, whatever it took, and until then has a place in `attempts`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from aiohttp import web

from odradek.broker.exporter.access import basic
from odradek.broker.exporter.access.attempts import Attempts
from odradek.broker.exporter.access.basic import Login
from odradek.broker.exporter.access.live_security import LiveSecurity
from odradek.broker.exporter.access.reader import Reader
from odradek.broker.exporter.access.refused import LoginNeeded, TooManyLogins, UsersUnknown
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.security.principal import USER, Principal
from odradek.workers.dispatch import audit
from odradek.workers.net.bounded_log import BoundedLog

FAILED_S = 1.0
KEPT = 1000  # logins
_LINES, _PERIOD_S = 10, 10  # of failures in the audit log
T = TypeVar("T")


class _Kept(NamedTuple):
    """A login that was right, with the security of one generation."""

    generation: int
    reader: Reader


class Readers:
    """The readers of the listeners that ask for a user."""

    def __init__(self, security: LiveSecurity, snapshot: Callable[[], Snapshot]) -> None:
        """`snapshot`: the last one that the exporter has read."""
        self._security, self._snapshot = security, snapshot
        self._thread = ThreadPoolExecutor(1, "security")
        self._key = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._checks: dict[bytes, asyncio.Task[Reader | None]] = {}
        self._attempts = Attempts()
        self._connections = WeakSet[asyncio.Transport]()  # of readers who have logged in
        self._log = BoundedLog(audit.log, logging.WARNING, "failed logins", _LINES, _PERIOD_S)

    async def follow(self) -> None:
        """Adopt what has changed; call it a few times a second."""
        await self._run(lambda: self._security.follow(self._snapshot(), time.time()))
        self._log.tick(time.monotonic())

    def has_logged_in(self, connection: asyncio.Transport) -> bool:
        """Whether a reader has sent a request by this connection."""
        return connection in self._connections

    async def of(self, request: web.BaseRequest) -> Reader:
        """The reader who sends it. Raises LoginNeeded, UsersUnknown and TooManyLogins."""
        connection, reader = request.transport, await self._of(request)
        if connection is not None:
            self._connections.add(connection)
        return reader

    async def _of(self, request: web.BaseRequest) -> Reader:
        header, host = request.headers.get("Authorization", ""), _host(request)
        if not (header and host):
            raise LoginNeeded("a user of the broker is needed: log in with its name and password")
        if self._security.stale:
            await self.follow()
        if not self._security.is_known:
            raise UsersUnknown
        login = basic.parse(header)
        digest = self._digest(host, header if login is None else f" {login.user}:{login.password.value}")
        kept = self._kept.get(digest)
        if kept is not None and kept.generation == self._security.generation:
            self._kept.move_to_end(digest)
            return kept.reader
        return await self._checked(digest, login, host)

    def _digest(self, host: str, claim: str) -> bytes:
        return hmac.digest(self._key, f"{host} {claim}".encode("utf-8", "surrogateescape"), "sha256")

    async def _checked(self, digest: bytes, login: Login | None, host: str) -> Reader:
        check = self._checks.get(digest)
        if check is None:
            is_new = digest not in self._kept
            if is_new and not self._attempts.begin(host):
                raise TooManyLogins
            check = self._checks[digest] = asyncio.create_task(self._check(digest, login, host, is_new))
        reader = await asyncio.shield(check)  # the client that goes may not be the only one that waits
        if reader is None:
            raise LoginNeeded("wrong user or password")
        return reader

    async def _check(self, digest: bytes, login: Login | None, host: str, has_place: bool) -> Reader | None:
        """None: wrong, and the time for that is over."""
        began = time.monotonic()
        try:
            found = await self._run(lambda: self._known(login, host)) if login is not None else None
            if found is None:
                self._kept.pop(digest, None)
                self._failed(host)
                await asyncio.sleep(FAILED_S - (time.monotonic() - began))
                return None
            self._keep(digest, found)
            return found.reader
        finally:
            del self._checks[digest]
            if has_place:
                self._attempts.end(host)

    def _known(self, login: Login, host: str) -> _Kept | None:
        """In the thread."""
        generation = self._security.generation
        if not self._security.passwords().match(login):
            return None
        principal = str(Principal(USER, login.user))
        return _Kept(generation, Reader(self._security.rights(principal, host), principal))

    def _keep(self, digest: bytes, found: _Kept) -> None:
        self._kept[digest] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _failed(self, host: str) -> None:
        """The name is not logged: a user may have typed the password there."""
        self._log.write(time.monotonic(), "", "refused: a login from %s: wrong user or password (exporter)", host)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)


def _host(request: web.BaseRequest) -> str:
    """The address of the peer, as ACLs name hosts; empty once it has gone."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""
