"""The acceptor: accepts on the inherited sockets and hands each connection to a worker.

Role 1. The listening sockets are the supervisor's (or systemd's), so no client is refused while an acceptor is
respawned. Workers register on `acceptor.sock`; the one with the fewest connections gets the next, as a descriptor
in a message of `ipc.handoff`. While no worker is registered, or a limit is reached, the acceptor accepts nothing: the
kernel's backlog is the queue, and it is bounded. A connection that exceeds the quota of its address stays here until
its throttle time is over, and is then closed (KIP-612).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker.acceptor.throttled_connections import ThrottledConnections
from odradek.broker.connection_limits import ConnectionCounts, ConnectionLimits
from odradek.broker.errors import BootError
from odradek.broker.listeners import between_brokers
from odradek.broker.process import sd_notify, sockets
from odradek.broker.process.process import Process, Signals, enter
from odradek.cluster.configs import configdef, quota_windows
from odradek.ipc import channel, handoff, roles
from odradek.ipc.channel import Channel
from odradek.ipc.handoff import Client
from odradek.ipc.processes import COLUMN
from odradek.ipc.roles import role_name, worker_role
from odradek.security.addresses import canonical
from odradek.security.quotas.connections import AddressRates
from odradek.security.quotas.keys import CONNECTION_CREATION_RATE
from odradek.security.quotas.resolution import AddressQuotas
from odradek.workers.net.bounded_log import BoundedLog

log = logging.getLogger(__name__)

BATCH = 64
IDLE_S = 0.5
FINISH_S = 1.0
NO_FILES_PAUSE_S = 0.5
NO_FILES_LOG_S = 60.0
_LINES_S = 60  # for each listener, a line about rejected connections
_REJECTED = "rejected %s:%d on %s: max.connections.per.ip reached for its address"
_EXPIRE_S = 600.0  # between two looks for addresses that have not connected for long
MOST_HOMELESS = 4096  # connections handed back while no worker is registered
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class WorkerChannel:
    """A registered worker: its channel and the connections it has."""

    def __init__(self, link: Channel) -> None:
        self.channel = link
        self.worker_id = -1
        self.draining = False
        self.clients: Counter[tuple[str, str]] = Counter()  # by listener and host
        self.load = 0
        self._unsent: list[int] = []

    @property
    def takes(self) -> bool:
        """Whether it may get connections."""
        return self.worker_id >= 0 and not self.draining

    def hand(self, client: Client, fd: int) -> None:
        """Pass it a connection; closes the descriptor here once the message is sent."""
        self.channel.send(handoff.handoff(client), [fd])
        self._unsent.append(fd)
        self.sent()

    def sent(self) -> None:
        """Close descriptors whose messages are sent."""
        if not self.channel.wants_write:
            for fd in self._unsent:
                os.close(fd)
            self._unsent.clear()

    def close(self) -> None:
        """The worker is gone."""
        self.channel.close()
        for fd in self._unsent:
            os.close(fd)
        self._unsent.clear()


class Acceptor:
    """One loop over listening sockets and workers' channels."""

    def __init__(self, process: Process, listening: dict[str, socket.socket]) -> None:
        self._process = process
        self._listening = {sock.fileno(): (name, sock) for name, sock in listening.items()}
        self._links: dict[int, WorkerChannel] = {}
        self._homeless: deque[tuple[Client, int]] = deque()
        self._counts = ConnectionCounts(self._limits(), time.monotonic())
        self._row = process.shared.processes.row(roles.ACCEPTOR)
        self._rates = AddressRates(quota_windows.client_window(process.config), self._rate_of)
        self._quotas = AddressQuotas({}, CONNECTION_CREATION_RATE)
        self._throttled = ThrottledConnections()
        self._expire_at = 0.0
        self._accepting: set[int] = set()
        self._paused_until = 0.0
        self._no_files_logged = -NO_FILES_LOG_S
        self._rejections = BoundedLog(log, logging.WARNING, "rejected connections", 1, _LINES_S)
        self._meta_version = 0
        self._door = channel.Listener(process.run_dir / "acceptor.sock")
        self._epoll = select.epoll()
        self._epoll.register(self._door.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Run until SIGTERM."""
        signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._epoll.register(signals.fileno(), select.EPOLLIN)
        self._process.running()
        while True:
            self._process.beat()
            self.turn(self.adjust())
            if signals.drain():
                break
        self._process.draining()
        self.finish()

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    def turn(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for connections and workers, and serve those there are."""
        # Workers before clients: else clients that arrive with a worker's registration all go to older workers.
        for fd, events in sorted(self._epoll.poll(timeout), key=lambda event: event[0] in self._listening):
            self._event(fd, events)

    def listen(self, listening: dict[str, socket.socket]) -> None:
        """Accept on these sockets in the place of the former ones, which it closes."""
        for fd in list(self._accepting):
            self._set_accepting(fd, False)
        for _, sock in self._listening.values():
            sock.close()
        self._listening = {sock.fileno(): (name, sock) for name, sock in listening.items()}
        self._meta_version = 0  # the limits are those of other listeners

    def finish(self) -> None:
        """Pass on what workers have handed back, and let no accepted connection end with this process.

        What is sent is the workers', also if this process ends before they read it (ipc.channel). Clients that connect
        from now on wait in the backlog of the sockets, which are the supervisor's. A worker that hands a connection
        back from now on loses it; only workers that drain do.
        """
        for fd in list(self._accepting):
            self._set_accepting(fd, False)
        for fd, events in self._epoll.poll(0):
            self._event(fd, events)
        until = time.monotonic() + FINISH_S
        while any(link.channel.wants_write for link in self._links.values()) and time.monotonic() < until:
            for fd, events in self._epoll.poll(FINISH_S / 100):
                self._event(fd, events)

    def close(self) -> None:
        """Close what it has, as the end of its process does: workers see that it has ended."""
        self._epoll.close()  # and with it what waits in it
        for _, sock in self._listening.values():
            sock.close()
        for link in self._links.values():
            link.close()
        for _, fd in self._homeless:
            os.close(fd)
        self._throttled.close()
        self._door.close()

    def _event(self, fd: int, events: int) -> None:
        if fd in self._listening:
            self._accept(*self._listening[fd])
        elif fd in self._links:
            self._talk(self._links[fd], events)
        elif fd == self._door.fileno():
            self._admit_workers()

    def adjust(self) -> float:
        """Accept or pause according to the current limits; returns seconds until the next check."""
        self._follow_metadata()
        now, timeout = time.monotonic(), IDLE_S
        takers = any(link.takes for link in self._links.values())
        pause = self._pause(now)
        for fd, (name, _) in self._listening.items():
            waiting = self._counts.wait(now, name)
            self._set_accepting(fd, takers and waiting == 0 and not pause)
            if takers and (pause or waiting > 0):
                timeout = min(timeout, max(pause, waiting))
        return min(timeout, self._close_throttled(now))

    def _pause(self, now: float) -> float:
        """Seconds until it tries again to accept, after a lack of descriptors."""
        pause = max(0.0, self._paused_until - now)
        if self._paused_until and not pause:
            self._paused_until = 0.0
            self._epoll.modify(self._door.fileno(), select.EPOLLIN)
        return pause

    def _close_throttled(self, now: float) -> float:
        """Close connections whose throttle time is over; returns seconds until the next one."""
        for client in self._throttled.close_due(now):
            self._counts.closed(client.host, client.listener)
            self._count()
        self._rejections.tick(now)
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_S
            self._rates.expire(int(now * 1000))
        return self._throttled.due() - now

    def _set_accepting(self, fd: int, on: bool) -> None:
        if on == (fd in self._accepting):
            return
        if on:
            self._epoll.register(fd, select.EPOLLIN)
        else:
            self._epoll.unregister(fd)
        self._accepting ^= {fd}

    def _follow_metadata(self) -> None:
        """The limits may be changed while the broker runs (AlterConfigs)."""
        version = self._process.shared.metadata.version
        if version == self._meta_version:
            return
        from odradek.cluster.metadata.snapshot import Snapshot

        self._meta_version, blob = self._process.shared.metadata.read()
        snapshot = Snapshot.parse(blob, self._process.config)
        self._counts.limits = self._limits(*snapshot.dynamic_layers(self._process.config["broker.id"]))
        self._quotas = AddressQuotas(snapshot.quotas, CONNECTION_CREATION_RATE)
        self._row[COLUMN["meta_version"]] = self._meta_version

    def _limits(self, *layers: Mapping[str, str]) -> ConnectionLimits:
        """The limits; settings of `layers` override those of the configuration file."""
        config = self._process.config

        def in_force(name: str) -> Any:
            for layer in (*layers, config.originals):
                if name in layer:
                    return configdef.parse(name, layer[name])
            return config.get(name)

        return ConnectionLimits.of(in_force, [name for name, _ in self._listening.values()], between_brokers(config))

    # Clients

    def _accept(self, name: str, sock: socket.socket) -> None:
        self._follow_metadata()  # a quota is in force when AlterClientQuotas is answered
        for _ in range(BATCH):
            if self._counts.wait(time.monotonic(), name):
                return
            try:
                connection, address = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            self._counts.accepted(name)
            self._welcome(connection, Client(name, _plain(address[0]), address[1]))

    def _cannot_accept(self, error: OSError) -> None:
        if error.errno not in _NO_FILES:
            self._rejections.write(time.monotonic(), "", "accept failed: %s", error.strerror)
            return
        now = time.monotonic()
        self._paused_until = now + NO_FILES_PAUSE_S
        self._epoll.modify(self._door.fileno(), 0)  # a worker that waits there keeps it readable
        self._row[COLUMN["errors"]] += 1
        if now - self._no_files_logged >= NO_FILES_LOG_S:
            self._no_files_logged = now
            log.error(
                "cannot accept connections (%s): raise `ulimit -n`; clients wait in the listen queue", error.strerror
            )

    def _welcome(self, connection: socket.socket, client: Client) -> None:
        if self._counts.refuses(client.host):
            self._rejections.write(time.monotonic(), client.listener, _REJECTED, *client[1:], client.listener)
            self._row[COLUMN["errors"]] += 1
            connection.close()
            return
        self._counts.opened(client.host, client.listener)
        throttled_ms = self._rates.connected(client.host, time.monotonic_ns() // 1_000_000) if self._quotas else 0
        if throttled_ms:
            log.debug("%s:%d on %s: connection_creation_rate exceeded for its address", *client[1:], client.listener)
            self._throttled.add(connection, client, time.monotonic() + throttled_ms / 1000)
            self._count()
            return
        _set_options(connection, self._process)
        self._give(client, connection.detach())

    def _rate_of(self, host: str) -> float | None:
        """The connections a second that an address may open."""
        return self._quotas.find(host)

    def _give(self, client: Client, fd: int) -> None:
        takers = [link for link in self._links.values() if link.takes]
        if not takers:
            self._keep(client, fd)
            return
        link = min(takers, key=lambda one: one.load)
        link.load += 1
        link.clients[client.listener, client.host] += 1
        link.hand(client, fd)
        self._watch(link)
        self._count()
        self._row[COLUMN["handoffs"]] += 1
        log.debug("%s:%d on %s → worker-%d", client.host, client.port, client.listener, link.worker_id)

    def _keep(self, client: Client, fd: int) -> None:
        if len(self._homeless) < MOST_HOMELESS:
            self._homeless.append((client, fd))
            return
        os.close(fd)
        self._counts.closed(client.host, client.listener)

    def _count(self) -> None:
        self._row[COLUMN["connections"]] = self._counts.total

    # Workers

    def _admit_workers(self) -> None:
        while (arrived := self._arrived()) is not None:
            link = self._links[arrived.fileno()] = WorkerChannel(arrived)
            self._epoll.register(arrived.fileno(), select.EPOLLIN)
            self._listen(link)

    def _arrived(self) -> Channel | None:
        try:
            return self._door.accept()
        except OSError as error:
            if error.errno not in _NO_FILES:
                raise
            self._cannot_accept(error)
            return None

    def _talk(self, link: WorkerChannel, events: int) -> None:
        if events & select.EPOLLOUT:
            link.channel.flush()
            link.sent()
            self._watch(link)
        if events & ~select.EPOLLOUT:
            self._listen(link)

    def _listen(self, link: WorkerChannel) -> None:
        try:
            messages = link.channel.receive()
        except EOFError:
            self._forget(link)
            return
        returned = deque(link.channel.take_fds())
        for message in messages:
            self._on_message(link, message, returned)

    def _on_message(self, link: WorkerChannel, message: bytes, returned: deque[int]) -> None:
        kind = message[:1]
        if kind == handoff.REGISTER:
            self._registered(link, handoff.registered(message))
        elif kind == handoff.OPENED:
            listener, host = handoff.listener_and_host(message)
            self._counts.opened(host, listener)
            self._loaded(link, listener, host, 1)
        elif kind == handoff.CLOSED:
            listener, host = handoff.listener_and_host(message)
            self._counts.closed(host, listener)
            self._loaded(link, listener, host, -1)
        elif kind == handoff.DRAIN:
            link.draining = True
            link.channel.send(handoff.END)
            self._watch(link)
        elif kind == handoff.BACK:
            self._take_back(link, handoff.client(message), returned.popleft() if returned else channel.LOST)
        self._count()

    def _take_back(self, link: WorkerChannel, client: Client, fd: int) -> None:
        self._loaded(link, client.listener, client.host, -1)
        if fd == channel.LOST:
            self._counts.closed(client.host, client.listener)
        else:
            self._give(client, fd)

    def _registered(self, link: WorkerChannel, worker_id: int) -> None:
        link.worker_id = worker_id
        log.info("%s accepts connections", role_name(worker_role(worker_id)))
        for _ in range(len(self._homeless)):
            self._give(*self._homeless.popleft())

    def _loaded(self, link: WorkerChannel, listener: str, host: str, change: int) -> None:
        link.load += change
        link.clients[listener, host] += change
        if not link.clients[listener, host]:
            del link.clients[listener, host]

    def _forget(self, link: WorkerChannel) -> None:
        """A dead worker's connections are dead, also those on their way to it."""
        self._epoll.unregister(link.channel.fileno())
        del self._links[link.channel.fileno()]
        for (listener, host), count in link.clients.items():
            if count > 0:
                self._counts.closed(host, listener, count)
        link.close()
        self._count()
        if link.worker_id >= 0:
            log.info("%s stopped accepting connections", role_name(worker_role(link.worker_id)))

    def _watch(self, link: WorkerChannel) -> None:
        more = select.EPOLLOUT if link.channel.wants_write else 0
        self._epoll.modify(link.channel.fileno(), select.EPOLLIN | more)


def _plain(host: str) -> str:
    """An IPv4 client of a dual-stack socket under its IPv4 address; no zone."""
    return canonical(host) if ":" in host else host


def _set_options(connection: socket.socket, process: Process) -> None:
    connection.setblocking(False)  # a flag of the open file, so it holds in the worker as well
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    size = process.config["socket.send.buffer.bytes"]
    if "socket.send.buffer.bytes" in process.config.originals and size > 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def _inherited() -> list[tuple[str, socket.socket]]:
    handed = [(name, socket.socket(fileno=fd)) for name, fd in sd_notify.inherited()]
    for _, sock in handed:
        sock.setblocking(False)
    return handed


def main(run_dir: Path) -> None:
    """Run the acceptor of the broker with this run directory, until SIGTERM."""
    listening = _inherited()
    process = enter(roles.ACCEPTOR, run_dir)
    if not listening:
        raise BootError("an acceptor needs the listening sockets from its supervisor or from systemd (LISTEN_FDS)")
    Acceptor(process, sockets.by_listener(listening, process.config.listeners)).run()
