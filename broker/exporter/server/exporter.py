"""The exporter: serves metrics at `odradek.metrics.listener`. It asks no other process for anything.

Role 6. A scrape reads shared memory as `odradek status` does (broker.exporter.scrape). What it serves is as old as the
request. Connections are bounded (broker.exporter.http_server).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

from aiohttp import web

from odradek.broker.exporter import http_server
from odradek.broker.exporter.pages import Pages
from odradek.broker.exporter.scrape import Scraper
from odradek.broker.process.process import Process, enter
from odradek.ipc import roles

log = logging.getLogger(__name__)

BEAT_S = 1.0
RETRY_S = 1.0  # until the address is free


class Exporter:
    """One event loop; scrapes take turns in a thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = asyncio.Event()
        self._pages = Pages(Scraper(process))

    async def run(self) -> None:
        """Serve until SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        runner = web.ServerRunner(web.Server(self._pages.handle, access_log=None))
        await runner.setup()
        assert runner.server is not None
        self._process.running()  # the broker is ready also while another program has the address
        server = await self._listen(runner.server)
        while not self._stop.is_set():
            self._process.beat()
            await self._pages.follow()
            await self._wait(BEAT_S)
        self._process.draining()
        if server is not None:
            server.close()
        await runner.cleanup()

    async def _listen(self, serving: web.Server) -> asyncio.Server | None:
        """Bind, however long another program has the address: the broker serves meanwhile. None: stopped."""
        address, said = self._process.config["odradek.metrics.listener"], ""
        while not self._stop.is_set():
            try:
                server = await http_server.listen(serving, address)
            except OSError as error:
                if str(error) != said:
                    log.error("cannot serve metrics at odradek.metrics.listener=%s: %s", address, error.strerror)
                said = str(error)
                self._process.beat()
                await self._wait(RETRY_S)
            else:
                log.info("serving metrics at http://%s/metrics", http_server.bound(server))
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
