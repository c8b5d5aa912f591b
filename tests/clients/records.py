"""Records for round trips, each a pure function of its number, so that a million need no memory to compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK = 100  # records that share headers and the meaning of "empty" where a tool sets those once a run
LARGE_EVERY, LARGE_BYTES = 2_000, 100_000
HUGE_EVERY, HUGE_BYTES = 10_000, 900_000
TEXT = "abcdefghijklmnopqrstuvwxyz ÄÖÜß€漢字0123456789.-"


class Record(NamedTuple):
    """The bytes of a record that a client sees."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Plan(NamedTuple):
    """`total` records made by `make(number)`; number i goes to partition i mod `partitions`."""

    make: Callable[[int], Record]
    total: int
    partitions: int

    def numbers(self, partition: int) -> range:
        """The numbers of the records of one partition, in the order of their offsets."""
        return range(partition, self.total, self.partitions)

    def codec_runs(self) -> Iterator[tuple[str, range]]:
        """A fifth of the numbers for each codec."""
        step = -(-self.total // len(CODECS))
        for at, codec in enumerate(CODECS):
            yield codec, range(min(at * step, self.total), min((at + 1) * step, self.total))


def binary(number: int) -> Record:
    """Any bytes anywhere: null, empty and large values, headers twice, null and empty."""
    return Record(_key(number, b"\x00\xff\n"), _binary_value(number), _binary_headers(number))


def binary_without_null_headers(number: int) -> Record:
    """kafka-python refuses to send a header that is null, too."""
    record = binary_never_all_null(number)
    return record._replace(headers=tuple((name, value or b"") for name, value in record.headers))


def binary_never_all_null(number: int) -> Record:
    """aiokafka refuses to send a record without key and value."""
    record = binary(number)
    return record._replace(value=b"") if record[:2] == (None, None) else record


def _key(number: int, salt: bytes) -> bytes | None:
    return (None, b"", b"k%d" % number, salt + b"%d" % number, b"same")[number % 5]


def _binary_value(number: int) -> bytes | None:
    if number % 7 == 3:
        return None
    if number % 11 == 4:
        return b""
    size = _size(number)
    rng = random.Random(number)
    if number % 2:
        return rng.randbytes(size)
    return (b"%d the same words again, " % number * (1 + size // 20))[:size]


def _size(number: int) -> int:
    if number % HUGE_EVERY == HUGE_EVERY // 2:
        return HUGE_BYTES
    if number % LARGE_EVERY == LARGE_EVERY // 2:
        return LARGE_BYTES
    return 1 + number * 7919 % 400


def _binary_headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    if number % 3 == 0:
        return ()
    if number % 3 == 1:
        return (("n", b"%d" % number),)
    return (("twice", b"a"), ("twice", b""), ("null", None), ("ключ", b"\x00\xff\r\n"))


def text(number: int) -> Record:
    """Records that line-based tools can write: no tab or newline; headers change once a chunk."""
    chunk = number // CHUNK
    nulls = chunk % 2 == 0
    key: bytes | None = (None, f"k{number}".encode(), b"same", "ключ".encode())[number % 4]
    value: bytes | None = b"" if number % 7 == 3 and key else _text_value(number)  # kcat skips lines without any byte
    if nulls and not value:
        value = None
    headers = ((), (("chunk", b"%d" % chunk),), (("a", b"x"), ("b", b"y z"), ("a", b"x2")))[chunk % 3]
    return Record(key, value, headers)


def _text_value(number: int) -> bytes:
    rng = random.Random(number)
    if _size(number) >= LARGE_BYTES:
        return (f"{number} large " * (1 + _size(number) // 8)).encode()[: _size(number)]
    return (f"{number}:" + "".join(rng.choices(TEXT, k=_size(number) // 4))).encode()
