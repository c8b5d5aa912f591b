"""The pages of the exporter: which path shows what.

`/metrics` is for Prometheus, in its text format or in OpenMetrics as the client asks; `?names=` chooses the names
(broker.exporter.names). `/healthz` answers 200 while this process runs, `/ready` while the broker serves clients.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from odradek.broker.exporter import names, text
from odradek.broker.exporter.scrape import Scraper

log = logging.getLogger(__name__)

FOLLOW_S = 0.2  # of each second, at most
_PLAIN = "text/plain; charset=utf-8"


class Pages:
    """Answers requests."""

    def __init__(self, scraper: Scraper, turn: asyncio.Lock) -> None:
        """`turn`: held while the scraper is used."""
        self._scraper, self._turn = scraper, turn

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to one request."""
        page = {"/metrics": self._metrics, "/healthz": self._healthy, "/ready": self._ready}.get(request.path)
        if page is None:
            return _line(404, "there are /metrics, /healthz and /ready")
        if request.method not in ("GET", "HEAD"):
            return _line(405, "only GET and HEAD")
        return await page(request)

    async def follow(self) -> None:
        """Read on between scrapes."""
        async with self._turn:
            await asyncio.to_thread(self._scraper.follow, FOLLOW_S)

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        chosen = request.query.get("names", names.DEFAULT)
        if chosen not in names.VOCABULARIES:
            return _line(400, f"names={chosen}: must be one of {', '.join(names.VOCABULARIES)}")
        form = text.form_of(request.headers.get("Accept", ""))
        async with self._turn:
            body = await asyncio.to_thread(self._render, chosen, form)
        return web.Response(body=body, headers={"Content-Type": form.content_type})

    def _render(self, chosen: str, form: text.Form) -> bytes:
        return text.render(names.VOCABULARIES[chosen](self._scraper.take()), form)

    async def _healthy(self, _: web.BaseRequest) -> web.Response:
        return _line(200, "healthy")

    async def _ready(self, _: web.BaseRequest) -> web.Response:
        why = self._scraper.not_ready()
        return _line(503, why) if why else _line(200, "ready")


def _line(status: int, line: str) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers={"Content-Type": _PLAIN})
