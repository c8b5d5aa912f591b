"""The metadata that results from a KRaft metadata log."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.tree import kraft_records
from odradek.cluster.tree.kraft_metadata import TOPIC, Entry, Metadata

from .. import kraft

A, B = b"A" * 16, b"B" * 16


def entries(*batches: Iterable[bytes], certain: bool = True, first: int = 0) -> list[Entry]:
    """The records of batches as they are read, from offset `first` on."""
    numbered = enumerate(batches, first)
    decoded = ((number, kraft_records.decode(value)) for number, values in numbered for value in values)
    return [Entry(record, number, certain) for number, record in decoded if record is not None]


def metadata(*batches: Iterable[bytes], certain: bool = True) -> Metadata:
    found = Metadata()
    found.apply(entries(*batches, certain=certain))
    return found


def keep(name: str, value: str | None = "-1") -> bytes:
    return kraft.config(kraft.TOPIC_TYPE, name, "retention.ms", value)


def test_topics_have_their_partitions_and_configs() -> None:
    change = kraft.partition_change(A, 1, isr=[3], leader=3)
    found = metadata(
        [kraft.topic("a", A), keep("a"), kraft.partition(A, 0), kraft.partition(A, 1, [0, 3], [0, 3])], [change]
    )
    assert found.topics["a"].id == A
    parts = found.topics["a"].partitions
    assert (parts[0].leader_epoch, parts[1].leader_epoch, parts[1].isr, parts[1].replicas) == (4, 5, [3], [0, 3])
    assert found.configs[TOPIC, "a"] == {"retention.ms": "-1"}


def test_recreated_topic_has_no_state_of_the_former_one() -> None:
    again = [kraft.topic("a", B), kraft.partition(B, 0)]
    found = metadata([kraft.topic("a", A), keep("a"), kraft.partition(A, 7)], [kraft.remove_topic(A)], again)
    assert (found.topics["a"].id, list(found.topics["a"].partitions)) == (B, [0])
    assert found.configs.get((TOPIC, "a"), {}) == {}
    assert found.deleted == {A}


def test_unset_config_is_removed() -> None:
    assert metadata([kraft.topic("a", A), keep("a")], [keep("a", None)]).configs[TOPIC, "a"] == {}


def test_transaction_counts_once_it_has_ended() -> None:
    begun = [kraft.BEGIN, kraft.topic("a", A)]
    assert metadata(begun).topics == {}
    assert metadata(begun, [kraft.ABORT], [kraft.topic("b", B)]).topics.keys() == {"b"}
    assert metadata(begun, [keep("a")], [kraft.END]).configs == {(TOPIC, "a"): {"retention.ms": "-1"}}


def test_uncertain_records_are_doubtful() -> None:
    made = entries([kraft.topic("a", A), keep("a")])
    later = Metadata()
    later.apply(made)
    later.apply(entries([keep("a", "1000")], [kraft.topic("b", B), keep("b")], certain=False, first=1))
    assert later.doubts(TOPIC, "a", ["retention.ms", "cleanup.policy"]) == ["retention.ms"]
    assert later.doubts(TOPIC, "b", ["retention.ms"]) == [], "its directory proves that its creation is committed"
    later.apply(entries([kraft.remove_topic(A)], certain=False))
    assert later.deleted == set() and "a" not in later.topics


def test_users_and_acls_of_the_log_are_counted() -> None:
    user = kraft.text("alice") + b"\x01"
    found = metadata([kraft.frame(11, user + b"salt"), kraft.frame(11, user + b"pepper")], [kraft.frame(18, A)])
    assert {kind: len(keys) for kind, keys in found.kept.items()} == {"user": 1, "ACL": 1}
    found.apply(entries([kraft.frame(22, user)], [kraft.frame(19, A)]))
    assert not any(found.kept.values())


def test_unknown_records_and_migration_are_noted() -> None:
    found = metadata([kraft.UNKNOWN, kraft.UNKNOWN], [kraft.frame(21, b"\x02\0")])
    assert found.unknown == {99: 2} and found.migrating
    assert not metadata([kraft.frame(21, b"\x02\0")], [kraft.frame(21, b"\x01\0")]).migrating


VALUES = st.sampled_from(
    [kraft.BEGIN, kraft.END, kraft.ABORT, kraft.remove_topic(A), kraft.remove_topic(B)]
    + [kraft.topic(name, topic_id) for name in "ab" for topic_id in (A, B)]
    + [kraft.partition(A, 0), kraft.partition_change(B, 0, isr=[1]), keep("a"), keep("b", None), kraft.UNKNOWN]
)


@given(st.lists(st.lists(VALUES, max_size=4), max_size=8), st.booleans())
def test_any_order_of_records_is_read(batches: list[list[bytes]], certain: bool) -> None:
    found = metadata(*batches, certain=certain)
    assert all(topic.name == name for name, topic in found.topics.items())
    if certain:
        assert not found.doubtful
