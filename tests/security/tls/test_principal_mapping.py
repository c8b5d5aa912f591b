"""Mapping rules and names without Java: some of test_as_java.py, and refused rules."""

from __future__ import annotations

import pytest

from odradek.broker.commands.tls.certificates import Pair
from odradek.security.tls import distinguished_names
from odradek.security.tls.principal_mapping import MappingError, NoMatchingRule, PrincipalMapper


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=Duke,O=Org", "CN=Duke,O=Org"),
        (None, "CN=Duke", "CN=Duke"),
        ("RULE:^CN=([^,]+)(,.*)?$/$1/L,DEFAULT", "CN=Duke,O=Org", "duke"),
        ("RULE:^CN=([^,]+)(,.*)?$/$1/L,DEFAULT", "O=Org", "O=Org"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/U", "CN=a,OU=b,O=c", "A@B"),
        ("RULE:CN=(?<who>\\w+)/${who}/", "CN=a", "a"),
    ],
)
def test_first_matching_rule_applies(rules: str | None, name: str, principal: str) -> None:
    assert PrincipalMapper(rules).name(name) == principal


def test_name_without_a_matching_rule_is_an_error() -> None:
    with pytest.raises(NoMatchingRule, match=r"no rule of ssl.principal.mapping.rules is about O=x"):
        PrincipalMapper("RULE:CN=.*/x/").name("O=x")


@pytest.mark.parametrize(
    "rule", ["RULE:[a&&b]/x/", "RULE:\\p{L}/x/", "RULE:(/x/", "RULE:a/$1/", "RULE:a/$/", "DEFAULT/L"]
)
def test_invalid_rule_is_refused_at_the_start(rule: str) -> None:
    with pytest.raises(MappingError):
        PrincipalMapper(rule)


def test_subject_is_read_and_a_truncated_certificate_is_refused(server: Pair) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    der = server.certificate.public_bytes(Encoding.DER)
    assert distinguished_names.subject(der) == "CN=broker1"
    for size in range(60):
        with pytest.raises(ValueError):
            distinguished_names.subject(der[:size])
