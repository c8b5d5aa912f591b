"""The exporter: serves metrics at `odradek.metrics.listener`, and a console at `odradek.console.listener`.

Role 6. A scrape reads shared memory as `odradek status` does (broker.exporter.scrape), and so does the console, but for
messages, which it reads as a client does. What they serve is as old as the request, or a second older in the console.
Connections are bounded (broker.exporter.http_server). A listener with SASL_SSL has TLS and asks for users of the broker
(broker.exporter.access).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from odradek.broker.exporter import http_server
from odradek.broker.exporter.access import listener_names
from odradek.broker.exporter.access.listener_names import CONSOLE, METRICS
from odradek.broker.exporter.console.moments import Moments
from odradek.broker.exporter.console.site import Site
from odradek.broker.exporter.http_server import Connections
from odradek.broker.exporter.pages import Pages
from odradek.broker.exporter.scrape import Scraper
from odradek.broker.process.process import Process, enter
from odradek.ipc import roles

if TYPE_CHECKING:
    from odradek.broker.exporter.access.live_security import LiveSecurity
    from odradek.broker.exporter.access.readers import Readers

log = logging.getLogger(__name__)

BEAT_S = 1.0
FOLLOW_S = 0.4  # what users and ACLs allow falls within a second; users in dynamic configs: BEAT_S, and a scrape, later
RETRY_S = 1.0  # until the address is free


class _Service(NamedTuple):
    """What is served at the address that a setting has; `page` is where to look first."""

    setting: str
    what: str
    page: str
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Exporter:
    """One event loop; scrapes and the samples of the console take turns in a thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = asyncio.Event()
        config = process.config
        self._scraper, turn = Scraper(process), asyncio.Lock()
        self._secured = listener_names.secured(config)
        self._security: LiveSecurity | None = None
        self._readers: Readers | None = self._begin_security() if self._secured else None
        self._pages = Pages(self._scraper, turn, self._readers_of(METRICS))
        site = Site(Moments(self._scraper, turn, config, process.shared), config, self._readers_of(CONSOLE))
        services = (
            _Service(METRICS, "metrics", "/metrics", self._pages.handle),
            _Service(CONSOLE, "the console", "/", site.handle),
        )
        self._services = [one for one in services if config[one.setting]]

    def _begin_security(self) -> Readers:
        """Load certificates, users and ACLs. Without a listener that needs them, nothing of OpenSSL is loaded."""
        from odradek.broker.exporter.access.live_security import LiveSecurity
        from odradek.broker.exporter.access.readers import Readers

        self._security = LiveSecurity(self._process.config, self._process.shared.security)
        return Readers(self._security, lambda: self._scraper.snapshot)

    def _readers_of(self, setting: str) -> Readers | None:
        return self._readers if setting in self._secured else None

    async def run(self) -> None:
        """Serve until SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._process.running()  # the broker is ready also while another program has an address
        async with asyncio.TaskGroup() as serving:
            for service in self._services:
                serving.create_task(self._serve(service))
            if self._readers is not None:
                serving.create_task(self._follow_security(self._readers))
            while not self._stop.is_set():
                self._process.beat()
                await self._pages.follow()
                await self._wait(BEAT_S)
            self._process.draining()
        if self._readers is not None:
            self._readers.close()  # after the last request

    async def _follow_security(self, readers: Readers) -> None:
        while not self._stop.is_set():
            await readers.follow()
            await self._wait(FOLLOW_S)

    async def _serve(self, service: _Service) -> None:
        readers = self._readers_of(service.setting)
        connections = Connections(service.handle, None if readers is None else readers.has_logged_in)
        runner = web.ServerRunner(connections)
        await runner.setup()
        server = await self._listen(service, connections)
        await self._stop.wait()
        if server is not None:
            server.close()
        await runner.cleanup()

    async def _listen(self, service: _Service, serving: Connections) -> http_server.Server | None:
        """Bind, however long another program has the address: the broker serves meanwhile. None: stopped."""
        address, said = self._process.config[service.setting], ""
        context = self._context if service.setting in self._secured else None
        while not self._stop.is_set():
            try:
                server = await http_server.listen(serving, address, context)
            except OSError as error:
                if str(error) != said:
                    log.error("cannot serve %s at %s=%s: %s", service.what, service.setting, address, error.strerror)
                said = str(error)
                await self._wait(RETRY_S)
            else:
                scheme = "http" if context is None else "https"
                log.info("serving %s at %s://%s%s", service.what, scheme, http_server.bound(server), service.page)
                return server
        return None

    def _context(self) -> ssl.SSLContext | None:
        """The one of a new connection."""
        tls = self._security.tls if self._security is not None else None
        return None if tls is None else tls.server

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            pass


def main(run_dir: Path) -> None:
    """Run the exporter of the broker with this run directory, until SIGTERM."""
    asyncio.run(Exporter(enter(roles.EXPORTER, run_dir)).run())
