"""The pages of the exporter: which path shows what.

`/metrics` is for Prometheus, in its text format or in OpenMetrics as the client asks; `?names=` chooses the names
(broker.exporter.names). `/healthz` answers 200 while this process runs, `/ready` while the broker serves clients.

With odradek.metrics.security.protocol=SASL_SSL `/metrics` needs a user with Describe on the cluster, for it names all
topics and groups, and a browser that sends it for no other web site. The other two need none: what probes them has no
password, and they tell nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.exporter import names, text
from odradek.broker.exporter.access import sites
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.scrape import Scraper
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE

if TYPE_CHECKING:
    from odradek.broker.exporter.access.readers import Readers

log = logging.getLogger(__name__)

FOLLOW_S = 0.2  # of each second, at most
_PLAIN = "text/plain; charset=utf-8"


class Pages:
    """Answers requests."""

    def __init__(self, scraper: Scraper, turn: asyncio.Lock, readers: Readers | None = None) -> None:
        """`turn`: held while the scraper is used. `readers`: who may read; None: everyone."""
        self._scraper, self._turn, self._readers = scraper, turn, readers

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to one request."""
        page = {"/metrics": self._metrics, "/healthz": self._healthy, "/ready": self._ready}.get(request.path)
        if page is None:
            return _line(404, "there are /metrics, /healthz and /ready")
        if request.method not in ("GET", "HEAD"):
            return _line(405, "only GET and HEAD")
        try:
            return await page(request)
        except Refused as refused:
            return _line(refused.status, str(refused), refused.headers)

    async def follow(self) -> None:
        """Read on between scrapes."""
        async with self._turn:
            await asyncio.to_thread(self._scraper.follow, FOLLOW_S)

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        if self._readers is not None:
            sites.check(request.headers)
            (await self._readers.of(request)).require("metrics", DESCRIBE, CLUSTER)
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


def _line(status: int, line: str, headers: Mapping[str, str] = MappingProxyType({})) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers={"Content-Type": _PLAIN, **headers})
