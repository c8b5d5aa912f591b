"""The worker that is replaced: gives its connections to its successor, each between two requests.

workers.takeover.giving_order has the order. From the moment that a connection's turn comes, no further request of it is
taken (it rests, workers.net.time_slices), so a client that pipelines without a pause is not served by the giver for
ever. A Fetch that waits for records is answered at once with what there is. Bytes of requests that were not taken go
along; so do the principal and the session of SASL, and the rest of a throttle time. Fetch sessions end: the client gets
FETCH_SESSION_ID_NOT_FOUND and opens another. Connections with TLS stay, because no other process has their keys, and so
do those that are never quiet within `odradek.drain.timeout.ms`: the drain that follows closes them (Worker.retire),
with TLS as workers.net.last_answers says. Peers that are not authenticated yet have UNKNOWN_S; one that is by then
goes along.

Owner: the worker. A crash leaves nothing: workers.takeover.handover says what becomes of the connections.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odradek.ipc.channel import Channel
from odradek.workers.net import time_slices
from odradek.workers.net.acceptor_channel import AcceptorChannel
from odradek.workers.net.connection import Connection
from odradek.workers.net.connection_state import CONTINUE, EXPIRED, READY, REST, RESTING, THROTTLED
from odradek.workers.net.loop import Loop
from odradek.workers.takeover import takeover_messages
from odradek.workers.takeover.giving_order import GivingOrder
from odradek.workers.takeover.handover import (
    Close,
    Finish,
    Give,
    Giver,
    GiverEffect,
    Giving,
    GoOn,
    Release,
    Resume,
    StopAccepting,
)  # fmt: skip
from odradek.workers.takeover.takeover_messages import Kept

if TYPE_CHECKING:
    from odradek.workers.authentication.authentication import Authentication
    from odradek.workers.dispatch.purgatory import Purgatory
    from odradek.workers.quotas.muting import Muting

log = logging.getLogger(__name__)

UNKNOWN_S = 1.0
LOOK_S = 0.02  # a look at all connections; it costs, where thousands have TLS and stay
_WAITS_TOO = RESTING | THROTTLED  # states in which a connection can be given all the same


class Server(Protocol):
    """The worker."""

    loop: Loop
    purgatory: Purgatory
    muting: Muting
    acceptance: AcceptorChannel
    authentication: Authentication | None
    draining: bool

    def again(self, work: Callable[[], bool], connection: Connection | None = None) -> None: ...
    def retire(self) -> None: ...


class HandingOver:
    """One hand-over. `report(message)` tells the supervisor how it ended."""

    def __init__(self, server: Server, link: Channel, seconds: float, report: Callable[[bytes], None]) -> None:
        """`seconds`: after them, connections that were never quiet are left to the drain."""
        self._server = server
        self._link = link
        self._report = report
        self._machine = Giver()
        self._muted: dict[Connection, float] = {}  # s: when the throttle time of a given connection is over
        self._resting: dict[Connection, None] = {}  # given once what was taken of them is answered
        self._order = GivingOrder()
        self._look_at = 0.0  # when to look for connections that have come meanwhile
        self._began = time.monotonic()
        self._until = self._began + seconds
        server.loop.watch(link.fileno(), self._ready)
        server.again(self._go_on)

    @property
    def over(self) -> bool:
        """Whether nothing more is given."""
        return self._machine.state in (Giving.DONE, Giving.ENDED)

    # -- events

    def _ready(self, _: int) -> None:
        self._link.flush()
        try:
            messages = self._link.receive()
        except EOFError:
            self._server.loop.unwatch(self._link.fileno())
            self._link.close()
            self._apply(self._machine.gone("the new worker has ended"))
            return
        for message in messages:
            self._apply(self._taken(message))
        self._watch_writes()

    def _taken(self, message: bytes) -> list[GiverEffect]:
        kind = message[:1]
        if kind == takeover_messages.VERSIONS:
            return self._machine.versions(*takeover_messages.range_of(message))
        if kind == takeover_messages.TOOK:
            return self._machine.took(takeover_messages.number_of(message))
        return self._machine.not_taken(takeover_messages.number_of(message))

    def _watch_writes(self) -> None:
        if self._link.fileno() >= 0:
            events = select.EPOLLIN | (select.EPOLLOUT if self._link.wants_write else 0)
            self._server.loop.rewatch(self._link.fileno(), events)

    # -- connections out

    def _go_on(self) -> bool:
        """Give what is quiet, for one time slice; True when it is over. Called every millisecond."""
        try:
            if self._machine.state is Giving.GIVING and not self._server.draining:
                self._give_some()
            if self._server.draining or time.monotonic() >= self._until:  # the broker may stop meanwhile
                self._apply(self._machine.late())
        except Exception:  # a bug costs the upgrade, not the connections that are here
            log.exception("handing over failed")
            self._apply(self._machine.gone("an internal error"))
        return self.over

    def _give_some(self) -> None:
        now = time.monotonic()
        until = now + time_slices.SLICE_S
        for connection in self._order.turn(now, lambda: self._machine.has_room and time.monotonic() < until):
            self._look(connection, now)
        if not self._order.has_fresh and now >= self._look_at:
            self._look_at = now + LOOK_S
            self._order.begin(filter(self._can_go, self._server.loop.connections.values()))
            if self._order.is_empty and self._server.acceptance.ended and not self._awaits_unknown():
                self._apply(self._machine.nothing_left())
        self._watch_writes()

    def _look(self, connection: Connection, now: float) -> None:
        """Give it if it is quiet, else let it rest."""
        if not self._can_go(connection):
            self._order.leaves(connection)
            return
        self._rest(connection)
        if not connection.closed and is_quiet(connection):
            del self._resting[connection]
            self._order.leaves(connection)
            self._apply(self._machine.quiet(connection))
        else:
            self._order.rests(connection, now)

    def _can_go(self, connection: Connection) -> bool:
        stays = connection.tls is not None or connection.state & EXPIRED or connection in self._machine.kept
        return not (stays or connection.closed)

    def _awaits_unknown(self) -> bool:
        authentication = self._server.authentication
        if authentication is None or time.monotonic() >= self._began + UNKNOWN_S:
            return False
        return bool(authentication.unauthenticated.peers)

    def _rest(self, connection: Connection) -> None:
        """Take no request of it. Answer a Fetch that waits for records; one that waits for the disk has its answer.

        A large frame must first be whole: bytes of it do not go along."""
        if connection.big is not None:
            return
        self._resting[connection] = None
        connection.state = REST[connection.state]
        delayed = connection.delayed
        if delayed is not None and not delayed.finished:
            self._server.purgatory.answer_now(delayed)

    def _wake(self) -> None:
        """Continue with connections that were not given."""
        for connection in self._resting:
            connection.state = CONTINUE[connection.state]
            if not connection.state:
                self._server.loop.framing.resume(connection)
        self._resting.clear()

    # -- effects

    def _apply(self, effects: Sequence[GiverEffect]) -> None:
        actions: dict[type, Callable[[Any], None]] = {
            StopAccepting: lambda _: self._server.acceptance.drain(),
            Give: lambda effect: self._give(effect.number, effect.key),
            Release: lambda effect: self._release(effect.key),
            Resume: lambda effect: self._resume(effect.key),
            Close: lambda effect: self._release(effect.key),
            Finish: lambda _: self._finish(),
            GoOn: lambda effect: self._serve_on(effect.why),
        }
        for effect in effects:
            actions[type(effect)](effect)

    def _give(self, number: int, connection: Connection) -> None:
        """The acceptor counts it no more until the taker says that it has it: two counts would refuse a client."""
        if connection.mute is not None:
            self._muted[connection] = connection.mute.deadline
            self._server.muting.forget(connection)
        kept = record(connection, self._session(connection), self._muted.get(connection, 0.0))
        self._server.loop.give_up(connection)
        self._server.acceptance.closed(connection)
        self._link.send(takeover_messages.give(number, kept), [connection.fd])

    def _session(self, connection: Connection) -> dict[str, Any] | None:
        authentication = self._server.authentication
        return None if authentication is None else authentication.session_of(connection)

    def _release(self, connection: Connection) -> None:
        """The kernel closes the connection once no process has a descriptor of it."""
        self._muted.pop(connection, None)
        self._server.loop.close(connection)

    def _resume(self, connection: Connection) -> None:
        server = self._server
        connection.state = READY
        try:
            server.loop.add(connection)
        except OSError as error:  # of epoll
            server.acceptance.cannot_serve(connection, error)
            server.loop.close(connection)
            return
        server.acceptance.opened(connection)
        if server.authentication is not None:
            server.authentication.authenticated(connection)
        mute_again(server.muting, connection, self._muted.pop(connection, 0.0))
        if not connection.state:
            server.loop.framing.resume(connection)

    def _finish(self) -> None:
        log.info("handed over %d connections; %d remain", self._machine.given, len(self._server.loop.connections))
        self._link.send(takeover_messages.END)
        self._report(takeover_messages.DONE)
        self._wake()
        self._server.retire()

    def _serve_on(self, why: str) -> None:
        log.warning("handing over has ended (%s): this worker serves on", why)
        if self._link.fileno() >= 0:
            self._server.loop.unwatch(self._link.fileno())
            self._link.close()
        self._wake()
        if not self._server.draining:
            self._server.acceptance.resume()
        self._report(takeover_messages.FAILED + why.encode())


def is_quiet(connection: Connection) -> bool:
    """Between two requests: none is taken and unanswered, no answer is half written, no large frame is half read."""
    held = connection.in_flight or connection.out or connection.big is not None
    return not (held or connection.state & ~_WAITS_TOO)


def record(connection: Connection, session: dict[str, Any] | None, muted_until: float) -> Kept:
    """What its successor needs of a quiet connection; `session`: of SASL, `muted_until`: monotonic seconds."""
    received = connection.partial
    if connection.backlog is not None:
        view, at, end = connection.backlog
        received += view[at:end]
    principal = connection.principal
    return Kept(
        connection.listener, connection.host, connection.port, (principal.type, principal.name), connection.by_token,
        session, connection.client_head, int(muted_until * 1000), received,
    )  # fmt: skip


def mute_again(muting: Muting, connection: Connection, until: float) -> None:
    """Continue a throttle time that is over at `until` (monotonic seconds; 0: there is none)."""
    rest_ms = int((until - time.monotonic()) * 1000)
    if rest_ms > 0:
        muting.mute(connection, rest_ms)
