"""The console's pages by HTTP: the files of the page, and JSON below /api/.

Each request passes `guard` first, then `readers`, where the console asks for users: that again once its turn comes, if
it had to wait for one. An error is a JSON object with one line, which the page shows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.access.reader import EVERYONE, Reader
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import broker_settings, guard, paging, schema_requests, views
from odradek.broker.exporter.console.moments import Moment, Moments
from odradek.broker.exporter.console.paging import Query
from odradek.broker.exporter.console.schema_registry import SchemaRegistry
from odradek.broker.exporter.console.schema_requests import URL
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE_CONFIGS, READ, TOPIC

if TYPE_CHECKING:
    from odradek.broker.exporter.access.readers import Readers

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
Answer = Callable[[web.BaseRequest, Reader], Awaitable[dict[str, Any]]]


class Site:
    """Answers requests."""

    def __init__(self, moments: Moments, config: BrokerConfig, readers: Readers | None = None) -> None:
        """`readers`: who may read; None: everyone."""
        self._moments, self._config, self._users = moments, config, readers
        self._registry = SchemaRegistry(schema_requests.of(config)) if config[URL] else None
        self._turn, self._readers = asyncio.Lock(), 0
        self._answers: Mapping[str, Answer] = {
            "/api/overview": self._of_moment(lambda moment, _, who: views.overview(moment, who)),
            "/api/topics": self._of_moment(lambda moment, given, who: views.topics(moment, Query.parse(given), who)),
            "/api/topic": self._of_moment(lambda moment, given, who: views.topic(moment, *_named(given), who)),
            "/api/groups": self._of_moment(lambda moment, given, who: views.groups(moment, Query.parse(given), who)),
            "/api/group": self._of_moment(lambda moment, given, who: views.group(moment, *_named(given), who)),
            "/api/settings": self._of_moment(self._settings),
            "/api/differences": self._differences,
            "/api/messages": self._messages,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to one request."""
        try:
            guard.check(request.method, request.headers, self._users is not None)
            return await self._page(request, await self._reader(request))
        except Refused as refused:
            return _response(refused.status, {"error": str(refused)}, refused.headers)
        except Exception:
            log.exception("console: %s", request.path)
            return _response(500, {"error": "the console failed: its log has the cause"})

    async def _reader(self, request: web.BaseRequest) -> Reader:
        """Raises Refused."""
        return EVERYONE if self._users is None else await self._users.of(request)

    async def _page(self, request: web.BaseRequest, reader: Reader) -> web.Response:
        if (file := _FILES.get(request.path)) is not None:
            name, content_type = file
            return web.Response(body=_FOLDER.joinpath(name).read_bytes(), headers=_headers(content_type))
        answer = self._answers.get(request.path)
        if answer is None:
            raise Refused(404, "there are / and, as JSON, " + ", ".join(self._answers))
        return _response(200, await answer(request, reader))

    def _of_moment(self, view: Callable[[Moment, Parameters, Reader], dict[str, Any]]) -> Answer:
        async def answer(request: web.BaseRequest, reader: Reader) -> dict[str, Any]:
            moment = await self._moments.now()
            return await asyncio.to_thread(view, moment, request.query, reader)

        return answer

    def _settings(self, moment: Moment, given: Parameters, reader: Reader) -> dict[str, Any]:
        reader.require("settings", DESCRIBE_CONFIGS, CLUSTER)
        return broker_settings.settings(self._config, moment.sample.snapshot, Query.parse(given))

    async def _messages(self, request: web.BaseRequest, reader: Reader) -> dict[str, Any]:
        from odradek.broker.exporter.console import messages  # kafka-python, when there is something to read

        wanted = messages.wanted_of(request.query)

        def check(who: Reader) -> None:
            who.require("messages", READ, TOPIC, wanted.topic)

        check(reader)
        read = partial(messages.read, self._config, wanted=wanted, registry=self._registry)
        return await self._as_client(request, check, read)

    async def _differences(self, request: web.BaseRequest, reader: Reader) -> dict[str, Any]:
        from odradek.broker.exporter.console import differences

        def check(who: Reader) -> None:
            who.require("settings", DESCRIBE_CONFIGS, CLUSTER)

        check(reader)
        return await self._as_client(request, check, partial(differences.ask, self._config))

    async def _as_client(
        self, request: web.BaseRequest, check: Callable[[Reader], None], call: Callable[[Snapshot], dict[str, Any]]
    ) -> dict[str, Any]:
        """One call at a time: the console asks little, and the broker has other clients. Raises Refused.

        `check` raises it for a reader without the right, which may be gone when the turn comes.
        """
        moment = await self._moments.now()
        if self._readers >= READERS:
            raise Refused(503, "other requests to the broker wait already: try again")
        self._readers += 1
        try:
            async with self._turn:
                check(await self._reader(request))
                return await asyncio.to_thread(call, moment.sample.snapshot)
        finally:
            self._readers -= 1


def _named(given: Parameters) -> tuple[str, Query]:
    return paging.text(given, "name"), Query.parse(given)


def _headers(content_type: str) -> dict[str, str]:
    return {**guard.HEADERS, "Content-Type": content_type}


def _response(
    status: int, answer: dict[str, Any], headers: Mapping[str, str] = MappingProxyType({})
) -> web.Response:  # fmt: skip
    return web.Response(status=status, text=json.dumps(answer), headers={**_headers("application/json"), **headers})
