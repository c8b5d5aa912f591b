"""What a restore does with each thing of a backup, without a broker."""

from __future__ import annotations

import pytest

from odradek.broker.commands.backup import restore_plans
from odradek.broker.commands.backup.plan_offsets import Log, item, needed_time
from odradek.broker.commands.backup.restore_options import Recreated
from odradek.broker.commands.backup.restore_plans import (
    Item,
    MorePartitions,
    NewAcl,
    NewConfig,
    NewCredential,
    NewOffset,
    NewQuota,
    NewTopic,
    Outcome,
)
from odradek.broker.commands.backup.saved_cluster import Acl, Configs, Credential, Entity, Position, Topic

RESTORED, EQUAL, DIFFERENT, FAILED = Outcome.RESTORED, Outcome.EQUAL, Outcome.DIFFERENT, Outcome.FAILED
CLICKS = Topic(3, 2, "aa", {"retention.ms": "5"})
NODE = "salt=c2FsdA=="
OFFSET = Position(7, "m", 1000)


def outcomes(items: object) -> list[tuple[str, Outcome]]:
    return [(one.name, one.outcome) for one in items]  # type: ignore[attr-defined]


def topics(now: Topic | None, *, overwrite: bool = False, factor: int | None = None) -> list[Item]:
    there = {} if now is None else {"clicks": now}
    return list(restore_plans.topics({"clicks": CLICKS}, there, factor, overwrite=overwrite))


def test_missing_topic_is_created_whole() -> None:
    assert [one.change for one in topics(None)] == [NewTopic("clicks", CLICKS)]
    (one,) = topics(None, factor=1)
    assert isinstance(one.change, NewTopic) and one.change.topic.replication_factor == 1


def test_topic_with_another_id_is_equal() -> None:
    assert outcomes(topics(Topic(3, 2, "bb", {"retention.ms": "5"}))) == [("topic clicks", EQUAL)]
    assert outcomes(topics(Topic(3, 1, "bb", {"retention.ms": "5"}), factor=1)) == [("topic clicks", EQUAL)]


def test_different_topic_is_left_alone_without_overwrite() -> None:
    found = topics(Topic(1, 1, "bb", {"retention.ms": "6", "segment.ms": "1"}))
    assert outcomes(found) == [
        ("topic clicks, partitions", DIFFERENT),
        ("topic clicks, replication factor", DIFFERENT),
        ("topic clicks, retention.ms", DIFFERENT),
        ("topic clicks, segment.ms", DIFFERENT),
    ]
    assert not any(one.change for one in found) and found[2].text == "6 here, 5 in the backup"


def test_overwrite_deletes_nothing_and_lowers_no_partitions() -> None:
    found = topics(Topic(1, 1, "bb", {"segment.ms": "1"}), overwrite=True)
    assert [one.change for one in found if one.change] == [
        MorePartitions("clicks", 3),
        NewConfig("topics", "clicks", "retention.ms", "5"),
    ]
    assert outcomes(topics(Topic(4, 2, "", {"retention.ms": "5"}), overwrite=True)) == [
        ("topic clicks, partitions", DIFFERENT)
    ]


@pytest.mark.parametrize(
    ("now", "overwrite", "outcome", "changes"),
    [
        ({"1": {}}, False, RESTORED, True),
        ({"1": {"k": "v"}}, False, EQUAL, False),
        ({"1": {"k": "w"}}, False, DIFFERENT, False),
        ({"1": {"k": "w"}}, True, RESTORED, True),
        ({}, True, FAILED, False),
    ],
)
def test_broker_config(now: dict[str, Configs], overwrite: bool, outcome: Outcome, changes: bool) -> None:
    (one,) = restore_plans.brokers({"1": {"k": "v"}}, now, overwrite=overwrite)
    assert one.outcome is outcome
    assert one.change == (NewConfig("brokers", "1", "k", "v") if changes else None)


def test_secret_of_a_broker_is_never_restored() -> None:
    known: list[tuple[Configs, Outcome]] = [({}, FAILED), ({"k": None}, EQUAL)]
    for now, outcome in known:
        (one,) = restore_plans.brokers({"1": {"k": None}}, {"1": now}, overwrite=True)
        assert one.outcome is outcome and one.change is None


def test_quotas_are_compared_one_by_one() -> None:
    entity: Entity = (("client-id", None), ("user", "u"))
    saved = {entity: {"consumer_byte_rate": 1.0, "producer_byte_rate": 2.0, "request_percentage": 3.0}}
    now = {entity: {"consumer_byte_rate": 1.0, "producer_byte_rate": 5.0}}
    found = list(restore_plans.quotas(saved, now, overwrite=False))
    assert [one.outcome for one in found] == [EQUAL, DIFFERENT, RESTORED]
    assert [one.change for one in found if one.change] == [NewQuota(entity, "request_percentage", 3.0)]
    found = list(restore_plans.quotas(saved, now, overwrite=True))
    assert found[1].change == NewQuota(entity, "producer_byte_rate", 2.0)


@pytest.mark.parametrize(
    ("saved", "now", "from_tree", "outcome", "changes"),
    [
        (Credential(4096), None, False, FAILED, False),
        (Credential(4096), None, True, FAILED, False),
        (Credential(4096, NODE), None, False, FAILED, False),
        (Credential(4096, NODE), None, True, RESTORED, True),
        (Credential(4096, NODE), Credential(4096, NODE), True, EQUAL, False),
        (Credential(4096, NODE), Credential(4096, "o"), True, RESTORED, True),
        (Credential(4096), Credential(4096, "o"), True, EQUAL, False),
        (Credential(4096), Credential(8192), False, DIFFERENT, False),
    ],
)
def test_credential(
    saved: Credential, now: Credential | None, from_tree: bool, outcome: Outcome, changes: bool
) -> None:
    there = {"u": {"SCRAM-SHA-256": now}} if now else {}
    (one,) = restore_plans.users({"u": {"SCRAM-SHA-256": saved}}, there, from_tree=from_tree, overwrite=True)
    assert one.outcome is outcome and one.change == (NewCredential("u", "SCRAM-SHA-256", saved) if changes else None)
    assert NODE not in one.text


def test_missing_acls_are_created() -> None:
    here, gone = (Acl("TOPIC", name, "LITERAL", "User:a", "*", "READ", "ALLOW") for name in ("a", "b\x1b"))
    found = list(restore_plans.acls(frozenset([here, gone]), frozenset([here])))
    assert [one.outcome for one in found] == [EQUAL, RESTORED] and found[1].change == NewAcl(gone)
    assert found[1].name.isprintable()


SAME, OTHER = Log(5, 9, True), Log(5, 9, False)


@pytest.mark.parametrize(
    ("saved", "log", "recreated", "found", "wanted"),
    [
        (OFFSET, SAME, Recreated.REFUSE, None, 7),
        (OFFSET, OTHER, Recreated.REFUSE, None, "--recreated-topics"),
        (OFFSET, OTHER, Recreated.EXACT, None, 7),
        (OFFSET, OTHER, Recreated.TIME, 6, 6),
        (OFFSET, SAME, Recreated.TIME, None, 7),
        (OFFSET, OTHER, Recreated.TIME, -1, 9),
        (Position(7), OTHER, Recreated.TIME, None, "no time"),
        (OFFSET, OTHER, Recreated.TIME, None, "no leader"),
        (OFFSET, Log(0, 0, False), Recreated.TIME, -1, "the log is empty"),
        (Position(0, "m", at_end=True), Log(0, 0, False), Recreated.TIME, -1, 0),
        (OFFSET, None, Recreated.EXACT, None, "no such partition"),
        (Position(4), SAME, Recreated.REFUSE, None, "offset 4 is outside of the log, which has 5 to 9"),
        (Position(5), SAME, Recreated.REFUSE, None, 5),
        (Position(9), SAME, Recreated.REFUSE, None, 9),
        (Position(10), Log(5, 9, False), Recreated.EXACT, None, "outside of the log"),
    ],
)
def test_offset(saved: Position, log: Log | None, recreated: Recreated, found: int | None, wanted: int | str) -> None:
    one = item("g", ("t", 0), saved, None, log, recreated, found, overwrite=False)
    if isinstance(wanted, str):
        assert one.outcome is FAILED and wanted in one.text and one.change is None
    else:
        assert one.outcome is RESTORED and isinstance(one.change, NewOffset) and one.change.position.offset == wanted


def test_other_offset_is_left_alone_without_overwrite() -> None:
    def outcome(now: Position, *, overwrite: bool) -> Outcome:
        return item("g", ("t", 0), OFFSET, now, SAME, Recreated.REFUSE, None, overwrite=overwrite).outcome

    assert outcome(Position(7, "m"), overwrite=True) is EQUAL
    assert outcome(Position(7, "x"), overwrite=False) is DIFFERENT
    assert outcome(Position(8, "m"), overwrite=False) is DIFFERENT
    assert outcome(Position(8, "m"), overwrite=True) is RESTORED


def test_time_is_needed_for_recreated_topics_only() -> None:
    assert needed_time(OFFSET, OTHER, Recreated.TIME, 5) == 1000
    assert needed_time(Position(7, at_end=True), OTHER, Recreated.TIME, 5) == 5
    assert needed_time(Position(7), OTHER, Recreated.TIME, 5) is None
    for log, recreated in ((SAME, Recreated.TIME), (OTHER, Recreated.EXACT), (None, Recreated.TIME)):
        assert needed_time(OFFSET, log, recreated, 5) is None
