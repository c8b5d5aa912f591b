"""Takes a request's bytes to its handler and returns the response's bytes, in whichever process handles it.

A right on the cluster that an API demands of every request is checked here, all other rights are in the handlers.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol.wire import I32, MALFORMED
from odradek.workers.dispatch import refusals
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import guarded
from odradek.workers.dispatch.context import Context, at_once

log = logging.getLogger(__name__)

Answer = Callable[[int, bytes], None]
Later = Callable[[Iterator[Any]], None]


def serve(row: Api, services: Any, request: Forwarded, answer: Answer, later: Later = at_once) -> None:
    """Decode, handle, encode; calls `answer(flags, body)` once, now or later (flags: ipc.forward).

    A handler may be a generator, if `services` can `begin` one (broker.process.steps): it then works in steps. The
    answer is encoded in steps too, started by `later`.
    """
    decoded = None
    with _refusing(row, request, answer):
        decoded = row.decode(request.version, memoryview(request.body))
    if decoded is not None:
        _handle(row, services, decoded, request, answer, later)


def serving(row: Api, services: Any, request: Forwarded, answer: Answer, later: Later) -> Iterator[None]:
    """`serve` for a large request, which is decoded in steps too."""
    decoded = None
    with _refusing(row, request, answer):
        decoded = yield from row.decoding(request.version, memoryview(request.body))
    yield
    if decoded is not None:
        _handle(row, services, decoded, request, answer, later)


@contextmanager
def _refusing(row: Api, request: Forwarded, answer: Answer) -> Iterator[None]:
    """Answer a request that is malformed, or that cannot be decoded because of a bug."""
    try:
        yield
    except MALFORMED as error:
        answer(forward.CLOSE, str(error).encode(errors="replace"))
    except Exception:
        log.exception("%s v%d from %s: cannot decode the request", row.name, request.version, request.client_host)
        answer(forward.FAILED, b"")


def _handle(row: Api, services: Any, decoded: Any, request: Forwarded, answer: Answer, later: Later) -> None:
    def reply(response: Any) -> None:
        later(_encoding(row, request, response, answer))

    def begin(work: Iterator[object]) -> None:
        services.begin(in_steps(work))

    rights = services.authorization.of(request.principal, request.client_host)
    context = Context(
        row.key, request.version, request.client_id, request.client_host, request.listener, reply, len(request.body),
        begin, request.principal, request.by_token, rights,
    )  # fmt: skip

    def in_steps(work: Iterator[object]) -> Iterator[object]:
        try:
            yield from work
        except Exception:
            failed()

    def failed() -> None:
        log.exception("%s v%d from %s failed", row.name, request.version, request.client_host)
        answer(forward.FAILED, b"")

    assert row.handle is not None, "it has a fast path"
    try:
        if error := guarded(row, request.version, rights):
            reply(refusals.refusal(row, decoded, error))
            return
        response = row.handle(services, decoded, context)
        if isinstance(response, Generator):
            begin(response)
        elif response is not None:
            reply(response)
    except Exception:
        failed()


def _encoding(row: Api, request: Forwarded, response: Any, answer: Answer) -> Iterator[None]:
    try:
        body = yield from row.encoding(request.version, response)
    except Exception:
        log.exception("%s v%d: cannot encode the response", row.name, request.version)
        answer(forward.FAILED, b"")
    else:
        answer(*_with_throttle(row, request.version, response, body))


def _with_throttle(row: Api, version: int, response: Any, body: bytes) -> tuple[int, bytes]:
    """Where the response of this version has no throttle time, the worker gets it, which throttles the client."""
    throttle_ms = getattr(response, "throttle_time_ms", None)
    if throttle_ms and row.throttle_at(version, len(body)) < 0:
        return forward.THROTTLED, I32.pack(throttle_ms) + body
    return forward.OK, body


def frame(row: Api, version: int, correlation: int, body: bytes) -> bytes:
    """A response frame: length, correlation id, tags if this version has them, body."""
    if row.has_flexible_response(version):
        return struct.pack(">iiB", len(body) + 5, correlation, 0) + body
    return struct.pack(">ii", len(body) + 4, correlation) + body
