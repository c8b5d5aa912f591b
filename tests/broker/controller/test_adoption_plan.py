"""The plan of an adoption of log directories: topics, configs, unknown facts, directories set aside."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.controller import adoption_plan
from odradek.broker.controller.adoption_plan import AdoptionPlan, TopicAdoption
from odradek.cluster.configs.adopted_configs import MARK, UNKNOWN_RETENTION
from odradek.cluster.rules.topicnames import TRANSACTIONS
from odradek.storage.dirs import boot_id
from odradek.storage.files import checkpoints

from ...cluster import kraft

A, B, C = (letter * 16 for letter in (b"A", b"B", b"C"))
KEEP = {"retention.ms": "-1"}


def partition(log_dir: Path, name: str, topic_id: bytes | None = None, epoch: int | None = None) -> Path:
    """A partition directory as Kafka leaves it."""
    path = log_dir / name
    path.mkdir(parents=True)
    if topic_id is not None:
        text = f"version: 0\ntopic_id: {checkpoints.format_uuid(topic_id)}"
        (path / checkpoints.PARTITION_METADATA).write_text(text)
    if epoch is not None:
        (path / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    return path


def metadata(log_dir: Path, *batches: Sequence[bytes], voters: Sequence[int] = (0,), certain: int = 0) -> Path:
    """A metadata log; a snapshot also has the first `certain` batches."""
    directory = log_dir / "__cluster_metadata-0"
    parts, offset, ends = [kraft.leader_change(0, voters)], 1, [1]
    for values in batches:
        parts.append(kraft.batch(offset, values))
        offset += len(values)
        ends.append(offset)
    kraft.segment(directory, 0, parts)
    if certain:
        kraft.snapshot(directory, ends[certain], [value for values in batches[:certain] for value in values])
    return directory


def plan(*log_dirs: Path, broker: int = 0, **given: str) -> AdoptionPlan:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return adoption_plan.plan([str(folder) for folder in log_dirs], broker, configuration.resolve(settings))


def topic(found: AdoptionPlan, name: str) -> TopicAdoption:
    return next(one for one in found.topics if one.name == name)


def made(
    name: str, topic_id: bytes, *configs: tuple[str, str], replicas: Sequence[Sequence[int]] = ((0,),)
) -> list[bytes]:
    """The records that create a topic, as Kafka writes them in one batch."""
    overrides = [kraft.config(kraft.TOPIC_TYPE, name, *pair) for pair in configs]
    parts = [kraft.partition(topic_id, index, brokers, brokers) for index, brokers in enumerate(replicas)]
    return [kraft.topic(name, topic_id), *overrides, *parts]


def test_facts_missing_from_the_metadata_log_are_unknown(tmp_path: Path) -> None:
    partition(tmp_path, "t-0", A, epoch=3)
    partition(tmp_path, "t-2", A, epoch=5)
    found = topic(plan(tmp_path), "t")
    assert (found.id, found.partitions, found.epochs) == (A, 3, {0: 4, 1: 0, 2: 6})
    assert found.unknown == adoption_plan.NO_METADATA and found.configs == UNKNOWN_RETENTION
    assert found.notes == ["without a directory, start empty: partitions 1"]


def test_internal_topics_get_their_required_configs(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-49", "__transaction_state-0", "__share_group_state-0"):
        partition(tmp_path, name)
    found = {one.name: one for one in plan(tmp_path).topics}
    assert found["__consumer_offsets"].configs["cleanup.policy"] == "compact"
    assert found["__transaction_state"].configs["cleanup.policy"] == "compact"
    assert found["__share_group_state"].configs["retention.ms"] == "-1"
    assert not any(one.unknown or MARK in one.configs for one in found.values())


def test_internal_topics_get_their_required_configs_after_possible_changes(tmp_path: Path) -> None:
    change = [kraft.config(kraft.TOPIC_TYPE, "__consumer_offsets", "cleanup.policy", "delete")]
    offsets = made("__consumer_offsets", A, ("cleanup.policy", "compact"), ("segment.bytes", "5000"))
    metadata(tmp_path, offsets, change, voters=[0, 1, 2])
    found = topic(plan(tmp_path), "__consumer_offsets")
    assert (found.configs["cleanup.policy"], found.unknown) == ("compact", "")


def test_a_name_that_only_looks_like_a_partition_s(tmp_path: Path) -> None:
    partition(tmp_path, "backup-20240101")
    found = plan(tmp_path)
    assert found.topics == [] and "too many partitions before it" in found.warnings[0]


def test_transaction_coordinators_continue_kafkas_epochs(tmp_path: Path) -> None:
    """With lower epochs, its partitions would refuse markers of the transaction coordinators."""
    partition(tmp_path, f"{TRANSACTIONS}-0", A, epoch=3)
    partition(tmp_path, f"{TRANSACTIONS}-2", A)
    assert topic(plan(tmp_path), TRANSACTIONS).epochs == {0: 3, 1: 0, 2: 0}


def test_metadata_log_has_topic_ids_partitions_and_configs(tmp_path: Path) -> None:
    partition(tmp_path / "one", "t-0", A)
    partition(tmp_path / "two", "t-1")
    metadata(tmp_path / "two", made("t", A, *KEEP.items(), replicas=[[0], [0], [0]]), made("empty", B))
    found = plan(tmp_path / "one", tmp_path / "two")
    assert (topic(found, "t").partitions, topic(found, "t").configs, topic(found, "t").unknown) == (3, KEEP, "")
    assert topic(found, "t").epochs == {0: 5, 1: 5, 2: 5}, "the epoch must be above Kafka's leader epoch"
    assert (topic(found, "empty").id, topic(found, "empty").found) == (B, {})


def test_metadata_log_dir(tmp_path: Path) -> None:
    partition(tmp_path / "data", "t-0", A)
    metadata(tmp_path / "apart", made("t", A, *KEEP.items()))
    found = plan(tmp_path / "data", metadata_log_dir=str(tmp_path / "apart"))
    assert topic(found, "t").configs == KEEP
    assert topic(plan(tmp_path / "data"), "t").unknown


def test_one_broker_of_several(tmp_path: Path) -> None:
    """The plan invents no partitions of other brokers, names those that may lack records, omits others' topics."""
    partition(tmp_path, "t-1", A)
    behind = [kraft.partition_change(A, 1, isr=[3])]
    metadata(tmp_path, made("t", A, replicas=[[1, 3], [2, 3], [3, 1]]), made("others", B, replicas=[[1]]), behind)
    found = plan(tmp_path, broker=2)
    assert [one.name for one in found.topics] == ["t"]
    assert topic(found, "t").partitions == 3
    assert topic(found, "t").notes == [
        "without a directory, start empty: partitions 0, 2",
        "not in sync at the end of the metadata log, may lack records: partitions 1",
    ]


def test_directories_of_another_topic_of_that_name_are_put_aside(tmp_path: Path) -> None:
    old = partition(tmp_path, "t-0", A)
    partition(tmp_path, "t-1", B)
    metadata(tmp_path, made("t", B, replicas=[[0], [0]]))
    found = plan(tmp_path)
    assert found.strays == {("t", 0): (old, "it belongs to another topic of that name")}
    assert (topic(found, "t").id, list(topic(found, "t").found)) == (B, [1])


def test_the_id_of_most_directories_counts_where_there_is_no_metadata_log(tmp_path: Path) -> None:
    for name, topic_id in (("t-0", A), ("t-1", B), ("t-2", B), ("t-3", None)):
        partition(tmp_path, name, topic_id)
    found = plan(tmp_path)
    assert list(found.strays) == [("t", 0)]
    assert (topic(found, "t").id, list(topic(found, "t").found)) == (B, [1, 2, 3])


def test_a_topic_that_is_deleted_and_one_that_is_not_mentioned(tmp_path: Path) -> None:
    gone = partition(tmp_path, "gone-0", A)
    partition(tmp_path, "later-0", C)
    metadata(tmp_path, made("gone", A), [kraft.remove_topic(A)])
    found = plan(tmp_path)
    assert found.strays == {("gone", 0): (gone, "its topic is deleted")}
    assert [one.name for one in found.topics] == ["later"]
    assert topic(found, "later").configs[MARK] == "true", "the log may end before the topic's creation"


def test_unsupported_configs_are_reported(tmp_path: Path) -> None:
    for name in ("odd", "lag", "worse"):
        partition(tmp_path, f"{name}-0")
    lag = (("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5"), ("segment.bytes", "5000"))
    odd = made("odd", A, ("of.a.later.kafka", "1"), ("segment.bytes", "5000"), *KEEP.items())
    metadata(tmp_path, odd, made("worse", B, ("cleanup.policy", "shred")), made("lag", C, *lag))
    found = plan(tmp_path)
    assert topic(found, "odd").configs == {"segment.bytes": "5000", **KEEP}
    assert topic(found, "odd").notes == ["configs that are not taken over: of.a.later.kafka"]
    assert topic(found, "worse").unknown == "not understood: cleanup.policy"
    assert topic(found, "worse").configs == UNKNOWN_RETENTION
    assert topic(found, "lag").configs == {"segment.bytes": "5000"}


@pytest.mark.parametrize(("voters", "certain", "known"), [([0], 0, True), ([0, 1, 2], 0, False), ([0, 1, 2], 2, True)])
def test_with_several_voters_the_last_changes_may_not_be_committed(
    tmp_path: Path, voters: list[int], certain: int, known: bool
) -> None:
    partition(tmp_path, "t-0", A)
    partition(tmp_path, "new-0", B)
    change = [kraft.config(kraft.TOPIC_TYPE, "t", "retention.ms", "1000")]
    metadata(tmp_path, made("t", A), change, made("new", B, *KEEP.items()), voters=voters, certain=certain)
    found = plan(tmp_path)
    assert topic(found, "new").configs == KEEP, "the topic's directory proves that its creation is committed"
    assert (topic(found, "t").unknown == "") == known
    assert topic(found, "t").configs == ({"retention.ms": "1000"} if known else UNKNOWN_RETENTION)


def test_dynamic_broker_configs(tmp_path: Path) -> None:
    """Configs of the cluster and of this broker, without secrets; uncertain ones leave the retention unknown."""
    for name in ("t-0", "own-0"):
        partition(tmp_path, name)
    given = [
        kraft.config(kraft.BROKER_TYPE, *one)
        for one in (
            ("", "log.retention.ms", "-1"),
            ("2", "ssl.key.password", "a secret"),
            ("2", "advertised.listeners", "PLAINTEXT://elsewhere:9092"),
            ("2", "log.cleaner.threads", "2"),
            ("3", "log.retention.bytes", "7"),
            ("", "of.a.later.kafka", "also secret"),
        )
    ]
    doubted = (
        made("t", A),
        made("own", B, ("retention.ms", "5"), ("cleanup.policy", "delete"), ("retention.bytes", "-1")),
    )
    metadata(tmp_path, *doubted, given)
    found = plan(tmp_path, broker=2)
    assert found.broker_configs == {None: {"log.retention.ms": "-1"}, 2: {"log.cleaner.threads": "2"}}
    assert "dynamic configs of broker 2 that are not taken over: advertised.listeners, ssl.key.password" in found.notes
    assert "secret" not in repr(found)
    assert topic(found, "t").unknown == "" and topic(found, "own").unknown == ""
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text(
        '{"currentVoters": [{"voterId": 0}, {"voterId": 1}]}'
    )
    found = plan(tmp_path, broker=2)
    assert topic(found, "t").unknown == "not certain to be committed: log.retention.ms"
    assert topic(found, "own").unknown == ""


def test_a_migration_from_zookeeper_that_has_not_ended(tmp_path: Path) -> None:
    partition(tmp_path, "t-0", A)
    metadata(tmp_path, made("t", A), [kraft.frame(21, b"\x02\0")])
    assert topic(plan(tmp_path), "t").unknown == "the metadata log cannot be read"


def test_records_of_a_newer_kafka_leave_retention_unknown(tmp_path: Path) -> None:
    """Such records may change retention. Other facts of the log count."""
    partition(tmp_path, "t-0", A)
    metadata(tmp_path, made("t", A, ("retention.ms", "1000"), ("min.insync.replicas", "2")), [kraft.UNKNOWN])
    found = topic(plan(tmp_path), "t")
    assert found.unknown == "the metadata log has records that this version does not support: api keys 99"
    assert (found.id, found.configs) == (A, {"min.insync.replicas": "2"} | UNKNOWN_RETENTION)


def test_directories_with_marks_are_named(tmp_path: Path) -> None:
    for mark in ("delete", "future", "stray"):
        partition(tmp_path, f"t-0.{'0' * 32}-{mark}")
    partition(tmp_path, "t-1", A)
    found = plan(tmp_path)
    assert [note.partition(":")[0] for note in found.notes] == [
        "deleted by the former broker, will be removed",
        "ignored, incomplete copies",
        "ignored, stray replicas",
    ]
    assert list(topic(found, "t").found) == [1]


def test_users_acls_and_quotas_are_counted(tmp_path: Path) -> None:
    partition(tmp_path, "t-0", A)
    user = kraft.frame(11, kraft.text("alice") + b"\x01" + kraft.text("secret"))
    group = kraft.config(32, "billing", "consumer.session.timeout.ms", "50000")
    metadata(tmp_path, made("t", A), [user, kraft.frame(18, A), kraft.frame(18, B), group])
    found = plan(tmp_path)
    assert "not in force, kept only in the metadata log: 2 ACLs, 1 user, configs of billing" in found.notes
    assert "secret" not in repr(found)


def test_topics_with_default_retention_are_reported(tmp_path: Path) -> None:
    for name in ("plain", "compacted", "kept"):
        partition(tmp_path, f"{name}-0")
    metadata(
        tmp_path, made("plain", A), made("compacted", B, ("cleanup.policy", "compact")), made("kept", C, *KEEP.items())
    )
    (warning,) = plan(tmp_path).warnings
    assert warning.endswith("so the default of 7 days applies: plain")
    assert plan(tmp_path, log_retention_hours="168").warnings == []
    assert plan(tmp_path, log_cleanup_policy="compact").warnings == []
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    dynamic = [kraft.config(kraft.BROKER_TYPE, "", "log.retention.ms", "-1")]
    metadata(tmp_path, made("plain", A), dynamic)
    assert plan(tmp_path).warnings == []


def test_a_metadata_log_from_before_an_odradek_served_the_directories(tmp_path: Path) -> None:
    """The metadata of that time is lost: configs may have changed since, and topics may have been recreated."""
    partition(tmp_path, "t-0", B)
    metadata(tmp_path, made("t", A, ("retention.ms", "1000")))
    boot_id.record_boot(tmp_path)
    found = plan(tmp_path)
    assert topic(found, "t").unknown == "the metadata log is older than the changes of an Odradek broker here"
    assert (topic(found, "t").configs, topic(found, "t").id, found.strays) == (UNKNOWN_RETENTION, B, {})


def test_a_metadata_log_of_another_cluster(tmp_path: Path) -> None:
    for folder, cluster in (("data", "ours"), ("apart", "another")):
        (tmp_path / folder).mkdir()
        checkpoints.write_meta_properties(tmp_path / folder, checkpoints.MetaProperties(cluster, 0, version=1))
    partition(tmp_path / "data", "t-0", A)
    metadata(tmp_path / "apart", made("t", A, *KEEP.items()))
    found = plan(tmp_path / "data", metadata_log_dir=str(tmp_path / "apart"))
    assert topic(found, "t").unknown == "the metadata log belongs to another cluster"
