"""Well-formed requests, one of every API and version, and mutations of them."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

from ..clients.raw.wellformed import request
from ..clients.test_every_version import COMPARED
from .grammar import Grammar, framed, mangled

_SIZES = (-1, -(1 << 31), 0, 1, 9, (1 << 31) - 1, 1 << 27, 104857601)


class Golden:
    """The well-formed frames, and mutations of them."""

    def __init__(self, grammar: Grammar, topic: str, topic_id: uuid.UUID, group: str) -> None:
        self.frames = [
            _encoded(request(request_class, version, topic, topic_id, group))
            for request_class, version in grammar.rows
            if request_class.API_KEY not in COMPARED
        ]

    def mutated(self, rng: random.Random) -> bytes:
        """One mutated frame with the correct size, so that the broker can read the frames after it."""
        frame = rng.choice(self.frames)
        if rng.random() < 0.2:
            frame = self._spliced(frame, rng)
        start = rng.choice((4, 14, 14, 14))  # sometimes also mutate the header
        return framed(frame[4:start] + mangled(frame[start:], rng))

    def _spliced(self, frame: bytes, rng: random.Random) -> bytes:
        other = rng.choice(self.frames)
        return frame[: rng.randrange(4, len(frame))] + other[rng.randrange(4, len(other)) :]

    def torn(self, rng: random.Random) -> bytes:
        """A frame with a wrong size, or an incomplete one: no frame can follow it."""
        frame = rng.choice(self.frames)
        if rng.random() < 0.5:
            return frame[: rng.randrange(1, len(frame))]
        return struct.pack(">i", rng.choice(_SIZES)) + frame[4:]


def _encoded(asked: Any) -> bytes:
    asked.with_header(correlation_id=1, client_id="golden")
    return bytes(asked.encode(header=True, framed=True))


def noise(rng: random.Random) -> bytes:
    """Random bytes, mostly after a correct size."""
    data = rng.randbytes(rng.choice((1, 3, 4, 10, 40, 400)))
    if rng.random() < 0.3:
        return data
    if rng.random() < 0.5:  # an existing API key, so that decoding gets further
        data = struct.pack(">hh", rng.randrange(76), rng.randrange(14)) + data
    return framed(data)
