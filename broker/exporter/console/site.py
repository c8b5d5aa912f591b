"""The console's pages by HTTP: the files of the page, and JSON below /api/.

Each request passes `guard` first. An error is a JSON object with one line, which the page shows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.console import broker_settings, guard, paging, views
from odradek.broker.exporter.console.errors import Refused
from odradek.broker.exporter.console.moments import Moment, Moments
from odradek.broker.exporter.console.paging import Query
from odradek.broker.exporter.console.schema_registry import SchemaRegistry
from odradek.broker.exporter.console.schema_requests import URL
from odradek.cluster.metadata.snapshot import Snapshot

log = logging.getLogger(__name__)

READERS = 4  # requests to the broker that are under way or wait for their turn
_FOLDER = Path(__file__).parent / "page"
_FILES = {
    "/": ("console.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
Parameters = Mapping[str, str]
Answer = Callable[[Parameters], Awaitable[dict[str, Any]]]


class Site:
    """Answers requests."""

    def __init__(self, moments: Moments, config: BrokerConfig) -> None:
        self._moments, self._config = moments, config
        registry = config[URL]
        self._registry = SchemaRegistry(registry) if registry else None
        self._turn, self._readers = asyncio.Lock(), 0
        self._answers: Mapping[str, Answer] = {
            "/api/overview": self._of_moment(lambda moment, _: views.overview(moment)),
            "/api/topics": self._of_moment(lambda moment, given: views.topics(moment, Query.parse(given))),
            "/api/topic": self._of_moment(lambda moment, given: views.topic(moment, *_named(given))),
            "/api/groups": self._of_moment(lambda moment, given: views.groups(moment, Query.parse(given))),
            "/api/group": self._of_moment(lambda moment, given: views.group(moment, *_named(given))),
            "/api/settings": self._of_moment(self._settings),
            "/api/differences": self._differences,
            "/api/messages": self._messages,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to one request."""
        try:
            guard.check(request.method, request.headers)
            return await self._page(request)
        except Refused as refused:
            return _response(refused.status, {"error": str(refused)})
        except Exception:
            log.exception("console: %s", request.path)
            return _response(500, {"error": "the console failed: its log has the cause"})

    async def _page(self, request: web.BaseRequest) -> web.Response:
        if (file := _FILES.get(request.path)) is not None:
            name, content_type = file
            return web.Response(body=_FOLDER.joinpath(name).read_bytes(), headers=_headers(content_type))
        answer = self._answers.get(request.path)
        if answer is None:
            raise Refused(404, "there are / and, as JSON, " + ", ".join(self._answers))
        return _response(200, await answer(request.query))

    def _of_moment(self, view: Callable[[Moment, Parameters], dict[str, Any]]) -> Answer:
        async def answer(given: Parameters) -> dict[str, Any]:
            moment = await self._moments.now()
            return await asyncio.to_thread(view, moment, given)

        return answer

    def _settings(self, moment: Moment, given: Parameters) -> dict[str, Any]:
        return broker_settings.settings(self._config, moment.sample.snapshot, Query.parse(given))

    async def _messages(self, given: Parameters) -> dict[str, Any]:
        from odradek.broker.exporter.console import messages  # kafka-python, when there is something to read

        wanted = messages.wanted_of(given)
        return await self._as_client(lambda snapshot: messages.read(self._config, snapshot, wanted, self._registry))

    async def _differences(self, _: Parameters) -> dict[str, Any]:
        from odradek.broker.exporter.console import differences

        return await self._as_client(lambda snapshot: differences.ask(self._config, snapshot))

    async def _as_client(self, call: Callable[[Snapshot], dict[str, Any]]) -> dict[str, Any]:
        """One call at a time: the console asks little, and the broker has other clients. Raises Refused."""
        moment = await self._moments.now()
        if self._readers >= READERS:
            raise Refused(503, "other requests to the broker wait already: try again")
        self._readers += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(call, moment.sample.snapshot)
        finally:
            self._readers -= 1


def _named(given: Parameters) -> tuple[str, Query]:
    return paging.text(given, "name"), Query.parse(given)


def _headers(content_type: str) -> dict[str, str]:
    return {**guard.HEADERS, "Content-Type": content_type}


def _response(status: int, answer: dict[str, Any]) -> web.Response:
    return web.Response(status=status, text=json.dumps(answer), headers=_headers("application/json"))
