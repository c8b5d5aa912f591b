"""Keys and values as text, JSON and hexadecimal: whole numbers and strings stay as they were sent, nothing is large."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.console import decoding
from odradek.broker.exporter.console.decoding import SHOWN


@pytest.mark.parametrize(
    ("data", "wanted", "form", "text"),
    [
        (b"hello", "auto", "text", "hello"),
        (b"", "auto", "text", ""),
        ("grüße\n".encode(), "auto", "text", "grüße\n"),
        (b"<script>", "auto", "text", "<script>"),
        (b"\x00\x01A", "auto", "hex", f"000000  {'00 01 41':<48} ..A"),
        (b"\xff", "text", "text", "�"),
        (b"A", "hex", "hex", f"000000  {'41':<48} A"),
        (b"1", "auto", "text", "1"),
        (b'{"a":1.10,"b":[]}', "auto", "json", '{\n  "a": 1.10,\n  "b": []\n}'),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b'{"a":', "json", "text", '{"a":'),
        (b"[" + b"9" * 100 + b"]", "auto", "json", f"[\n  {'9' * 100}\n]"),
        (b'["a,{b}: \\" c"]', "auto", "json", '[\n  "a,{b}: \\" c"\n]'),
    ],
)
def test_data_are_shown(data: bytes, wanted: str, form: str, text: str) -> None:
    shown = decoding.shown(data, wanted)
    assert shown == {"as": form, "text": text, "bytes": len(data), "cut": False}


def test_null_is_not_an_empty_text() -> None:
    assert decoding.shown(None) is None


@pytest.mark.parametrize(
    "data", [b"x" * (SHOWN + 1), b"\x00" * (SHOWN + 1), b"[" * SHOWN * 9, b'{"a":"%s"}' % (b"x" * SHOWN)]
)
def test_large_data_are_cut(data: bytes) -> None:
    shown = decoding.shown(data)
    assert shown is not None and shown["cut"] and shown["bytes"] == len(data)
    assert len(shown["text"]) <= SHOWN * 1.5


def test_a_character_that_is_cut_off_is_no_binary() -> None:
    assert decoding.is_text("grüß".encode()[:-1])
    assert not decoding.is_text(b"\xff abc")


@given(st.binary(max_size=300), st.sampled_from(decoding.FORMATS))
def test_any_bytes_can_be_shown(data: bytes, wanted: str) -> None:
    shown = decoding.shown(data, wanted)
    assert shown is not None and json.dumps(shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=4))
def test_json_in_lines_is_the_same_json(value: Any) -> None:
    text = decoding.as_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert text is not None and json.loads(text) == json.loads(
        json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    )
