"""Gives kafka-python the broker's own codecs in place of three packages that Odradek does not depend on.

kafka-python looks for `snappy`, `lz4.frame` and `zstandard` at import; codecs that it finds stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol.records import codecs

_NUMBERS = {"snappy": codecs.SNAPPY, "lz4": codecs.LZ4, "zstd": codecs.ZSTD}


def register() -> None:
    """Fill in the codecs that kafka-python did not find. May be called any number of times."""
    from kafka import codec
    from kafka.record import default_records, legacy_records

    for name, number in _NUMBERS.items():
        if getattr(codec, name) is not None:
            continue
        setattr(codec, name, codecs)  # `has_lz4()` and its like only check for None
        for module in (codec, default_records, legacy_records):
            if hasattr(module, f"{name}_encode"):
                setattr(module, f"{name}_encode", _encoder(number))
                setattr(module, f"{name}_decode", _decoder(number))


def _encoder(number: int) -> Callable[[Any], bytes]:
    return lambda data: codecs.compress(number, bytes(data))


def _decoder(number: int) -> Callable[[Any], bytes]:
    return lambda data: codecs.decompress(number, data)
