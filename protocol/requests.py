"""Requests decoded strictly by the library's schemas: all except Produce and Fetch, which have codecs of their own.

The library's own decoder trusts its input: a length past the end of the frame yields a shorter string, a null in a
non-nullable field yields None, a varint may be megabytes long, and each element with tags copies the rest of the frame.
Any client can send requests, so this module decodes them: it checks every length against the rest of the frame, and
that of a string against Kafka's maximum, which fits the 16 bits of a length in records and responses. The objects are
the library's, and as there one flat function is generated for each version, for speed.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

from odradek.protocol.wire import I16, I32, LONGEST_STRING, MOST_ELEMENTS, WireError, uvarint

Decoder = Callable[[memoryview, int, int, int], tuple[Any, int, int]]
"""(buffer, position, elements and tagged fields before it, their maximum) to (decoded value, position, number)."""
Steps = Callable[[memoryview, int, int, int], Generator[None, None, tuple[Any, int, int]]]
"""The same in steps."""
STEP = 256  # elements
_REPLACED = LONGEST_STRING // 3
"""The most bytes of a string in which bad UTF-8 is replaced, as in Kafka: U+FFFD takes three bytes for each byte."""

_NO_ID = bytes(16)


def decode(request_class: Any, version: int, body: memoryview) -> Any:
    """The request in `body`; WireError, struct.error, IndexError or UnicodeDecodeError when malformed.

    Ignores bytes after it, as Kafka does.
    """
    return decode_all(request_class, version, body, MOST_ELEMENTS)


def decode_all(message_class: Any, version: int, body: memoryview, most: int) -> Any:
    """`decode` for a message with at most `most` elements and tagged fields."""
    return _decoder(message_class, version)(body, 0, 0, most)[0]


def decoding(
    message_class: Any, version: int, body: memoryview, most: int = MOST_ELEMENTS
) -> Generator[None, None, Any]:  # fmt: skip
    """`decode_all` in steps of STEP elements, without counting those within a tagged field."""
    made, _, _ = yield from _steps(message_class, version)(body, 0, 0, most)
    return made


@cache
def _decoder(request_class: Any, version: int) -> Decoder:
    decoder: Decoder = _compiled(request_class, version, False)
    return decoder


@cache
def _steps(request_class: Any, version: int) -> Steps:
    steps: Steps = _compiled(request_class, version, True)
    return steps


def _compiled(request_class: Any, version: int, in_steps: bool) -> Any:
    source = _Source(version, request_class.flexible_version_q(version), in_steps)
    return source.function(lambda: source.struct("made", request_class._struct, request_class, "    "))


class _Source:
    """The source of one decoder: `function` frames it, the others emit lines that read one value into `target`."""

    def __init__(self, version: int, flexible: bool, in_steps: bool = False) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._lines: list[str] = []
        self._names = 0
        self._globals: dict[str, Any] = {
            "i16": I16.unpack_from, "i32": I32.unpack_from, "uvarint": uvarint, "uuid_at": _uuid, "tags": _tags,
            "new": object.__new__, "null": _null, "past": _past, "too_many": _too_many,
            "text_size": _text_size,
        }  # fmt: skip

    def function(self, body: Callable[[], None]) -> Any:
        """The compiled function that decodes `made`."""
        self._lines = ["def decode(buf, at, number, most):", "    end = len(buf)"]
        if self._in_steps:
            self._emit("    ", f"left = {STEP}", "yield")
        body()
        self._lines.append("    return made, at, number")
        exec("\n".join(self._lines), self._globals)
        return self._globals["decode"]

    def _emit(self, indent: str, *lines: str) -> None:
        self._lines.extend(indent + line for line in lines)

    def _name(self, value: Any = None) -> str:
        """A new name, bound to `value` if given."""
        self._names += 1
        name = f"v{self._names}"
        if value is not None:
            self._globals[name] = value
        return name

    def struct(self, target: str, schema: Any, data_class: Any, indent: str) -> None:
        """Emit the decoding of an object of `data_class`."""
        self._emit(indent, f"{target} = new({self._name(data_class)})", f"{target}._version = {self._version}")
        self._emit(indent, f"{target}.tags = {target}.unknown_tags = None")
        run: list[Any] = []
        for field in schema.untagged_fields(self._version):
            if field.is_batchable():
                run.append(field)
                continue
            self._fixed(target, run, indent)
            run = []
            self.field(f"{target}.{field.name}", field, indent)
        self._fixed(target, run, indent)
        if self._flexible:
            known = self._name(self._known_tags(schema))
            read = f"    at, number = tags({target}, buf, at, {known}, number, most)"
            self._emit(indent, "if buf[at]:", read, "else:", "    at += 1")

    def _fixed(self, target: str, fields: list[Any], indent: str) -> None:
        """Emit the decoding of adjacent fields of fixed size, with one unpack."""
        if fields:
            packed = struct.Struct(">" + "".join(field._type.fmt for field in fields))
            targets = "".join(f"{target}.{field.name}, " for field in fields)
            self._emit(indent, f"{targets}= {self._name(packed.unpack_from)}(buf, at)", f"at += {packed.size}")

    def field(self, target: str, field: Any, indent: str, *, element: bool = False) -> None:
        """Emit the decoding of one field of variable size, or of an array's element, which is never null."""
        nullable = not element and field.nullable_for_version_q(self._version)
        if field.is_array():
            self._array(target, field, nullable, indent)
        elif field.is_struct():
            self._nested(target, field, nullable, indent)
        elif field.type_str.removeprefix("[]") == "uuid":
            self._emit(indent, f"{target} = uuid_at(buf, at)", "at += 16")
        elif field.is_batchable():
            number = struct.Struct(">" + field._type.fmt)
            self._emit(indent, f"{target}, = {self._name(number.unpack_from)}(buf, at)", f"at += {number.size}")
        else:
            self._sized(target, field, nullable, indent)

    def _nested(self, target: str, field: Any, nullable: bool, indent: str) -> None:
        """Emit the decoding of a struct; a nullable one has a presence byte before it (KIP-893)."""
        made = self._name()
        if nullable:
            self._emit(indent, f"{made} = None", "at += 1", "if buf[at - 1] < 128:")
        self.struct(made, field, field.data_class, indent + "    " * nullable)
        self._emit(indent, f"{target} = {made}")

    def _length(self, target: str, name: str, short: bool, nullable: bool, indent: str) -> None:
        """Emit the decoding of the length n of the next value; the caller continues in the branch for valid n."""
        if self._flexible:
            size = f"text_size('{name}', buf, at - 1)" if short else "uvarint(buf, at - 1)"
            self._emit(indent, "n = buf[at]", "at += 1", f"if n > 127: n, at = {size}", "n -= 1")
        else:
            self._emit(indent, f"n, = {'i16' if short else 'i32'}(buf, at)", f"at += {2 if short else 4}")
        self._emit(indent, "if n < 0:", f"    {target} = " + ("None" if nullable else f"null('{name}')"))
        self._emit(indent, "elif n > end - at:", f"    past('{name}', n, end - at)", "else:")

    def _sized(self, target: str, field: Any, nullable: bool, indent: str) -> None:
        """Emit the decoding of a string or bytes."""
        text = field.type_str.removeprefix("[]") == "string"
        self._length(target, field.name, text, nullable, indent)
        how = f"'replace' if n <= {_REPLACED} else 'strict'"
        read = f"str(buf[at : at + n], 'utf-8', {how})" if text else "bytes(buf[at : at + n])"
        self._emit(indent, f"    {target} = {read}", "    at += n")

    def _array(self, target: str, field: Any, nullable: bool, indent: str) -> None:
        self._length(target, field.name, False, nullable, indent)
        inner, found, one = indent + "        ", self._name(), self._name()
        self._emit(
            indent,
            "    number += n",
            "    if number > most: too_many(number, most)",
            f"    {target} = {found} = []",
        )
        self._emit(indent, "    for _ in range(n):")
        if self._in_steps:
            self._emit(inner, "left -= 1", "if not left:", f"    left = {STEP}", "    yield")
        if field.is_struct_array():
            self.struct(one, field.array_of, field.data_class, inner)
        else:
            self.field(one, field.array_of, inner, element=True)
        self._emit(inner, f"{found}.append({one})")

    def _known_tags(self, schema: Any) -> dict[int, tuple[str, Decoder]]:
        tagged = [field for field in schema._fields if field.tagged_field_q(self._version)]
        return {field.tag: (field.name, _tag_decoder(field, self._version)) for field in tagged}


def _tag_decoder(field: Any, version: int) -> Decoder:
    source = _Source(version, True)
    decoder: Decoder = source.function(lambda: source.field("made", field, "    "))
    return decoder


def _tags(
    made: Any, buf: memoryview, at: int, known: dict[int, tuple[str, Decoder]], number: int, most: int
) -> tuple[int, int]:
    """Read a section of tagged fields: known ones into `made`, skipping the others."""
    count, at = uvarint(buf, at)
    number += count
    if number > most:
        _too_many(number, most)
    for _ in range(count):
        tag, at = uvarint(buf, at)
        size, at = uvarint(buf, at)
        if size > len(buf) - at:
            _past("a tagged field", size, len(buf) - at)
        if tag in known:
            name, decoder = known[tag]
            value, _, number = decoder(buf[at : at + size], 0, number, most)
            setattr(made, name, value)
        at += size
    return at, number


def _uuid(buf: memoryview, at: int) -> uuid.UUID | None:
    data = bytes(buf[at : at + 16])
    if len(data) < 16:
        _past("an id", 16, len(data))
    return None if data == _NO_ID else uuid.UUID(bytes=data)


def _text_size(name: str, buf: memoryview, at: int) -> tuple[int, int]:
    """A compact string's length plus one."""
    size, at = uvarint(buf, at)
    if size > LONGEST_STRING + 1:
        raise WireError(f"{name} of length {size - 1}: a string has {LONGEST_STRING} bytes at most")
    return size, at


def _too_many(number: int, most: int) -> None:
    raise WireError(f"{number} elements and tagged fields, where there may be {most}")


def _null(name: str) -> None:
    raise WireError(f"{name} is null")


def _past(name: str, size: int, left: int) -> None:
    raise WireError(f"{name} of length {size} in a frame with {left} bytes left")
