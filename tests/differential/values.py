"""Values of request fields, equal for both brokers except for values that each broker has generated."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ..clients.raw.batches import CODEC_BITS, NOW, batch, compress, message, record, varint, wrapped
from ..fuzz.valid import POOL_SHARE, OddValues
from .config_values import VALUES

TIMES = (NOW, NOW, NOW, NOW - 1000, NOW + 5000, 0, -1, -2, NOW + 7_200_000)
CODECS = ("gzip", "snappy", "lz4", "zstd")
TOPIC = {"topic", "name", "topic_id", "topics", "topic_name", "topic_names"}
INDEX = {"partition_index", "partition_indexes", "index", "partition", "partitions"}
OTHER_NAMES = {"protocols", "configs"}  # arrays whose `name` is not a topic's
ONCE = {
    "groups_names", "groups", "group_id", "transactional_id", "transactional_ids", "resources.resource_name",
    "configuration_keys", "configs.name", "protocols.name", "markers.producer_id",
}  # fmt: skip
"""Fields with different values in all elements of an array, unless the generator makes an element odd."""
NEVER_TWICE = {"groups", "protocols", "transactions", "markers", "resources", "topic_data", "partition_data"}
"""Arrays without two elements for the same object. Kafka counts a protocol that a member names twice as those of two
members, confuses two entries for one transaction (v4+, for brokers) or group, sends no response for a duplicate config
resource or two markers of one producer, and responds to a Produce request with a duplicate partition with the error of
one batch after it has stored the other; no client sends any of these.
"""
ONE_BY_ONE = {"AlterPartitionReassignments", "WriteTxnMarkers"}
"""KRaft carries out, and returns, each of two reassignments of a partition; with ZooKeeper the last one counts. Kafka
sends no response to two markers for one partition.
"""
LEARNT = {"producer_id", "producer_epoch", "v3_and_below_producer_id", "v3_and_below_producer_epoch", "member_id",
          "generation_id", "generation_id_or_member_epoch", "session_id", "session_epoch"}  # fmt: skip
LATEST_SHARE = 0.8
STRICT = {"session_id"}
"""Fields that only use values of their pool: Kafka fails with an exception for an unknown session id."""
MOST = 17
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (), (), (), (), (("h", b"v"),), (("", None), ("h", b"")), (("Ω", b"v" * 70), ("h", b"1"), ("h", b"2")),
)  # fmt: skip
LARGE = (1_048_507, 1_048_508, 1_048_515, 1_048_516, 1_048_517, 1_100_000)
"""Sizes of values whose batch is about as large as max.message.bytes."""
LARGE_SHARE = 0.01
ALL_IF_EMPTY = "DescribeTopicPartitions"
DYNAMIC_SHARE = 0.5
TRANSACTIONAL, CONTROL, APPEND_TIME = 1 << 4, 1 << 5, 1 << 3


class Values(OddValues):
    """`sequences`: the next sequence of each producer id as this client sees it, which may be wrong."""

    MANY, EQUAL, LARGE_SHARE = 300, (1,), 0.0  # limits of requests differ between brokers

    def __init__(
        self, rng: random.Random, pools: Mapping[str, Sequence[Any]], spice: float, api: str, version: int,
        sequences: dict[Any, int],
    ) -> None:  # fmt: skip
        super().__init__(rng, pools, spice)
        self._api = api
        self._pool_share = POOL_SHARE if spice else 0.99
        self._version = version
        self._sequences = sequences
        self._topics: set[Any] = set()
        self._indexes: set[Any] = set()
        self._drawn: dict[str, set[Any]] = {}
        self._config = self._entity = b""
        self._place: dict[str, Any] = {}

    def known(self, api: str, name: str) -> Any:
        """As in general, but records are generated here, and partitions are mostly named once."""
        path = f"{self.within}.{name}"
        if name == "records":
            return self._records()
        if name == "entity_type":
            self._entity = self._another(api, name, self._drawn.setdefault(path, set()))
            return self._entity
        if name in ("entity_name", "match") and self._entity == b"ip":
            return self.rng.choice(self._pools["addresses"])  # a name would be looked up in the DNS
        if path == "configs.value":
            return self._config_value()
        if path == "configs.name":
            self._config = self._another(api, name, self._drawn.setdefault(path, set())) or b""
            return self._config
        if name == "resource_name":
            self._drawn.pop("configs.name", None)
        if name in ONCE or path in ONCE:
            return self._another(api, name, self._drawn.setdefault(path, set()))
        if name in TOPIC and self.within not in OTHER_NAMES:
            self._indexes.clear()
            self._drawn.pop("configs.name", None)
            self._place["topic"] = self._another(api, name, self._topics)
            return self._place["topic"]
        if name in INDEX:
            self._place["index"] = self._another(api, name, self._indexes)
            return self._place["index"]
        return self._one(api, name)

    def _one(self, api: str, name: str) -> Any:
        """Mostly the newest value of a response, otherwise any value of the pool."""
        pool = self.pool(api, name)
        if isinstance(pool, tuple):
            return self.rng.choice(pool)
        if name not in STRICT and (not pool or self.odd() or self.rng.random() > self._pool_share):
            return None
        assert pool
        return pool[-1] if name in LEARNT and self.rng.random() < LATEST_SHARE else self.rng.choice(pool)

    def cut(self, body: bytes) -> bytes:
        """The request's body, rarely truncated or with trailing bytes."""
        if not self.odd() or not self.odd():
            return body
        return self.rng.choice((body[: self.rng.randrange(len(body) + 1)], body + b"\0", body + b"more"))

    def null(self, name: str) -> bool:
        """Kafka sends no response to a Produce request without records. Half of the members are dynamic."""
        if name == "group_instance_id" and self.rng.random() < DYNAMIC_SHARE:
            return True
        return name != "records" and name not in self._pools.get("never_null", ()) and super().null(name)

    def repeats(self, name: str, size: int) -> int:
        never = name in NEVER_TWICE or self._api in ONE_BY_ONE
        return 0 if never else super().repeats(name, size)

    def text(self, compact: bool) -> bytes:
        """A name that no other sequence uses, because a request may create a topic with it."""
        own = self._pools.get("unknown")
        return self.rng.choice(own) if own and not self.odd() else super().text(compact)

    def count(self, name: str, depth: int) -> int:
        """As in general, but without hundreds of elements, which take Kafka long, and without reads of all topics."""
        least = 0 if self._api != ALL_IF_EMPTY or depth else 1
        return max(least, min(super().count(name, depth), MOST))

    def _another(self, api: str, name: str, drawn: set[Any]) -> Any:
        value = self._one(api, name)
        once = self.within in NEVER_TWICE or self._api in ONE_BY_ONE
        if value is not None and self.odd() and not once:
            return value
        for _ in range(20):
            if value is not None and value not in drawn:
                break
            value = self._one(api, name)
        if value is None or value in drawn:
            value = self._unlike(name, len(drawn))
        drawn.add(value)
        return value

    def _unlike(self, name: str, number: int) -> Any:
        """An unknown value that occurs nowhere else in the request."""
        if name in INDEX:
            return 5 + number
        if name == "producer_id":  # an id that neither broker assigns
            return (1 << 50) + number
        return bytes((1 + number % 255,)) * 16 if name == "topic_id" else b"%d" % number + self._pools["unknown"][0]

    def _config_value(self) -> bytes:
        values = VALUES.get(self._config.decode("utf-8", "replace"), ("1",))
        return self.rng.choice(values).encode()

    def _records(self) -> bytes:
        if self.odd():
            return self.rng.choice((b"", b"x", bytes(61), self._batch()[:-1], 2 * self._batch(), self._old()))
        return self._batch() if self._version >= 3 else self._set()

    def _set(self) -> bytes:
        """For Produce below version 3: a message set, rarely one of several sets, or of a newer format."""
        if self.rng.random() < 0.85:
            return self._old()
        return b"".join(self.rng.choice((self._old, self._batch))() for _ in range(self.rng.choice((1, 2, 2, 3))))

    def _batch(self) -> bytes:
        rng = self.rng
        values = [rng.choice((b"x", b"", None, b"y" * 50)) for _ in range(rng.choice((1, 1, 2, 3, 40)))]
        if rng.random() < LARGE_SHARE:
            values = [b"z" * rng.choice(LARGE)]
        fields: dict[str, Any] = {"timestamp": rng.choice(TIMES) if self.odd() else NOW, "step": rng.choice((0, 1))}
        if rng.random() < 0.6:
            fields |= self._producer(len(values))
        if self.odd():
            fields |= rng.choice(
                ({"break_crc": True}, {"count": 7}, {"count": 0}, {"last_delta": 9}, {"last_delta": -1})
            )
        bits = fields.pop("bits", 0) | (rng.choice((CONTROL, APPEND_TIME, 6, 1 << 6, -1 << 15)) if self.odd() else 0)
        key = rng.choice((None, b"k", b"k"))
        headers = rng.choice(HEADERS)
        payload = b"".join(record(at, value, key, at * fields["step"], headers) for at, value in enumerate(values))
        if self.odd():
            payload = self._poisoned(payload)
        if rng.random() < 0.3 and not bits & 7:
            codec = rng.choice(CODECS)
            payload, bits = compress(codec, payload), bits | CODEC_BITS[codec]
            if self.odd():
                payload = self._poisoned(payload)
        return batch(values, attributes=bits, payload=payload, **fields)

    def _poisoned(self, payload: bytes) -> bytes:
        """Bytes that are no records, or other records than the header declares."""
        rng, cut = self.rng, self.rng.randrange(len(payload) + 1)
        at = rng.randrange(len(payload) or 1)
        flipped = payload[:at] + bytes((rng.randrange(256),)) + payload[at + 1 :]
        return rng.choice((
            payload[:cut], payload + b"\0", payload + record(0, b"more"), payload[::-1], flipped, flipped, b"",
            varint(1 << 30) + payload, varint(-1) + payload, payload[:1] + b"\xff" * 9 + payload[1:],
        ))  # fmt: skip

    def _producer(self, count: int) -> dict[str, Any]:
        """The fields of an idempotent batch; every second one is transactional."""
        producer = self.known("", "producer_id")
        if producer is None or producer < 0:
            return {}
        epoch = self.known("", "producer_epoch") or 0
        key = producer, epoch, *self._place.values()
        sequence = self.rng.choice((0, 1, 5, 2**31 - 1)) if self.odd() else self._sequences.get(key, 0)
        if self.rng.random() < 0.85:
            self._sequences[key] = (sequence + count) & 0x7FFFFFFF
        bits = TRANSACTIONAL if self.rng.random() < self._transactional() else 0
        return {"producer": producer, "epoch": epoch, "sequence": sequence, "bits": bits}

    def _transactional(self) -> float:
        return float(next(iter(self._pools.get("transactional_share", (0.5,)))))

    def _old(self) -> bytes:
        """A message set of magic 0 or 1, perhaps compressed."""
        magic = self.rng.choice((0, 1)) if self._version >= 2 or self.odd() else 0
        values = [self.rng.choice((b"x", b"", None)) for _ in range(self.rng.choice((1, 2, 3)))]
        key = self.rng.choice((None, b"k"))
        if self.rng.random() < 0.3:
            return wrapped(values, self.rng.choice(CODECS[:3]), magic=magic)
        at = self.rng.choice(TIMES) if self.odd() else NOW
        broken = self.odd()
        return b"".join(
            message(v, key, magic=magic, offset=n, timestamp=at, break_crc=broken) for n, v in enumerate(values)
        )
