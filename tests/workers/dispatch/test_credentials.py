"""A worker's lookups of credentials: from the current metadata, and each derived once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import pytest

from odradek.cluster.metadata.security_metadata import NO_SECURITY_METADATA, SecurityMetadata
from odradek.cluster.tree import znodes
from odradek.security.principal import Principal
from odradek.security.sasl.delegation_tokens import TOKENS_PATH, Token, TokenSettings, encode
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism, derive, format_credential
from odradek.workers.dispatch.credentials import LiveCredentials

SHA_256, SHA_512 = ScramMechanism
ALICE = Principal("User", "alice")
KEY = TokenSettings(Password("key"))


def metadata(
    version: int, users: Mapping[str, str] = MappingProxyType({}), tokens: tuple[Token, ...] = (), key: str = ""
) -> SecurityMetadata:  # fmt: skip
    nodes = {
        f"{znodes.USER_CONFIGS}/{name}": znodes.encode_config({"SCRAM-SHA-256": text}).decode()
        for name, text in users.items()
    }
    nodes |= {f"{TOKENS_PATH}/{token.token_id}": encode(token).decode() for token in tokens}
    nodes |= {znodes.DECOY_KEY: key} if key else {}
    return SecurityMetadata.parse(version, SecurityMetadata(version, nodes).encode())


def test_added_changed_and_removed_users_are_found() -> None:
    catalog = SimpleNamespace(security=NO_SECURITY_METADATA)
    live = LiveCredentials(catalog, TokenSettings(None))
    assert live.scram(SHA_256, "a b") is None
    for number, password in enumerate(("one", "two")):
        made = derive(SHA_256, Password(password))
        catalog.security = metadata(number + 1, {"a%20b": format_credential(made)})
        assert live.scram(SHA_256, "a b") == made and live.scram(SHA_512, "a b") is None
        assert live.scram(SHA_256, "a b") is live.scram(SHA_256, "a b")
    catalog.security = metadata(3)
    assert live.scram(SHA_256, "a b") is None


def test_unknown_user_names_are_not_cached() -> None:
    live = LiveCredentials(SimpleNamespace(security=metadata(1)), TokenSettings(None))
    for number in range(100):
        assert live.scram(SHA_256, f"user {number}") is None
    assert not live._users


def test_malformed_node_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    nodes = {f"{znodes.USER_CONFIGS}/a": "topsecret", f"{TOKENS_PATH}/t": "{}"}
    live = LiveCredentials(SimpleNamespace(security=SecurityMetadata(1, nodes)), KEY)
    assert live.scram(SHA_256, "a") is None and live.credential(SHA_256, "t", 0) is None
    assert "ignoring" in caplog.text and "topsecret" not in caplog.text


def test_added_renewed_and_removed_tokens_are_found() -> None:
    token = Token("id", ALICE, ALICE, (), 0, 9000, 1000)
    catalog = SimpleNamespace(security=metadata(1, tokens=(token,)))
    live = LiveCredentials(catalog, KEY)
    first = live.credential(SHA_256, "id", 500)
    assert first and first.owner == "alice" and live.credential(SHA_256, "id", 1500) is None
    catalog.security = metadata(2, tokens=(Token("id", ALICE, ALICE, (), 0, 9000, 2000),))
    again = live.credential(SHA_256, "id", 1500)
    assert again and again.credential is first.credential  # the credential is not derived again
    catalog.security = metadata(3)
    assert live.credential(SHA_256, "id", 500) is None
    assert LiveCredentials(SimpleNamespace(security=metadata(1, tokens=(token,))), TokenSettings(None)).credential(
        SHA_256, "id", 500
    ) is None  # fmt: skip


def test_decoy_key_is_the_clusters_if_it_has_one() -> None:
    catalog = SimpleNamespace(security=NO_SECURITY_METADATA)
    live = LiveCredentials(catalog, TokenSettings(None))
    own = live.decoy_key()
    assert len(own) == 32 and live.decoy_key() == own
    catalog.security = metadata(1, key="AAAA")
    assert live.decoy_key() == b"\0\0\0" and live.credentials.decoy_key() == b"\0\0\0"
    catalog.security = metadata(2, key="?")
    assert live.decoy_key() == own
