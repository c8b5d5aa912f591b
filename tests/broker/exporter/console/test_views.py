"""What the views show of a broker with 10,000 topics: a page of them, and nothing that grows with their number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from odradek.broker.exporter.access.reader import Reader
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import views
from odradek.broker.exporter.console.moments import Moment, TopicIndex
from odradek.broker.exporter.console.paging import ROWS, Query
from odradek.broker.exporter.group_lag import Lag
from odradek.broker.exporter.layout import Layout
from odradek.broker.exporter.scrape import Sample
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.ipc import slots
from odradek.security.acls.acl_types import (
    CLUSTER_NAME,
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.authorizer import Authorizer
from odradek.security.principal import Principal
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, GROUP, READ, TOPIC, Rights

TOPICS, PARTITIONS = 10_000, 3


def snapshot(topics: int) -> Snapshot:
    """Topics of three partitions; the third is on another broker."""
    raw = {}
    for number in range(topics):
        rows = [[number * 2 + at if at < 2 else -1, 7, 0, 0, [0, 1], [0], 0] for at in range(PARTITIONS)]
        raw[f"topic-{number:05}"] = {"id": f"{number:032x}", "internal": False, "config": {}, "partitions": rows}
    brokers = [{"id": 0, "rack": None, "endpoints": {"PLAINTEXT": ["localhost", 9092]}}]
    return Snapshot(raw_snapshot(5, "cluster", 0, brokers, raw, {}))


def sample(known: Snapshot, layout: Layout, ends: int, lags: list[Lag]) -> Sample:
    fields = np.zeros((len(layout.names), len(slots.FIELDS)), np.int64)
    fields[:, slots.F_STATE] = slots.LEADER
    fields[:, slots.F_LEO] = fields[:, slots.F_HW] = ends + np.arange(len(layout.names))
    empty: Any = {}
    return Sample(
        broker=0, snapshot=known, layout=layout, fields=fields, processes=[], lags=lags, members={"idle": 2},
        times=empty, traffic=empty, log_sizes=dict.fromkeys(layout.names, 1000), failed_dirs=0, disks={}, idle=1.0,
        labels=empty,
    )  # fmt: skip


def moment(topics: int = 4, lags: list[Lag] | None = None) -> Moment:
    """Each partition has grown by 10 records in 2 seconds."""
    known = snapshot(topics)
    layout = Layout.of(known)
    now = sample(known, layout, 10, lags or [])
    return Moment(sample(known, layout, 0, []), now, 2.0, TopicIndex(layout, known), [])


def test_ten_thousand_topics_are_a_page_of_a_hundred() -> None:
    shown = views.topics(moment(TOPICS), Query.parse({"sort": "-records", "page": "2"}))
    assert (shown["total"], shown["page"], shown["pages"], len(shown["rows"])) == (TOPICS, 2, 100, ROWS)
    assert [row["name"] for row in shown["rows"]] == [f"topic-{at:05}" for at in range(9899, 9799, -1)]
    assert len(json.dumps(shown)) < 40_000


def test_a_filter_finds_one_of_ten_thousand() -> None:
    shown = views.topics(moment(TOPICS), Query.parse({"filter": "TOPIC-01234"}))
    assert [row["name"] for row in shown["rows"]] == ["topic-01234"]


def test_a_topic_has_the_sums_of_its_partitions_here() -> None:
    row = views.topics(moment(), Query())["rows"][1]
    assert row == {
        "name": "topic-00001", "partitions": 3, "here": 2, "led": 2, "under_replicated": 2, "offline": 0,
        "records": 12 + 13, "bytes": 2000, "records_s": 10.0, "bytes_s": 0.0,
    }  # fmt: skip


def test_a_partition_elsewhere_has_no_numbers() -> None:
    first, _, third = views.topic(moment(), "topic-00001", Query())["rows"]
    assert (first["state"], first["end"], first["records_s"]) == ("leader", 12, 5.0)
    assert third == {"partition": 2, "leader": 0, "replicas": [0, 1], "isr": [0], "state": "elsewhere"}


def test_an_unknown_topic_is_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="there is no topic '<b>'") as refused:
        views.topic(moment(), "<b>", Query())
    assert refused.value.status == 404


LAGS = [
    Lag("late", "topic-00001", 0, 2, 10, 4.0),
    Lag("late", "topic-00001", 1, 2, 11, 9.5),
    Lag("late", "topic-00002", 2, 2, None, None),
    Lag("done", "topic-00001", 0, 12, 0, 0.0),
]


def test_groups_have_their_lag_and_the_worst_partition() -> None:
    rows = views.groups(moment(lags=LAGS), Query.parse({"sort": "-lag"}))["rows"]
    assert [row["name"] for row in rows] == ["late", "done", "idle"]
    late = {"members": 0, "partitions": 3, "lag": 21, "lag_s": 9.5, "farthest": "topic-00001-1"}
    assert rows[0] == {"name": "late", **late}
    assert rows[2]["members"] == 2


def test_a_group_has_its_worst_partition_first() -> None:
    shown = views.group(moment(lags=LAGS), "late", Query())
    assert [(row["partition"], row["lag"]) for row in shown["rows"]] == [(1, 11), (0, 10), (2, None)]


def test_an_unknown_group_is_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="this broker does not coordinate a group 'x': ask the console of another"):
        views.group(moment(), "x", Query())


def test_a_broker_without_topics_has_a_page() -> None:
    assert views.topics(moment(0), Query())["rows"] == []


# -- what ACLs allow


def reader(*allowed: tuple[Operation, ResourceType, str], everyone: bool = False) -> Reader:
    """alice with these rights; names that end with `*` are prefixes."""
    acls = {
        ResourcePattern(kind, name if name == "*" else name.rstrip("*"), _pattern(name)):
        frozenset({AccessControlEntry("User:alice", "*", operation, Permission.ALLOW)})
        for operation, kind, name in allowed
    }  # fmt: skip
    session = Authorizer(acls, (), everyone).session(Principal("User", "alice"), "10.0.0.1")
    return Reader(Rights("User:alice", "10.0.0.1", session), "User:alice")


def _pattern(name: str) -> PatternType:
    return PatternType.PREFIXED if name.endswith("*") and name != "*" else PatternType.LITERAL


def test_a_page_has_the_topics_that_acls_show() -> None:
    found = moment(TOPICS)
    shown = views.topics(found, Query.parse({"sort": "-records"}), reader((READ, TOPIC, "topic-0123*")))
    assert shown["total"] == 10 and [row["name"] for row in shown["rows"]][:2] == ["topic-01239", "topic-01238"]
    assert views.topics(found, Query(), reader())["rows"] == []
    assert views.topics(found, Query(), reader(everyone=True))["total"] == TOPICS


def test_listeners_need_describe_on_the_cluster() -> None:
    for who, listeners in ((reader(), []), (reader((DESCRIBE, CLUSTER, CLUSTER_NAME)), ["PLAINTEXT://localhost:9092"])):
        (broker,) = views.overview(moment(), who)["brokers"]
        assert (broker["id"], broker["listeners"]) == (0, listeners)


def test_a_group_has_the_topics_that_acls_show() -> None:
    who = reader((DESCRIBE, GROUP, "late"), (DESCRIBE, TOPIC, "topic-00002"))
    (row,) = views.groups(moment(lags=LAGS), Query(), who)["rows"]
    assert (row["name"], row["partitions"], row["lag"], row["farthest"]) == ("late", 1, 0, "topic-00002-2")
    shown = views.group(moment(lags=LAGS), "late", Query(), who)
    assert shown["lag"] == 0 and [one["topic"] for one in shown["rows"]] == ["topic-00002"]


def test_a_hidden_topic_or_group_is_as_one_that_does_not_exist() -> None:
    for view, hidden in ((views.topic, "topic-00001"), (views.group, "late")):
        lines = []
        for name in (hidden, "missing"):
            with pytest.raises(Refused) as refused:
                view(moment(lags=LAGS), name, Query(), reader())
            assert refused.value.status == 403
            lines.append(str(refused.value).replace(name, "NAME"))
        assert lines[0] == lines[1]


def test_configs_of_a_topic_need_their_own_right() -> None:
    sees = reader((DESCRIBE, TOPIC, "*"))
    assert views.topic(moment(), "topic-00001", Query(), sees)["config"] is None
    sees = reader((DESCRIBE, TOPIC, "*"), (DESCRIBE_CONFIGS, TOPIC, "topic-00001"))
    assert views.topic(moment(), "topic-00001", Query(), sees)["config"] == {}


def test_the_line_that_names_a_right_can_be_pasted() -> None:
    who = Reader(Rights("User:a b", "10.0.0.1"), "User:a b")
    line = who.needs("this topic", READ, TOPIC, "x; rm -rf /")
    assert line.endswith("--allow-principal 'User:a b' --operation Read --topic 'x; rm -rf /'")
