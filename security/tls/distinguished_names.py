"""The subject of a certificate as Java's X500Principal writes it: RFC 2253, the last part first.

Kafka's principals and `ssl.principal.mapping.rules` are about this text, so it must be Java's to the character: which
attributes have names, which values are in hex, which characters are escaped. Reads DER itself, because a library would
decode values that Java keeps as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE, _VERSION, _SERIAL_FIELDS = 0x30, 0xA0, 4  # serial number, signature, issuer and validity before the subject
# PrintableString, UTF8String, T61String, IA5String, GeneralString, BMPString, UniversalString
_STRINGS = {0x13, 0x0C, 0x14, 0x16, 0x1B, 0x1E, 0x1C}
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"
_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}


class Element(NamedTuple):
    """One element of DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def subject(certificate: bytes) -> str:
    """The name of the owner of a certificate in DER, such as `CN=alice,OU=Sales,O=Example`. Raises ValueError."""
    return text(subject_der(certificate))


def subject_der(certificate: bytes) -> bytes:
    """The subject itself in DER. Raises ValueError."""
    try:
        signed = next(elements(next(elements(certificate)).content))
        fields = list(elements(signed.content))
        return fields[_SERIAL_FIELDS + (fields[0].tag == _VERSION)].encoded
    except (IndexError, StopIteration):
        raise ValueError("this is no certificate in DER") from None


def text(name: bytes) -> str:
    """A name in DER as Java's text. Raises ValueError."""
    try:
        parts = list(elements(next(elements(name)).content))
        return ",".join("+".join(map(_attribute, elements(part.content))) for part in reversed(parts))
    except (IndexError, StopIteration):
        raise ValueError("this is no name in DER") from None


def canonical(name: str) -> str:
    """The text to compare names by: neither case nor the number of blanks counts."""
    return " ".join(name.split()).casefold()


def elements(data: bytes) -> Iterator[Element]:
    """The elements of DER that `data` is made of. Raises IndexError when the last is not whole."""
    at = 0
    while at < len(data):
        start, length = at + 2, data[at + 1]
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[at + 2 : start], "big")
        end = start + length
        if end > len(data):
            raise IndexError
        yield Element(data[at], data[start:end], data[at:end])
        at = end


def _attribute(pair: Element) -> str:
    kind, value = elements(pair.content)
    oid = _oid(kind.content)
    name = _NAMES.get(oid)
    if name is None or value.tag not in _STRINGS:
        return f"{name or oid}=#{value.encoded.hex()}"
    return f"{name}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(value: str) -> str:
    body = "".join(map(_escaped_character, value))
    start, end = len(body) - len(body.lstrip(_BLANK)), len(body.rstrip(_BLANK))
    return "".join(f"\\{char}" if not start <= at < end else char for at, char in enumerate(body))


def _escaped_character(char: str) -> str:
    if char == "\0":
        return "\\00"
    return f"\\{char}" if char in _ESCAPED else char
