"""Backups for hypothesis: every value that a file of this version may have."""

from __future__ import annotations

from hypothesis import strategies as st

from odradek.broker.commands.backup.saved_cluster import Acl, Credential, Position, SavedCluster, Topic
from odradek.protocol.wire import INT16_MAX, INT32_MAX, INT64_MAX
from odradek.security.acls.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism, format_credential

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBER = st.integers(0, INT64_MAX)
INDEX = st.integers(0, INT32_MAX)
COUNT = st.integers(1, INT32_MAX)
FACTOR = st.integers(1, INT16_MAX)
CONFIGS = st.dictionaries(TEXT, st.none() | TEXT, max_size=3)

TOPICS = st.builds(Topic, COUNT, FACTOR, TEXT, CONFIGS)
NODES = st.builds(ScramCredential, *[st.binary(min_size=1, max_size=8)] * 3, st.integers(1, 20000)).map(
    lambda made: Credential(made.iterations, format_credential(made))
)
CREDENTIALS = st.builds(Credential, INDEX) | NODES
POSITIONS = st.builds(Position, NUMBER, TEXT, st.none() | NUMBER) | st.builds(
    Position, NUMBER, TEXT, at_end=st.just(True)
)
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | TEXT).map(
    lambda parts: tuple(sorted(parts.items()))
)


def names(kind: type) -> st.SearchStrategy[str]:
    """The names that an ACL may have."""
    return st.sampled_from([one.name for one in kind if one.concrete])  # type: ignore[attr-defined]  # iterates an enum


ACLS = st.builds(Acl, names(ResourceType), TEXT, names(PatternType), TEXT, TEXT, names(Operation), names(Permission))
BACKUPS = st.builds(
    SavedCluster,
    NUMBER,
    TEXT,
    st.none() | st.dictionaries(TEXT, TOPICS, max_size=3),
    st.none() | st.dictionaries(st.just("") | INDEX.map(str), CONFIGS, max_size=3),
    st.none() | st.dictionaries(ENTITIES, st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False))),
    st.none()
    | st.dictionaries(TEXT, st.dictionaries(st.sampled_from([one.value for one in ScramMechanism]), CREDENTIALS)),
    st.none()
    | st.dictionaries(TEXT, st.dictionaries(st.tuples(TEXT, INDEX), POSITIONS, min_size=1, max_size=3), max_size=3),
    st.none() | st.frozensets(ACLS, max_size=3),
    st.lists(TEXT, max_size=2).map(tuple),
)
