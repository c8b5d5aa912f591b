"""Compares principals of certificates with Kafka's SslPrincipalMapper and Java's X500Principal."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import pytest

from odradek.security.tls import distinguished_names
from odradek.security.tls.principal_mapping import MappingError, NoMatchingRule, PrincipalMapper

from ...harness import java

FACTS = str(Path(__file__).with_name("MapperFacts.java"))
RULES = [
    "DEFAULT",
    "",
    " , ,DEFAULT",
    "default",
    "DEFAULT/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
    "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
    "RULE:.*/x/",
    "RULE:^.*$/x/",
    "RULE:(.*)/[$1]/",
    "RULE:(.*),(.*)/$2$3$4/",
    "RULE:(.*),(.*)/$1$12$5$34/",
    "RULE:(CN)=(.*)/$0|$1|$2|$9|\\$1|\\x/",
    "RULE:CN=.*/$1/",
    "RULE:CN=.*/$/",
    "RULE:CN=(.*)/a$b/",
    "RULE:CN=(?<who>[^,]*),.*/${who}@x/U",
    "RULE:CN=(?<who>[^,]*).*/${other}/",
    "RULE:(?<a>C)N=(?<b>.)\\k<b>.*/$2/",
    "RULE:\\QCN=\\E(.*)\\z/$1/",
    "RULE:(?i)cn=([^,]*)(,.*)?/$1/L",
    "RULE:CN=(\\w+),?.*/$1/L",
    "RULE:CN=([a-z&&[^d]]+).*/$1/",
    "RULE:CN=(\\p{Upper}).*/$1/",
    "RULE:CN=(?:(a)|(D))uke.*/$1$2/",
    "RULE:CN=([^,]*+),.*/<$1>/",
    "RULE:CN=([/",
    "RULE:CN=[/x/",
    "RULE:CN=(.*/x/",
    "RULE:.*CN=(.{1,3}).*/a\\/b$1/,DEFAULT",
    "RULE:[^a]*/$0/L,RULE:.*/other/",
]
# The start refuses syntax that Python's regular expressions do not have.
REFUSED = {rule for rule in RULES if "&&" in rule or "\\p{" in rule}
NAMES = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "cN=duke,OU=JavaSoft,O=Sun Microsystems",
    "OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz",
    "CN=alice",
    "CN=Ärger,O=Straße",
    "CN=aa,O=x\ny",
    "CN=aa,O=x\ry",
    "cn=İ",
    "",
]
STRINGS = {"utf8": 0x0C, "numeric": 0x12, "printable": 0x13, "t61": 0x14, "ia5": 0x16, "general": 0x1B, "bmp": 0x1E}
VALUES = [
    b"alice", b"", b" ", b"  two  blanks  ", b"a,b+c=d<e>f#g;h\"i\\j", b"#1", "Ärger ∑ 𝄞".encode(), b"a\0b", b"a\rb",
    b"\rab\r", b"a\nb", b"x" * 200, b"a/b:c'(d)?", b"\t\x7f\x01",
]  # fmt: skip
OIDS = {
    "2.5.4.3": "550403", "2.5.4.4": "550404", "2.5.4.5": "550405", "2.5.4.6": "550406", "2.5.4.7": "550407",
    "2.5.4.8": "550408", "2.5.4.9": "550409", "2.5.4.10": "55040a", "2.5.4.11": "55040b", "2.5.4.12": "55040c",
    "2.5.4.42": "55042a", "email": "2a864886f70d010901", "dc": "0992268993f22c640119", "uid": "0992268993f22c640101",
    "2.999.1": "883701",
}  # fmt: skip


def asked(lines: list[str]) -> list[str | None]:
    """The answers of Java; None for an exception."""
    done = java.run("3.9.1", FACTS, input=("\n".join(lines) + "\n").encode())
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(lines)
    return [base64.b64decode(answer[1:]).decode() if answer[0] == "=" else None for answer in answers]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def mapped(rules: str, name: str) -> str | None:
    try:
        return PrincipalMapper(rules).name(name)
    except (MappingError, NoMatchingRule):
        return None


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    size = length.to_bytes((length.bit_length() + 7) // 8 or 1, "big")
    if length > 127:
        size = bytes([0x80 | len(size)]) + size
    return bytes([tag]) + size + content


def attribute(oid: str, tag: int, value: bytes) -> bytes:
    return der(0x30, der(0x06, bytes.fromhex(OIDS[oid])) + der(tag, value))


def names() -> list[bytes]:
    """Names in DER: each attribute, each type of string, each odd value; several parts, and several in one part."""
    single = [[[attribute(oid, 0x0C, b"alice")]] for oid in OIDS]
    single += [[[attribute("2.5.4.3", tag, value)]] for tag, value in itertools.product(STRINGS.values(), VALUES)]
    alice, sales, example = (
        attribute("uid", 0x0C, b"a1"),
        attribute("2.5.4.11", 0x13, b"S"),
        attribute("dc", 0x16, b"x"),
    )
    several = [[], [[example], [sales], [alice]], [[example], [alice, sales]], [[sales], [sales]]]
    return [der(0x30, b"".join(der(0x31, b"".join(part)) for part in parts)) for parts in [*single, *several]]


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_mapped_principals_equal_kafkas() -> None:
    pairs = list(itertools.product(RULES, NAMES))
    theirs = asked([f"{encoded(rules)} {encoded(name)}" for rules, name in pairs])
    different = [
        (rules, name, theirs_one, mapped(rules, name))
        for (rules, name), theirs_one in zip(pairs, theirs, strict=True)
        if mapped(rules, name) != theirs_one and not (rules in REFUSED and mapped(rules, name) is None)
    ]
    assert different == []


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_distinguished_names_equal_javas() -> None:
    known = names()
    theirs = asked([f"- {base64.b64encode(name).decode()}" for name in known])
    ours = [distinguished_names.text(name) for name in known]
    different = [trio for trio in zip(known, theirs, ours, strict=True) if trio[1] is not None and trio[1] != trio[2]]
    assert different == []
    assert sum(name is None for name in theirs) < len(known) / 4
