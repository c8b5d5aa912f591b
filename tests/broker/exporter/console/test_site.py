"""Who may have an answer is asked again when a request that has waited gets its turn."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from odradek.broker import config
from odradek.broker.exporter.access.reader import Reader
from odradek.broker.exporter.access.refused import LoginNeeded, Refused
from odradek.broker.exporter.console.moments import Moment
from odradek.broker.exporter.console.site import Site
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE_CONFIGS, READ, TOPIC

from .test_views import moment, reader

SEES = reader((READ, TOPIC, "orders"), (DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"))


class Users:
    """What each look at the users of the broker finds."""

    def __init__(self, *found: Reader | Refused) -> None:
        self._found = list(found)

    async def of(self, _: object) -> Reader:
        found = self._found.pop(0)
        if isinstance(found, Refused):
            raise found
        return found


class Moments:
    """A moment without end."""

    async def now(self) -> Moment:
        return moment()


class Request:
    """A request of a path with parameters."""

    method = "GET"

    def __init__(self, path: str, **query: str) -> None:
        self.path, self.query, self.headers = path, query, dict[str, str]()


def answer(users: Users, request: Any) -> tuple[int, str]:
    """Status and line of a console that has no user at the broker: one that reads is refused for that."""
    made = config.resolve({"log.dirs": "data", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"})
    site = Site(Moments(), made, users)  # type: ignore[arg-type]
    found: Any = asyncio.run(site.handle(request))
    return found.status, json.loads(found.text)["error"]


REQUESTS = [Request("/api/messages", topic="orders"), Request("/api/differences")]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: one.path)
def test_a_right_that_goes_while_a_request_waits_refuses_it(request_: Request) -> None:
    assert "the console has no user" in answer(Users(SEES, SEES), request_)[1]
    status, line = answer(Users(SEES, reader()), request_)
    assert status == 403 and "User:alice needs " in line
    assert answer(Users(SEES, LoginNeeded("wrong")), request_) == (401, "wrong")
