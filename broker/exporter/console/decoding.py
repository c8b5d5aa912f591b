"""Keys and values of records as a reader can see them: text, JSON, Avro, hexadecimal. Pure.

What is shown is text for a page that inserts it as text. It is bounded: a record may have many megabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from odradek.broker.exporter.console import avro
from odradek.broker.exporter.console.avro import Schemas
from odradek.broker.exporter.console.errors import NotAvro
from odradek.protocol import schema_prefix

AUTO, TEXT, JSON, AVRO, HEX = "auto", "text", "json", "avro", "hex"
FORMATS = (AUTO, TEXT, JSON, AVRO, HEX)
SHOWN = 8192  # bytes of a key or a value, at most
INDENTED = 65536  # bytes of a JSON text that is laid out in lines, at most
_LINE = 16  # bytes of a line of hexadecimal
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def shown(data: bytes | None, wanted: str = AUTO, schemas: Schemas | None = None) -> dict[str, Any] | None:
    """`data` in a format: {as, text, bytes, cut}, and for Avro a `note`; None for null.

    `auto` is JSON where the data are an object or an array, text where they are UTF-8 without control characters, Avro
    where they are that of a schema, else hexadecimal. `json` of anything else is text, `avro` of anything else `auto`,
    and `text` of any bytes has U+FFFD for what is not UTF-8. A note says which schema it is, or why it is not Avro.
    """
    if data is None:
        return None
    if schemas is None or not (wanted == AVRO or (wanted == AUTO and schema_prefix.split(data[:SHOWN])[0] is not None)):
        return _plain(data, wanted)
    try:
        text, is_cut, schema = avro.read(data, schemas, SHOWN)
    except NotAvro as why:
        return {**_plain(data, AUTO), "note": str(why)}
    text = "".join(_indented(text))
    cut = is_cut or len(text) > SHOWN
    return {"as": AVRO, "text": text[:SHOWN], "bytes": len(data), "cut": cut, "note": schema}


def _plain(data: bytes, wanted: str) -> dict[str, Any]:
    form, text = _decoded(data, wanted)
    return {"as": form, "text": text[:SHOWN], "bytes": len(data), "cut": len(text) > SHOWN or _is_cut(data, form)}


def _is_cut(data: bytes, form: str) -> bool:
    return len(data) > (SHOWN // 4 if form == HEX else SHOWN)


def _decoded(data: bytes, wanted: str) -> tuple[str, str]:
    if wanted == HEX:
        return HEX, as_hex(data)
    if wanted in (AUTO, JSON) and (text := as_json(data)) is not None:
        return JSON, text
    if wanted == AUTO and not is_text(data[:SHOWN]):
        return HEX, as_hex(data)
    return TEXT, data[:SHOWN].decode("utf-8", "replace")


def is_text(data: bytes) -> bool:
    """Whether it is UTF-8, but for a last character that may be cut off, without control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return False
        text = data[: error.start].decode()
    return all(one.isprintable() or one in "\t\r\n" for one in text)


def as_json(data: bytes) -> str | None:
    """The JSON text in lines, each number and string as it was sent; None when it is no object or array."""
    if len(data) > INDENTED or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = data.decode()
        json.loads(text, parse_int=str, parse_float=str)  # numbers of any length
    except (ValueError, RecursionError):
        return None
    return "".join(_indented(text))


def _indented(text: str) -> Iterator[str]:
    depth, before = 0, ""
    for token in _TOKENS.findall(text):
        if token in "}]":
            depth -= 1
            yield "" if before in "{[" else _new_line(depth)
        elif before and before in "{[,":
            yield _new_line(depth)
        yield f"{token} " if token == ":" else token
        depth += token in "{["
        before = token


def _new_line(depth: int) -> str:
    return f"\n{'  ' * min(depth, 20)}"


def as_hex(data: bytes) -> str:
    """The first bytes as lines: position, hexadecimal digits, printable ASCII characters."""
    part = data[: SHOWN // 4]
    return "\n".join(_hex_line(at, part[at : at + _LINE]) for at in range(0, len(part), _LINE))


def _hex_line(at: int, row: bytes) -> str:
    printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
    return f"{at:06x}  {row.hex(' '):<{3 * _LINE}} {printable}"
