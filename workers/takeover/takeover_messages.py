"""The messages by which a new worker takes over the connections of a running one, and the record of a connection.

Layout    : channels of ipc.channel; each message is one kind byte and what follows it.
            Supervisor and worker, on `upgrade-worker-<n>.sock`:
              P                  supervisor → worker   serve this connection; its descriptor travels along
              O                  supervisor → worker   hand over to the other end of this channel (descriptor)
              W                  supervisor → worker   take over from the other end of this channel (descriptor)
              D                  worker → supervisor   all is handed over, this worker ends
              F why              worker → supervisor   it is not: this worker goes on
            Giver and taker, on the pair that O and W bring:
              V oldest newest    taker → giver         the versions of records that it reads (two u16)
              G number record    giver → taker         a connection (u64, record); its descriptor travels along
              T number           taker → giver         the taker serves it from now on
              N number           taker → giver         the taker cannot serve it: the giver goes on with it
              E                  giver → taker         no connection follows
            A record: u16 version, u32 size of a JSON object, the object, then the bytes that were received of requests
            that no process has taken. A reader ignores fields that it does not know.
Owner     : each worker binds its socket once it holds its role byte.
Writers   : both ends, each its own kinds.
Lock      : none.
Crash rule: a descriptor belongs to the giver until N or T. After the death of the taker the giver closes those without
            an answer, since it is unknown whether requests of them were taken. After the death of the giver the taker
            keeps all that it received.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

PROBE, HAND_OVER, TAKE_OVER, DONE, FAILED = b"P", b"O", b"W", b"D", b"F"
VERSIONS, GIVE, TOOK, NOT_TAKEN, END = b"V", b"G", b"T", b"N", b"E"

OLDEST, NEWEST = 1, 1  # versions of records that this code reads; it writes NEWEST or older ones
_RANGE = struct.Struct(">HH")
_NUMBER = struct.Struct(">Q")
_HEAD = struct.Struct(">HI")


class Kept(NamedTuple):
    """A connection between two requests."""

    listener: str
    host: str
    port: int
    principal: tuple[str, str]
    by_token: bool
    session: dict[str, Any] | None  # workers.authentication.kept_sessions; None: there was no SASL exchange
    client_head: bytes  # the client id, as in the header of its last request
    muted_until_ms: int  # by CLOCK_MONOTONIC, which all processes share; 0: the client is not throttled
    received: bytes  # of requests that were not taken


def door(role_name: str) -> str:
    """The name of a worker's socket in the run directory."""
    return f"upgrade-{role_name}.sock"


def versions(oldest: int = OLDEST, newest: int = NEWEST) -> bytes:
    """The first message of a taker."""
    return VERSIONS + _RANGE.pack(oldest, newest)


def range_of(message: bytes) -> tuple[int, int]:
    """(oldest, newest) of a VERSIONS message."""
    oldest, newest = _RANGE.unpack_from(message, 1)
    return oldest, newest


def numbered(kind: bytes, number: int) -> bytes:
    """A TOOK or NOT_TAKEN message."""
    return kind + _NUMBER.pack(number)


def number_of(message: bytes) -> int:
    """The number of a GIVE, TOOK or NOT_TAKEN message."""
    number: int = _NUMBER.unpack_from(message, 1)[0]
    return number


def give(number: int, kept: Kept) -> bytes:
    """A connection for the taker; send it with the descriptor."""
    fields = {
        "listener": kept.listener, "host": kept.host, "port": kept.port, "principal": kept.principal,
        "by_token": kept.by_token, "session": kept.session, "client_head": kept.client_head.decode("latin-1"),
        "muted_until_ms": kept.muted_until_ms,
    }  # fmt: skip
    text = json.dumps(fields).encode()
    return numbered(GIVE, number) + _HEAD.pack(NEWEST, len(text)) + text + kept.received


def kept(message: bytes) -> Kept:
    """The connection of a GIVE message. ValueError: its record cannot be read here."""
    at = 1 + _NUMBER.size
    try:
        version, size = _HEAD.unpack_from(message, at)
        if not OLDEST <= version <= NEWEST:
            raise ValueError(f"a record of version {version}")
        at += _HEAD.size
        fields = json.loads(message[at : at + size])
        kind, name = fields["principal"]
        return Kept(
            fields["listener"], fields["host"], fields["port"], (kind, name), fields["by_token"], fields["session"],
            fields["client_head"].encode("latin-1"), fields["muted_until_ms"], message[at + size :],
        )  # fmt: skip
    except (struct.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record: {error!r}") from None
