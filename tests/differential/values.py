"""What the fields of a request are given, the same for both brokers but for what each of them made up."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ..clients.raw.batches import NOW, batch, compressed, message, wrapped
from ..fuzz.valid import OddValues

TIMES = (NOW, NOW, NOW, NOW - 1000, NOW + 5000, 0, -1, -2, NOW + 7_200_000)
CODECS = ("gzip", "snappy", "lz4", "zstd")
TOPIC = {"topic", "name", "topic_id", "topics"}
INDEX = {"partition_index", "partition_indexes", "index", "partition", "partitions"}
TRANSACTIONAL, CONTROL, APPEND_TIME = 1 << 4, 1 << 5, 1 << 3


class Values(OddValues):
    """`sequences`: the next of each producer id that this client believes in; it may be wrong."""

    MANY, EQUAL, LARGE_SHARE = 300, (1,), 0.0  # how much a request may hold is each broker's own

    def __init__(
        self, dice: random.Random, pools: Mapping[str, Sequence[Any]], spice: float, version: int,
        sequences: dict[Any, int],
    ) -> None:  # fmt: skip
        super().__init__(dice, pools, spice)
        self._version = version
        self._sequences = sequences
        self._topics: set[Any] = set()
        self._indexes: set[Any] = set()
        self._place: dict[str, Any] = {}

    def known(self, api: str, name: str) -> Any:
        """As any value, but records are made here, and mostly no partition is named twice."""
        if name == "records":
            return self._records()
        if name in TOPIC:
            self._indexes.clear()
            self._place["topic"] = self._another(api, name, self._topics)
            return self._place["topic"]
        if name in INDEX:
            self._place["index"] = self._another(api, name, self._indexes)
            return self._place["index"]
        return super().known(api, name)

    def null(self, name: str) -> bool:
        """Kafka does not answer a Produce request without records."""
        return name != "records" and super().null(name)

    def repeats(self, name: str, size: int) -> int:
        """Kafka counts a protocol that a member names twice as those of two members; here it counts once."""
        return super().repeats(name, size) if name != "protocols" else 0

    def _another(self, api: str, name: str, drawn: set[Any]) -> Any:
        value = super().known(api, name)
        if self.odd():
            return value
        for _ in range(20):
            if value is not None and value not in drawn:
                break
            value = super().known(api, name)
        drawn.add(value)
        return value

    def _records(self) -> bytes:
        if self.odd():
            return self.dice.choice((b"", b"x", bytes(61), self._batch()[:-1], 2 * self._batch(), self._old()))
        return self._batch() if self._version >= 3 else self._old()

    def _batch(self) -> bytes:
        dice = self.dice
        values = [dice.choice((b"x", b"", None, b"y" * 50)) for _ in range(dice.choice((1, 1, 2, 3)))]
        fields: dict[str, Any] = {"timestamp": dice.choice(TIMES) if self.odd() else NOW, "step": dice.choice((0, 1))}
        if dice.random() < 0.6:
            fields |= self._producer(len(values))
        if self.odd():
            fields |= dice.choice(
                ({"break_crc": True}, {"count": 7}, {"count": 0}, {"last_delta": 9}, {"last_delta": -1})
            )
        bits = fields.pop("bits", 0) | (dice.choice((CONTROL, APPEND_TIME, 6, 1 << 6, -1 << 15)) if self.odd() else 0)
        if dice.random() < 0.2 and not bits and fields["step"] == 0:
            return compressed(values, dice.choice(CODECS), **fields)
        return batch(values, attributes=bits, key=dice.choice((None, b"k")), **fields)

    def _producer(self, count: int) -> dict[str, Any]:
        """The fields of an idempotent batch, transactional every other time."""
        producer = self.known("", "producer_id")
        if producer is None or producer < 0:
            return {}
        epoch = self.known("", "producer_epoch") or 0
        key = producer, epoch, *self._place.values()
        sequence = self.dice.choice((0, 1, 5, 2**31 - 1)) if self.odd() else self._sequences.get(key, 0)
        if self.dice.random() < 0.85:
            self._sequences[key] = (sequence + count) & 0x7FFFFFFF
        bits = TRANSACTIONAL if self.dice.random() < 0.5 else 0
        return {"producer": producer, "epoch": epoch, "sequence": sequence, "bits": bits}

    def _old(self) -> bytes:
        """A message set, of magic 0 or 1, perhaps compressed."""
        magic = self.dice.choice((0, 1)) if self._version >= 2 or self.odd() else 0
        values = [self.dice.choice((b"x", b"", None)) for _ in range(self.dice.choice((1, 2, 3)))]
        if self.dice.random() < 0.3:
            return wrapped(values, self.dice.choice(CODECS[:3]), magic=magic)
        at = self.dice.choice(TIMES) if self.odd() else NOW
        broken = self.odd()
        return b"".join(message(v, magic=magic, offset=n, timestamp=at, break_crc=broken) for n, v in enumerate(values))
