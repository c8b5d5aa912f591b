"""The controller process over its real channel and real shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.controller.metadata_owner import AT_ONCE
from odradek.cluster import internal
from odradek.cluster.metadata.snapshot import PartitionInfo
from odradek.cluster.state import TOGETHER
from odradek.ipc import slots
from odradek.ipc.doorbell import Doorbell
from odradek.ipc.producers import ProducerTable, RegionError
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.storage.files import checkpoints, names
from odradek.storage.tools import check

from ..harness.process import wait_until
from .controller_harness import CLUSTER_ID, ControllerHarness, create_request

pytestmark = pytest.mark.live


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerHarness]:
    harness = ControllerHarness(tmp_path)
    try:
        yield harness.start()
    finally:
        harness.close()


def info(harness: ControllerHarness, topic: str, index: int = 0) -> PartitionInfo:
    found = harness.snapshot().partition(topic, index)
    assert found is not None
    return found


def write_log(harness: ControllerHarness, topic: str) -> None:
    """Write a log file into partition 0 of a topic, as appends would."""
    (harness.data_dir / f"{topic}-0" / names.segment_path("", 0).name).write_bytes(bytes(61))


# -- creating


def test_created_topic_has_directory_slot_and_snapshot(controller: ControllerHarness) -> None:
    made = controller.create("t", 2, retention_ms="5", min_insync_replicas="2")
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)
    assert {c.name: c.value for c in made.configs}["retention.ms"] == "5"
    snapshot = controller.snapshot()
    assert snapshot.cluster_id == CLUSTER_ID
    assert snapshot.by_id(made.topic_id.bytes) == "t"
    assert snapshot.topic_config("t")["retention.ms"] == 5
    for index in range(2):
        place = info(controller, "t", index)
        state = controller.shared.slots[place.slot].state()
        assert (state.incarnation, state.state) == (place.incarnation, slots.LEADER)
        assert state.min_isr == 1, "at most the number of replicas, whatever min.insync.replicas is"
        directory = controller.data_dir / f"t-{index}"
        assert checkpoints.read_partition_metadata(directory) == made.topic_id.bytes


def test_answer_waits_for_worker_acknowledgement(controller: ControllerHarness) -> None:
    controller.be_worker()
    before = controller.shared.metadata.version
    token = controller.send(create_request("t"))
    wait_until(lambda: controller.shared.metadata.version > before, 30, "a new version")
    assert "t" in controller.snapshot().topics
    assert not controller.answered(token, 0.05)
    controller.acknowledge()
    assert controller.take(token)


def restarted(controller: ControllerHarness) -> ControllerHarness:
    """Another controller process, whose log `capfd` captures; the fixture's first one has the earlier stderr."""
    controller.stop()
    return controller.start()


def test_wait_for_silent_worker_is_bounded(controller: ControllerHarness, capfd: pytest.CaptureFixture[str]) -> None:
    restarted(controller).be_worker()
    assert controller.create("t").error_code == 0
    assert controller.shared.processes.get(controller.role, "meta_version") < controller.shared.metadata.version
    assert "not acknowledged by" in capfd.readouterr().err


def test_dead_worker_is_not_awaited(controller: ControllerHarness, capfd: pytest.CaptureFixture[str]) -> None:
    restarted(controller).be_worker()
    controller.roles.close()  # its byte is free, so the worker is dead, whatever the table has
    tokens = [controller.send(create_request(f"t{number}")) for number in range(20)]
    for token in tokens:
        controller.take(token)
    assert len(controller.snapshot().topics) == 20
    assert "not acknowledged by" not in capfd.readouterr().err


def test_validate_only_changes_nothing(controller: ControllerHarness) -> None:
    before = controller.shared.metadata.version
    response = controller.call(create_request("t", 3, validate_only=True))
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 3)
    assert controller.shared.metadata.version == before
    assert controller.directories() == []


def test_refusals_have_codes_and_messages(controller: ControllerHarness) -> None:
    controller.create("t")
    again = controller.create("t")
    assert (again.error_code, again.error_message) == (errors.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert controller.create("__cluster_metadata").error_code == errors.INVALID_REQUEST
    twice = create_request("u")
    twice.topics.append(twice.topics[0])
    response = controller.call(twice)
    assert [topic.error_code for topic in response.topics] == [errors.INVALID_REQUEST]


def test_partition_table_grows_for_a_wide_topic(controller: ControllerHarness) -> None:
    capacity = controller.shared.slots.capacity
    assert controller.create("wide", capacity + 1).error_code == 0
    places = controller.snapshot().topics["wide"].partitions
    assert len({place.slot for place in places}) == capacity + 1
    last = controller.shared.slots[places[-1].slot].state()
    assert (last.state, last.incarnation) == (slots.LEADER, places[-1].incarnation)
    controller.kill()
    controller.start()
    assert controller.snapshot().topics["wide"].partitions == places


def test_partitions_are_added(controller: ControllerHarness) -> None:
    controller.create("t", 1)
    request = message_class("CreatePartitionsRequest")
    topic = request.CreatePartitionsTopic(name="t", count=3, assignments=None)
    response = controller.call(request[3](topics=[topic], timeout_ms=1000, validate_only=False))
    assert response.results[0].error_code == 0
    assert len(controller.snapshot().topics["t"]) == 3
    assert controller.directories() == ["t-0", "t-1", "t-2"]
    controller.kill()
    controller.start()
    assert len(controller.snapshot().topics["t"]) == 3


def test_partition_limit_counts_all_topics_of_a_request(controller: ControllerHarness) -> None:
    """Each topic is within the limit; together they would block all requests for an hour."""
    request, names = message_class("CreatePartitionsRequest"), ["t", "u"]
    for name in names:
        controller.create(name, 1)
    topics = [request.CreatePartitionsTopic(name=name, count=6000, assignments=None) for name in names]
    response = controller.call(request[3](topics=topics, timeout_ms=1000, validate_only=False))
    assert [result.error_code for result in response.results] == [errors.POLICY_VIOLATION] * 2
    assert controller.directories() == ["t-0", "u-0"]


# -- deleting


def test_deleted_partition_frees_its_producers(controller: ControllerHarness) -> None:
    controller.create("t")
    place = info(controller, "t")
    name = ProducerTable.name(controller.shared.prefix, place.slot, place.incarnation, 1)
    ProducerTable.create(name, controller.shared.incarnation)
    controller.shared.slots[place.slot].update(pstate_gen=1)
    controller.delete("t")
    with pytest.raises(RegionError):
        ProducerTable.attach(name)


def test_deleted_topic_frees_its_name(controller: ControllerHarness) -> None:
    old = controller.create("t", 2)
    place = info(controller, "t")
    with_bell = Doorbell(controller.run_dir, controller.role)
    controller.shared.slots[place.slot].wait(controller.role)
    assert [result.error_code for result in controller.delete("t", "nope")] == [0, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert controller.shared.slots[place.slot].waiters() == []
    with_bell.close()
    assert "t" not in controller.snapshot().topics
    assert all(name.endswith("-delete") for name in controller.directories())
    assert len(controller.directories()) == 2
    new = controller.create("t", 2)
    assert new.topic_id != old.topic_id
    again = info(controller, "t")
    assert again.incarnation > place.incarnation
    assert checkpoints.read_partition_metadata(controller.data_dir / "t-0") == new.topic_id.bytes


def test_topic_of_many_partitions_is_deleted_in_steps(controller: ControllerHarness) -> None:
    """The topic has more partitions than one step removes; the lock of one is held."""
    count = AT_ONCE + TOGETHER + 1
    controller.create("t", count)
    place = info(controller, "t", 1)
    assert controller.locks.try_lock(place.slot)
    request = message_class("DeleteTopicsRequest")
    token = controller.send(request[1](topic_names=["t"], timeout_ms=60_000))
    used = controller.data_dir.glob
    wait_until(lambda: [path.name for path in used("t-*[0-9]")] == ["t-1"], 60, "the removal of all others")
    assert not controller.answered(token)
    controller.locks.unlock(place.slot)
    assert controller.take(token)
    assert "t" not in controller.snapshot().topics
    assert controller.create("t", 1).error_code == 0


def test_deletion_waits_for_the_partition_lock(controller: ControllerHarness) -> None:
    controller.create("t", 2)
    place = info(controller, "t", 1)
    assert controller.locks.try_lock(place.slot)
    request = message_class("DeleteTopicsRequest")[5](topic_names=["t"], timeout_ms=60_000)
    token = controller.send(request)
    wait_until(lambda: controller.directories()[0].endswith("-delete"), 30, "the removal of the other partition")
    assert not controller.answered(token, 0.05)
    assert controller.shared.slots[place.slot].state().state == slots.LEADER
    assert controller.create("t").error_code == errors.TOPIC_ALREADY_EXISTS
    controller.locks.unlock(place.slot)
    assert controller.take(token)
    assert "t" not in controller.snapshot().topics


def test_deletion_continues_after_request_timeout(controller: ControllerHarness) -> None:
    controller.create("t")
    place = info(controller, "t")
    assert controller.locks.try_lock(place.slot)
    assert controller.delete("t", timeout_ms=10)[0].error_code == errors.REQUEST_TIMED_OUT
    controller.locks.unlock(place.slot)
    wait_until(lambda: "t" not in controller.snapshot().topics, 30, "the topic goes")


def test_deletion_continues_after_kill(controller: ControllerHarness) -> None:
    controller.create("t", 2)
    controller.create("u")
    place = info(controller, "t", 1)
    assert controller.locks.try_lock(place.slot)
    controller.send(message_class("DeleteTopicsRequest")[5](topic_names=["t"], timeout_ms=60_000))
    wait_until(lambda: any(name.endswith("-delete") for name in controller.directories()), 30, "it begins")
    controller.kill()
    controller.locks.unlock(place.slot)
    controller.start()
    wait_until(lambda: "t" not in controller.snapshot().topics, 30, "the topic goes")
    assert [name for name in controller.directories() if not name.endswith("-delete")] == ["u-0"]
    wait_until(lambda: controller.shared.slots[place.slot].state().state == slots.FREE, 30, "its slot is free")


def test_topics_are_deleted_by_id(controller: ControllerHarness) -> None:
    import uuid

    made = controller.create("t")
    request = message_class("DeleteTopicsRequest")
    unknown = uuid.uuid4()
    topics = [request.DeleteTopicState(name=None, topic_id=number) for number in (made.topic_id, unknown)]
    response = controller.call(request[6](topics=topics, timeout_ms=60_000))
    assert [(r.name, r.error_code) for r in response.responses] == [("t", 0), (None, errors.UNKNOWN_TOPIC_ID)]


def test_deletion_can_be_forbidden(tmp_path: Path) -> None:
    harness = ControllerHarness(tmp_path, delete_topic_enable="false")
    try:
        harness.start()
        harness.create("t")
        assert harness.delete("t")[0].error_code == errors.TOPIC_DELETION_DISABLED
        old = message_class("DeleteTopicsRequest")[1](topic_names=["t"], timeout_ms=60_000)
        assert harness.call(old).responses[0].error_code == errors.INVALID_REQUEST
    finally:
        harness.close()


# -- kills and restarts


def test_restarted_process_keeps_slots(controller: ControllerHarness) -> None:
    controller.create("t", 3)
    controller.create("u")
    before = controller.snapshot()
    controller.kill()
    controller.start()
    after = controller.snapshot()
    assert after.version > before.version
    for name in ("t", "u"):
        assert after.topics[name].partitions == before.topics[name].partitions
    controller.create("v")
    used = [place.slot for topic in controller.snapshot().topics.values() for place in topic.partitions]
    assert len(used) == len(set(used)) == 5


def test_new_memory_recovers_logs_with_new_incarnations(controller: ControllerHarness) -> None:
    controller.create("t")
    controller.create("empty")
    write_log(controller, "t")
    before = info(controller, "t")
    controller.stop()
    controller.shared.destroy()
    controller.fresh_memory()
    controller.start()
    after = info(controller, "t")
    assert after.incarnation > before.incarnation
    assert after.leader_epoch == before.leader_epoch + 1, "the stop was not clean: the log's end may have changed"
    assert controller.shared.slots[after.slot].state().state == slots.RECOVERING
    assert controller.shared.slots[info(controller, "empty").slot].state().state == slots.LEADER


def test_new_partition_has_all_log_files(controller: ControllerHarness) -> None:
    controller.create("t")
    directory = controller.data_dir / "t-0"
    assert not list(check.check(directory))
    assert {path.suffix for path in directory.iterdir()} >= {".log", ".index", ".timeindex"}


def test_lost_directory_is_created_and_foreign_one_renamed(controller: ControllerHarness) -> None:
    made = controller.create("t", 2)
    write_log(controller, "t")
    controller.stop()
    checkpoints.write_partition_metadata(controller.data_dir / "t-0", b"\x07" * 16)
    for file in (controller.data_dir / "t-1").iterdir():
        file.unlink()
    (controller.data_dir / "t-1").rmdir()
    controller.shared.destroy()
    controller.fresh_memory()
    controller.start()
    kept = [name for name in controller.directories() if not name.endswith("-stray")]
    assert kept == ["t-0", "t-1"]
    assert len(controller.directories()) == 3
    for name in kept:
        assert checkpoints.read_partition_metadata(controller.data_dir / name) == made.topic_id.bytes
        assert [path.stat().st_size for path in (controller.data_dir / name).glob("*.log")] == [0]


def test_log_dirs_of_apache_become_topics(tmp_path: Path) -> None:
    (tmp_path / "data" / "theirs-1").mkdir(parents=True)
    (tmp_path / "data" / "theirs-0").mkdir()
    topic_id = bytes(range(16))
    checkpoints.write_partition_metadata(tmp_path / "data" / "theirs-1", topic_id)
    (tmp_path / "data" / "theirs-1" / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    (tmp_path / "data" / "__consumer_offsets-0").mkdir()
    harness = ControllerHarness(tmp_path)
    try:
        harness.start()
        snapshot = harness.snapshot()
        assert snapshot.by_id(topic_id) == "theirs"
        assert len(snapshot.topics["theirs"]) == 2
        assert snapshot.topics["theirs"].partitions[1].leader_epoch >= 5, "above the epoch of its log"
        assert snapshot.topic_config("__consumer_offsets")["cleanup.policy"] == ["compact"]
    finally:
        harness.close()


# -- configs


def alter(harness: ControllerHarness, kind: int, name: str, **configs: str | None) -> int:
    request = message_class("IncrementalAlterConfigsRequest")
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            request.AlterConfigsResource.AlterableConfig(
                name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value
            )
            for key, value in configs.items()
        ],
    )
    return int(harness.call(request[1](resources=[resource], validate_only=False)).responses[0].error_code)


def test_configs_survive_restart(controller: ControllerHarness) -> None:
    controller.create("t", 2)
    assert alter(controller, 2, "t", min_insync_replicas="2", retention_ms="7") == 0
    assert alter(controller, 4, "", log_segment_bytes="1000") == 0
    assert alter(controller, 4, "0", log_retention_ms="9") == 0
    controller.kill()
    controller.start()
    config = controller.snapshot().topic_config("t")
    assert (config["min.insync.replicas"], config["retention.ms"], config["segment.bytes"]) == (2, 7, 1000)
    assert alter(controller, 2, "t", min_insync_replicas=None, retention_ms=None) == 0
    config = controller.snapshot().topic_config("t")
    assert (config["min.insync.replicas"], config["retention.ms"]) == (1, 9)


def test_bad_config_changes_are_refused(controller: ControllerHarness) -> None:
    controller.create("t")
    assert alter(controller, 2, "nope", retention_ms="1") == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(controller, 2, "t", retention_ms="x") == errors.INVALID_CONFIG
    assert alter(controller, 4, "", num_partitions="3") == errors.INVALID_REQUEST
    assert alter(controller, 4, "7", log_segment_bytes="1000") == errors.INVALID_REQUEST
    assert controller.snapshot().topics["t"].config == {}


# -- internal requests of the broker


def test_topics_are_created_automatically(controller: ControllerHarness) -> None:
    answer = controller.ask(internal.AUTO_CREATE, {"topics": ["a", "b c", "__consumer_offsets"]})
    assert {name: code for name, (code, _) in answer["errors"].items()} == {
        "a": 0,
        "b c": errors.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": 0,
    }
    assert len(controller.snapshot().topics["__consumer_offsets"]) == 50
    assert controller.ask(internal.AUTO_CREATE, {"topics": ["a"]})["errors"] == {"a": [0, None]}


def test_producer_ids_are_unique(controller: ControllerHarness) -> None:
    given: set[int] = set()
    for turn in range(4):
        block = controller.ask(internal.PRODUCER_IDS, {})
        ids = set(range(block["first"], block["first"] + block["count"]))
        assert len(ids) == 1000
        assert not ids & given
        given |= ids
        if turn == 1:
            controller.kill()
            controller.start()


def test_offsets_of_version_0_are_stored_in_the_tree(controller: ControllerHarness) -> None:
    controller.create("t", 2)
    commit = {"group": "g", "offsets": [["t", 0, 42], ["t", 1, 7], ["t", 2, 1], ["nope", 0, 1]]}
    assert [code for _, _, code in controller.ask(internal.COMMIT_V0, commit)["errors"]] == [0, 0, 3, 3]
    controller.ask(internal.COMMIT_V0, {"group": "g", "offsets": [["t", 0, 43]]})
    controller.kill()
    controller.start()
    fetch = {"group": "g", "partitions": [["t", 0], ["t", 1], ["nope", 0]]}
    assert controller.ask(internal.FETCH_V0, fetch)["offsets"] == [
        ["t", 0, 43, 0],
        ["t", 1, 7, 0],
        ["nope", 0, None, 3],
    ]
    other = controller.ask(internal.FETCH_V0, {"group": "h", "partitions": [["t", 0]]})
    assert other["offsets"] == [["t", 0, None, 0]]
