"""Encoding messages, and responses in steps: a large response must not block a worker or a coordinator.

The library makes one flat function for each version of a response. This module makes another from the same text, which
yields after every STEP elements and writes to a buffer of its own: the library's is shared, and stays as large as the
largest response ever was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

STEP = 256  # elements
_LOOP = re.compile(r"( *)for \w+ in .*:")
_FIRST_SIZE = 1 << 12  # of a buffer, which grows

Steps = Callable[[Any, Any], Generator[None, None, None]]


def encoding(response: Any, version: int) -> Generator[None, None, bytes]:
    """`response.encode(version=version)` in steps."""
    kind: Any = type(response)
    if not _has_lists(kind):
        return encoded(response, version)
    out = _buffer()
    yield from _steps(kind, version)(response, out)
    return bytes(memoryview(out.buf)[: out.pos])


def encoded(message: Any, version: int) -> bytes:
    """`message.encode(version=version)`."""
    flexible, out = message.flexible_version_q(version), _buffer()
    message._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)(message, out)
    return bytes(memoryview(out.buf)[: out.pos])


@cache
def _has_lists(kind: Any) -> bool:
    return any(field.is_array() for field in kind._struct._fields)


def _buffer() -> Any:
    from kafka.protocol.schemas.fields.codecs import EncodeBuffer

    return EncodeBuffer(_FIRST_SIZE)


@cache
def _steps(kind: Any, version: int) -> Steps:
    flexible = kind.flexible_version_q(version)
    text = kind._struct.encode_into__optimized_context(version, compact=flexible, tagged=flexible)
    lines = ["def _encode(item, out):", f"    left = {STEP}", "    yield"]
    for line in text.lines[1:]:
        lines.append(line)
        if loop := _LOOP.fullmatch(line):
            lines += [f"{loop[1]}    {more}" for more in ("left -= 1", f"if not left: left = {STEP}; yield")]
    exec("\n".join(lines), text.globs)
    steps: Steps = text.globs["_encode"]
    return steps
