"""The exporter: serves metrics at `odradek.metrics.listener`, and a console at `odradek.console.listener`.

Role 6. A scrape reads shared memory as `odradek status` does (broker.exporter.scrape), and so does the console, but for
messages, which it reads as a client does. What they serve is as old as the request, or a second older in the console.
Connections are bounded (broker.exporter.http_server).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from odradek.broker.exporter import http_server
from odradek.broker.exporter.console.moments import Moments
from odradek.broker.exporter.console.site import Site
from odradek.broker.exporter.pages import Pages
from odradek.broker.exporter.scrape import Scraper
from odradek.broker.process.process import Process, enter
from odradek.ipc import roles

log = logging.getLogger(__name__)

BEAT_S = 1.0
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
        scraper, turn = Scraper(process), asyncio.Lock()
        self._pages = Pages(scraper, turn)
        site = Site(Moments(scraper, turn, process.config, process.shared), process.config)
        services = (
            _Service("odradek.metrics.listener", "metrics", "/metrics", self._pages.handle),
            _Service("odradek.console.listener", "the console", "/", site.handle),
        )
        self._services = [one for one in services if process.config[one.setting]]

    async def run(self) -> None:
        """Serve until SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._process.running()  # the broker is ready also while another program has an address
        async with asyncio.TaskGroup() as serving:
            for service in self._services:
                serving.create_task(self._serve(service))
            while not self._stop.is_set():
                self._process.beat()
                await self._pages.follow()
                await self._wait(BEAT_S)
            self._process.draining()

    async def _serve(self, service: _Service) -> None:
        runner = web.ServerRunner(web.Server(service.handle, access_log=None))
        await runner.setup()
        assert runner.server is not None
        server = await self._listen(service, runner.server)
        await self._stop.wait()
        if server is not None:
            server.close()
        await runner.cleanup()

    async def _listen(self, service: _Service, serving: web.Server) -> asyncio.Server | None:
        """Bind, however long another program has the address: the broker serves meanwhile. None: stopped."""
        address, said = self._process.config[service.setting], ""
        while not self._stop.is_set():
            try:
                server = await http_server.listen(serving, address)
            except OSError as error:
                if str(error) != said:
                    log.error("cannot serve %s at %s=%s: %s", service.what, service.setting, address, error.strerror)
                said = str(error)
                await self._wait(RETRY_S)
            else:
                log.info("serving %s at http://%s%s", service.what, http_server.bound(server), service.page)
                return server
        return None

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            pass


def main(run_dir: Path) -> None:
    """Run the exporter of the broker with this run directory, until SIGTERM."""
    asyncio.run(Exporter(enter(roles.EXPORTER, run_dir)).run())
