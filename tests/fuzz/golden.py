"""Requests as clients send them, one of every API and version, and what a bad wire or a bad client makes of them."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

from ..clients.raw.wellformed import request
from .grammar import Grammar, framed, mangled

_SIZES = (-1, -(1 << 31), 0, 1, 9, (1 << 31) - 1, 1 << 27, 104857601)


class Golden:
    """The good frames, and mutations of them."""

    def __init__(self, grammar: Grammar, topic: str, topic_id: uuid.UUID, group: str) -> None:
        self.frames = [
            _encoded(request(request_class, version, topic, topic_id, group)) for request_class, version in grammar.rows
        ]

    def mutated(self, dice: random.Random) -> bytes:
        """One good frame, changed, with a size that fits it: what follows on its connection is still understood."""
        frame = dice.choice(self.frames)
        if dice.random() < 0.2:
            frame = self._spliced(frame, dice)
        start = dice.choice((4, 14, 14, 14))  # at times also the header
        return framed(frame[4:start] + mangled(frame[start:], dice))

    def _spliced(self, frame: bytes, dice: random.Random) -> bytes:
        other = dice.choice(self.frames)
        return frame[: dice.randrange(4, len(frame))] + other[dice.randrange(4, len(other)) :]

    def torn(self, dice: random.Random) -> bytes:
        """A good frame that lies about its own size, or is cut off: nothing may follow it."""
        frame = dice.choice(self.frames)
        if dice.random() < 0.5:
            return frame[: dice.randrange(1, len(frame))]
        return struct.pack(">i", dice.choice(_SIZES)) + frame[4:]


def _encoded(asked: Any) -> bytes:
    asked.with_header(correlation_id=1, client_id="golden")
    return bytes(asked.encode(header=True, framed=True))


def noise(dice: random.Random) -> bytes:
    """Random bytes; half of them behind a size that fits."""
    data = dice.randbytes(dice.choice((1, 3, 4, 10, 40, 400)))
    if dice.random() < 0.3:
        return data
    if dice.random() < 0.5:  # an API key that exists, so that it gets further
        data = struct.pack(">hh", dice.randrange(76), dice.randrange(14)) + data
    return framed(data)
