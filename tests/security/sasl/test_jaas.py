"""The JAAS syntax; tests/security/sasl/test_as_kafka.py compares it with Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.jaas import JaasError, login_module, parse, sections

from .jaas_texts import RIGHT, WRONG


@pytest.mark.parametrize(("text", "name", "options"), RIGHT)
def test_valid_entry_is_parsed(text: str, name: str, options: dict[str, str]) -> None:
    module = login_module(text)
    assert module.name == name and module.flag == "required"
    assert {key: value.value for key, value in module.options.items()} == options


@pytest.mark.parametrize("text", WRONG)
def test_invalid_entry_is_one_line(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        login_module(text)
    assert "\n" not in str(caught.value)


def test_two_login_modules_are_refused_where_one_is_needed() -> None:
    assert [module.name for module in parse("A required; B optional x=y;")] == ["A", "B"]
    with pytest.raises(JaasError, match="one login module, not 2"):
        login_module("A required; B optional x=y;")


def test_no_password_is_shown() -> None:
    module = login_module('A required password="hunter2";')
    assert "hunter2" not in repr(module)
    with pytest.raises(JaasError) as caught:
        login_module('A required password="hunter2" "secret";')
    assert "hunter2" not in str(caught.value)


@given(st.text(alphabet="aA1 \n=;\"'\\/*-.,_$é\x85\x00required", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for given_text in (text, f"A required {text};"):
        try:
            parse(given_text)
        except JaasError:
            pass


def test_sections_of_a_file_are_parsed() -> None:
    text = 'KafkaServer { a.B required x="1";\n c.D optional; };\n// a comment\nClient { e.F required; };'
    found = sections(text)
    assert {name: [module.name for module in modules] for name, modules in found.items()} == {
        "KafkaServer": ["a.B", "c.D"],
        "Client": ["e.F"],
    }
    assert sections("") == {}


@pytest.mark.parametrize(
    "text", ["Client", "Client {", "Client { a.B required; }", "{ a.B required; };", "Client { a.B }; };", "a; };"]
)
def test_malformed_sections_are_refused(text: str) -> None:
    with pytest.raises(JaasError):
        sections(text)
