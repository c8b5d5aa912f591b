"""Shared by DescribeAcls, CreateAcls and DeleteAcls: their codec, and the change that the last two make."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.protocol import requests, responses
from odradek.protocol.library import message_class
from odradek.security.acls import acl_requests
from odradek.security.acls.acl_requests import Changes
from odradek.security.acls.acl_types import Acls
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.context import Context


class CheckedCodec:
    """The library's codec for an API, with a check of the request: what it raises ends the connection."""

    def __init__(self, name: str, check: Callable[[Any], None]) -> None:
        self._request, self._check = name + "Request", check

    def decode(self, version: int, body: memoryview) -> Any:
        """The request; ValueError if it fails the check."""
        request = requests.decode(message_class(self._request), version, body)
        self._check(request)
        return request

    def decoding(self, version: int, body: memoryview) -> Generator[None, None, Any]:
        """`decode` in steps."""
        request = yield from requests.decoding(message_class(self._request), version, body)
        self._check(request)
        return request

    def encode(self, version: int, response: Any) -> bytes:
        """The response's body."""
        return responses.encoded(response, version)


def change(
    controller: Controller, request: Any, context: Context,
    decide: Callable[[Acls, Any], tuple[Any, Changes]], refuse: Callable[[Any, int, str | None], Any],
) -> Iterator[None]:  # fmt: skip
    """Change the ACLs, in steps, and answer when every live worker has the new ones."""
    if not controller.authorization.enabled:
        context.reply(refuse(request, *acl_requests.NO_AUTHORIZER))
        return
    made: Changes = {}

    def noted(acls: Acls) -> tuple[Any, Changes]:
        answer, changes = decide(acls, request)
        made.update(changes)
        return answer, changes

    try:
        answer = yield from controller.owner.change_acls(noted)
    except ApiError as error:
        answer = refuse(request, error.code, error.message)
    else:
        for pattern in made:
            context.changed(f"ACLs of {pattern.type.title} {pattern.name} ({pattern.pattern.title})")
    controller.when_published(lambda: context.reply(answer))
