"""Java's .properties syntax."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.properties import PropertiesError, load, parse, text_of

TABLE = [
    ("a=b", {"a": "b"}),
    ("a = b", {"a": "b"}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a\tb c ", {"a": "b c "}),
    ("  a=b", {"a": "b"}),
    ("a==b", {"a": "=b"}),
    ("a : = b", {"a": "= b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    ("# c\n! d\n  # e\na=b", {"a": "b"}),
    ("a=b#c", {"a": "b#c"}),
    ("a=b,\\\n    c,\\\n    d", {"a": "b,c,d"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
    ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
    ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
    ("a=\\u00e9\\t\\n\\x", {"a": "é\t\nx"}),
    ("log.dirs=C:\\\\data", {"log.dirs": "C:\\data"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b\\", {"a": "b"}),
    ("\n\n \f\n", {}),
]


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_lines_are_parsed_as_by_java(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "\\u=1"])
def test_bad_unicode_escape_is_an_error(text: str) -> None:
    with pytest.raises(PropertiesError, match="four hexadecimal"):
        parse(text)


def test_utf_8_and_latin_1_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("a=é".encode())
    assert load(path) == {"a": "é"}
    path.write_bytes("a=é".encode("latin-1"))
    assert load(path) == {"a": "é"}


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\u1")
    with pytest.raises(PropertiesError, match=r"server\.properties"):
        load(path)


def _escape(text: str, key: bool) -> str:
    """As java.util.Properties.store writes."""
    out = []
    for i, char in enumerate(text):
        if char in "\\=:#!" or (char == " " and (key or i == 0)):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            out.append(f"\\u{ord(char):04X}")
    return "".join(out)


_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_TEXT, _TEXT, max_size=5))
def test_properties_stored_as_by_java_are_parsed(properties: dict[str, str]) -> None:
    lines = [f"{_escape(key, True)}={_escape(value, False)}" for key, value in properties.items()]
    assert parse("#Fri Jan 01 00:00:00 UTC 2021\n" + "\n".join(lines)) == properties


@given(st.dictionaries(st.from_regex(r"[a-z]+(\.[a-z]+)*", fullmatch=True), _TEXT, max_size=5))
def test_written_settings_are_parsed(settings: dict[str, str]) -> None:
    assert parse(text_of(settings)) == settings


@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse(text)
    except PropertiesError:
        pass
