"""The JSON of a backup: round trips, and refusals of everything else in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.commands.backup.saved_cluster import (
    Acl,
    Credential,
    NotABackup,
    Position,
    SavedCluster,
    Topic,
    from_json,
    to_json,
)
from odradek.security.sasl.scram_keys import ScramCredential, format_credential

from .backups import BACKUPS, TEXT

WHOLE = SavedCluster(
    1_700_000_000_000,
    "id",
    {"clicks": Topic(3, 1, "ab", {"retention.ms": "5", "secret": None})},
    {"": {"log.retention.ms": "7"}, "1": {}},
    {(("client-id", None), ("user", "ö")): {"producer_byte_rate": 5.5}},
    {"alice": {"SCRAM-SHA-256": Credential(4096)}},
    {"g": {("clicks", 0): Position(7, "m", 5), ("clicks", 1): Position(0, at_end=True)}},
    frozenset([Acl("TOPIC", "clicks", "LITERAL", "User:alice", "*", "READ", "ALLOW")]),
    ("quotas: no",),
)
NODE = format_credential(ScramCredential(b"s", b"k", b"v", 4096))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SECTIONS = ("topics", "brokers", "quotas", "users", "groups", "acls")


@given(BACKUPS)
def test_json_round_trip(saved: SavedCluster) -> None:
    assert from_json(to_json(saved)) == saved


@given(st.integers(0, len(to_json(WHOLE)) - 3))
def test_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(NotABackup, match="damaged"):
        from_json(to_json(WHOLE)[:size])


@given(st.sampled_from(SECTIONS), JSON)
def test_section_of_any_json_is_read_or_refused_in_one_line(name: str, value: Any) -> None:
    document = json.loads(to_json(WHOLE)) | {name: value}
    try:
        found = from_json(json.dumps(document))
    except NotABackup as error:
        assert str(error).isprintable() or "damaged" in str(error)
    else:
        assert from_json(to_json(found)) == found


@given(JSON)
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(NotABackup):
        from_json(json.dumps(value))


def changed(*path: Any, value: Any) -> str:
    """The JSON of WHOLE with another value at a path."""
    document = json.loads(to_json(WHOLE))
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("version",), 2, "version 2, and this release reads version 1: use a newer release"),
        (("version",), True, "version of the file must be a whole number"),
        (("created_ms",), -1, "created_ms"),
        (("topics", "clicks", "partitions"), 0, "partitions of topics, 'clicks' must be a whole number from 1"),
        (("topics", "clicks", "configs", "a"), 5, "'a' of topics, 'clicks' must be a string"),
        (("topics", "a\x1b[2J"), [], r"topics, 'a\x1b[2J' must be an object"),
        (("topics", "\ud800"), {}, "half a surrogate pair"),
        (("brokers", "01"), {}, "must be the id of a broker"),
        (("topics", "clicks", "replication_factor"), 40_000, "replication_factor of topics, 'clicks' must be"),
        (("brokers", "٣"), {}, "must be the id of a broker"),
        (("quotas", 0, "quotas", "producer_byte_rate"), "5", "must be a number"),
        (("quotas", 0, "quotas", "producer_byte_rate"), 10**400, "must be a number"),
        (("quotas", 0, "quotas", "producer_byte_rate"), float("nan"), "NaN is not a number"),
        (("users", "alice", "PLAIN"), {}, "unknown mechanism"),
        (("users", "alice", "SCRAM-SHA-256", "node"), "salt=x", "a SCRAM credential must have"),
        (("groups", "g", "clicks", "-1"), {}, "'-1' is not the number of a partition"),
        (("groups", "g", "clicks", "0", "offset"), -5, "offset of groups, 'g', 'clicks', 0 must be"),
        (("groups", "g", "clicks", "0", "time"), "start", "time of groups"),
        (("acls", 0, "operation"), "ANY", "unknown operation 'ANY'"),
        (("acls", 0, "resource_type"), "TOPICS", "unknown resource_type"),
        (("missing",), None, "missing must be a list"),
    ],
)
def test_invalid_value_is_named(path: tuple[Any, ...], value: Any, text: str) -> None:
    with pytest.raises(NotABackup) as caught:
        from_json(changed(*path, value=value))
    assert text in str(caught.value)


def test_absent_section_is_refused() -> None:
    document = json.loads(to_json(WHOLE))
    del document["acls"]
    with pytest.raises(NotABackup, match="it has no acls"):
        from_json(json.dumps(document))


def test_deeply_nested_file_is_refused() -> None:
    with pytest.raises(NotABackup, match="damaged"):
        from_json("[" * 100_000)


def test_representation_hides_credentials() -> None:
    assert NODE not in repr(Credential(4096, NODE)) and "4096" in repr(Credential(4096, NODE))
