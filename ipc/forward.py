"""The messages that forward a client's request from a worker to the process that owns the answer, and reply to it.

Request layout: u64 token, i16 api key, i16 version, u8 flags (1: authenticated by a delegation token), then client id,
client host, listener name and principal (u16 length + UTF-8 each; length 0xFFFF is null), then the request's body as
the client sent it.
Reply layout  : u64 token, u8 flags, then the response's body. Negative api keys are internal requests.
An owner that ends in order sends ENDS as its last reply, with token 0, which no request has; the body has the tokens
(u64 each) of requests that it began and did not finish. All others without an answer were not begun: their senders send
them to the next owner. A sender that does not know ENDS ignores it, and takes all of them for lost.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

_HEAD = struct.Struct(">QhhB")
_REPLY = struct.Struct(">QB")
_LENGTH = struct.Struct(">H")
_NULL = 0xFFFF

OK = 0
CLOSE = 1  # the request was malformed, the body says how: close the client's connection
FAILED = 2  # an internal error of the owner, which has logged it: close the client's connection
THROTTLED = 3  # as OK; i32 before the body: ms to throttle the client, in versions whose responses do not have them
ENDS = 4  # token 0: the owner ends, see above


class Forwarded(NamedTuple):
    """One request: `token` identifies it for the worker; the rest is the client data that its handler may use."""

    token: int
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    listener: str
    body: bytes
    principal: str = "User:ANONYMOUS"
    by_token: bool = False


def encode(request: Forwarded) -> bytes:
    """The message for the channel."""
    return b"".join(
        (
            _HEAD.pack(request.token, request.api_key, request.version, request.by_token),
            _text(request.client_id),
            _text(request.client_host),
            _text(request.listener),
            _text(request.principal),
            request.body,
        )
    )


def _text(text: str | None) -> bytes:
    if text is None:
        return _LENGTH.pack(_NULL)
    data = text.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(data)) + data


def decode(message: bytes) -> Forwarded:
    """The request in a channel message."""
    token, api_key, version, by_token = _HEAD.unpack_from(message)
    position = _HEAD.size
    texts: list[str | None] = []
    for _ in range(4):
        text, position = _read_text(message, position)
        texts.append(text)
    client_id, host, listener, principal = texts
    return Forwarded(
        token, api_key, version, client_id, host or "", listener or "", message[position:], principal or "",
        bool(by_token),
    )  # fmt: skip


def _read_text(message: bytes, position: int) -> tuple[str | None, int]:
    (length,) = _LENGTH.unpack_from(message, position)
    position += 2
    if length == _NULL:
        return None, position
    return message[position : position + length].decode("utf-8", "surrogateescape"), position + length


def encode_reply(token: int, body: bytes, flags: int = OK) -> bytes:
    """The answer for the channel."""
    return _REPLY.pack(token, flags) + body


def encode_end(begun: Collection[int]) -> bytes:
    """The last message of an owner that ends in order; `begun`: tokens of requests that may have taken effect."""
    return encode_reply(0, struct.pack(f">{len(begun)}Q", *begun), ENDS)


def decode_end(body: bytes) -> tuple[int, ...]:
    """The tokens of an ENDS reply."""
    return struct.unpack(f">{len(body) // 8}Q", body)


def decode_reply(message: bytes) -> tuple[int, int, bytes]:
    """(token, flags, response body)."""
    token, flags = _REPLY.unpack_from(message)
    return token, flags, message[_REPLY.size :]
