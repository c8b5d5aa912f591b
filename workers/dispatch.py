"""From a request's bytes to its handler and back to the response's bytes, in whichever process handles it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any

from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol.wire import WireError
from odradek.workers.api import Api
from odradek.workers.context import Context

log = logging.getLogger(__name__)

# What decoding raises on bytes that are not what their version promises.
MALFORMED = (ValueError, IndexError, struct.error, KeyError, TypeError, EOFError, OverflowError, MemoryError, WireError)

Answer = Callable[[int, bytes], None]
Later = Callable[[Iterator[None]], None]


def serve(row: Api, services: Any, request: Forwarded, answer: Answer) -> None:
    """Decode, handle, encode; `answer(flags, body)` is called once, now or later (flags: ipc.forward).

    A handler may be a generator, where `services` can `begin` one (broker.steps): it does its work in steps.
    """
    decoded = _decoded(row, request, answer)
    if decoded is not None:
        _handle(row, services, decoded, request, answer, _at_once)


def serving(row: Api, services: Any, request: Forwarded, answer: Answer, later: Later) -> Iterator[None]:
    """The same in steps, the last of which are begun by `later`: a large answer takes its time, too."""
    decoded = _decoded(row, request, answer)
    yield
    if decoded is not None:
        _handle(row, services, decoded, request, answer, later)


def _decoded(row: Api, request: Forwarded, answer: Answer) -> Any:
    """The request; None when it was answered that it is none."""
    try:
        return row.decode(request.version, memoryview(request.body))
    except MALFORMED as error:
        answer(forward.CLOSE, str(error).encode(errors="replace"))
    except Exception:
        log.exception("%s v%d from %s cannot be decoded", row.name, request.version, request.client_host)
        answer(forward.FAILED, b"")
    return None


def _at_once(work: Iterator[None]) -> None:
    for _ in work:
        pass


def _handle(row: Api, services: Any, decoded: Any, request: Forwarded, answer: Answer, later: Later) -> None:
    def reply(response: Any) -> None:
        later(_encoding(row, request, response, answer))

    context = Context(
        row.key, request.version, request.client_id, request.client_host, request.listener, reply, len(request.body)
    )  # fmt: skip

    def in_steps(work: Iterator[None]) -> Iterator[None]:
        try:
            yield from work
        except Exception:
            failed()

    def failed() -> None:
        log.exception("%s v%d from %s failed", row.name, request.version, request.client_host)
        answer(forward.FAILED, b"")

    try:
        response = row.handle(services, decoded, context)
        if isinstance(response, Generator):
            services.begin(in_steps(response))
        elif response is not None:
            reply(response)
    except Exception:
        failed()


def _encoding(row: Api, request: Forwarded, response: Any, answer: Answer) -> Iterator[None]:
    """Steps, if the answer is long; else one."""
    try:
        body = yield from row.encoding(request.version, response)
    except Exception:
        log.exception("%s v%d: the answer cannot be encoded", row.name, request.version)
        answer(forward.FAILED, b"")
    else:
        answer(forward.OK, body)


def frame(row: Api, version: int, correlation: int, body: bytes) -> bytes:
    """A response frame: length, correlation id, tags if this version has them, body."""
    if row.has_flexible_response(version):
        return struct.pack(">iiB", len(body) + 5, correlation, 0) + body
    return struct.pack(">ii", len(body) + 4, correlation) + body
