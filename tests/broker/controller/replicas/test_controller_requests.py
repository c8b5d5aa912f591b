"""Requests that no broker can carry out: only their own partitions fail, and later requests continue."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import config as configuration
from odradek.broker.controller.replicas import controller_requests
from odradek.broker.controller.replicas.controller_requests import _MOST_UNVERIFIED_BYTES, ControllerRequests
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.cluster.decisions.broker_request_batch import DURING_DELETE, StopReplica
from odradek.cluster.metadata import view
from odradek.cluster.metadata.rows import SLOT
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.metadata.view import CONTROLLER, NO_ID, ControllerTerm, PartitionUpdate, View
from odradek.cluster.rules import validation
from odradek.cluster.rules.validation import MOST_KNOWN, MOST_PARTITIONS, MOST_REPLICAS
from odradek.ipc import region, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared
from odradek.protocol import errors
from odradek.protocol.errors import UNKNOWN_SERVER_ERROR
from odradek.storage.files.checkpoints import write_partition_metadata
from odradek.storage.log import leader_or_follower, opening
from odradek.storage.log.log import Log
from odradek.storage.log.partition import LockNotAvailable

from ....storage.logs import run_of_batches, write_segment

OFFICE = ControllerTerm(0, 1, -1)
NAMES = ["t", "t.2", "", ".", "..", "../escaped", "a b", "a/b", "a\0", "ä", "x" * 250]
INDEXES = [0, 1, 2, -1, -(1 << 31), MOST_PARTITIONS - 1, MOST_PARTITIONS, (1 << 31) - 1]
REPLICAS = [[0], [0, 1], [], [0, 0], [-1], list(range(MOST_REPLICAS)), list(range(MOST_REPLICAS + 1))]


def told(topic: str = "t", number: int = 0, replicas: list[int] | None = None, epoch: int = 0) -> PartitionUpdate:
    wanted = [0, 1] if replicas is None else replicas
    return PartitionUpdate(topic, b"t" * 16, number, 1, 0, epoch, wanted[:1], 0, wanted)


class Fragile:
    """A ReplicaManager with steps that fail on request; records completed steps."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.done: list[tuple[str, int]] = []
        self.fails: dict[tuple[str, int], Exception] = {}

    def become(self, one: PartitionUpdate) -> int:
        error = self.fails.get((one.topic, one.number))
        if error is not None:
            raise error
        self.view.apply(one)
        self.done.append((one.topic, one.number))
        return 0

    def stop(self, topic: str, index: int, epoch: int, delete: bool) -> int:
        return self.become(told(topic, index))

    def replace_topic(self, one: PartitionUpdate) -> None:
        pass


class Scene:
    """A queue of controller requests, and their responses."""

    def __init__(self) -> None:
        self.view = View(0, "c")
        self.replicas: Any = Fragile(self.view)
        self.orders = ControllerRequests(self.view, self.replicas, lambda: None)  # type: ignore[arg-type]  # a double
        self.answers: list[tuple[int, dict[tuple[str, int], int]]] = []

    def answered(self, error: int, codes: dict[tuple[str, int], int]) -> None:
        self.answers.append((error, dict(codes)))

    def lead(self, *partitions: PartitionUpdate) -> dict[tuple[str, int], int]:
        self.orders.leader_and_isr(OFFICE, partitions, self.answered)
        while self.orders.waiting:
            self.orders.tick()
        return self.answers[-1][1]


def test_request_of_a_lost_connection_is_refused_after_later_ones() -> None:
    """Request 5 was resent over the next connection, and 6 carried out there, before the first 5 arrives."""
    scene = Scene()
    for number in (5, 6, 5, 6, 7):
        term = ControllerTerm.of(SimpleNamespace(controller_id=0, controller_epoch=1), f"{CONTROLLER}-{number}")
        scene.orders.leader_and_isr(term, [told()], scene.answered)
    late = errors.STALE_CONTROLLER_EPOCH
    assert [error for error, _ in scene.answers] == [errors.NONE, errors.NONE, late, errors.NONE, errors.NONE]


@pytest.mark.parametrize("error", [ValueError("too many"), IndexError(), KeyError("t"), AssertionError(), OSError()])
def test_a_step_that_fails_is_an_error_code_and_the_queue_goes_on(error: Exception) -> None:
    scene = Scene()
    scene.replicas.fails["t", 1] = error
    assert scene.lead(told(), told(number=1), told(number=2)) == {("t", 1): UNKNOWN_SERVER_ERROR}
    assert scene.replicas.done == [("t", 0), ("t", 2)]
    assert scene.lead(told(number=3)) == {}
    assert not scene.orders.waiting


def test_request_waits_for_a_held_lock() -> None:
    scene = Scene()
    scene.replicas.fails["t", 0] = LockNotAvailable()
    scene.orders.leader_and_isr(OFFICE, [told()], scene.answered)
    assert scene.answers == []
    scene.replicas.fails.clear()
    scene.orders.tick()
    assert scene.answers == [(0, {})]


def test_request_for_many_partitions_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later request waits for it, and each turn spends one time slice on it."""
    scene, now = Scene(), [0.0]
    monkeypatch.setattr(controller_requests, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(controller_requests, "_SLICE_S", 2)
    become, done = scene.replicas.become, []

    def slow(one: PartitionUpdate) -> int:
        now[0] += 1
        return int(become(one))

    scene.replicas.become = slow
    scene.orders.leader_and_isr(OFFICE, [told(number=number) for number in range(6)], lambda *_: done.append("many"))
    scene.orders.when_done(lambda: done.append("all"))
    scene.orders.leader_and_isr(OFFICE, [told("t.2")], lambda *_: done.append("next"))
    for count in (2, 4, 6):
        assert (len(scene.replicas.done), done) == (count, ["many"] if count == 6 else [])
        scene.orders.tick()
    assert (done, scene.orders.waiting) == (["many", "all", "next"], False)


def test_failing_response_delays_nothing() -> None:
    scene = Scene()

    def fails(*_: Any) -> None:
        raise ValueError("cannot be encoded")

    scene.orders.leader_and_isr(OFFICE, [told()], fails)
    assert scene.lead(told(number=1)) == {}


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(INDEXES), st.sampled_from(REPLICAS)), max_size=5))
def test_only_possible_changes_are_carried_out(partitions: list[tuple[str, int, list[int]]]) -> None:
    scene = Scene()
    codes = scene.lead(*(told(*one) for one in partitions))
    faulty = {one[:2] for one in partitions if view.update_error(told(*one))[0]}
    assert set(codes) == faulty
    assert set(scene.replicas.done) == {one[:2] for one in partitions} - faulty
    assert all(name in ("t", "t.2") and 0 <= index < MOST_PARTITIONS for name, index in scene.replicas.done)
    assert set(scene.view.topics) <= {"t", "t.2"}


def test_long_topic_name_is_logged_once() -> None:
    """A request has each topic name once, however many partitions it lists; each partition has its own fault."""
    texts = [validation.place_fault("x" * 30_000, number)[1] for number in range(1000)]
    assert len("".join(texts)) < 300_000


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (told("../escaped"), errors.INVALID_TOPIC_EXCEPTION),
        (told("a b"), errors.INVALID_TOPIC_EXCEPTION),
        (told(number=-1), errors.INVALID_PARTITIONS),
        (told(number=MOST_PARTITIONS), errors.INVALID_PARTITIONS),
        (told(replicas=list(range(MOST_REPLICAS + 1))), errors.INVALID_REPLICA_ASSIGNMENT),
        (told(replicas=[]), errors.INVALID_REPLICA_ASSIGNMENT),
        (told(epoch=-1), errors.INVALID_REQUEST),
    ],
)
def test_error_codes_of_impossible_changes(one: PartitionUpdate, code: int) -> None:
    scene = Scene()
    assert scene.lead(one, told("fine")) == {(one.topic, one.number): code}


@pytest.mark.slow
def test_a_broker_keeps_no_endless_rows() -> None:
    """An index implies all lower ones: a request of a few bytes could take gigabytes."""
    scene = Scene()
    most = MOST_KNOWN // MOST_PARTITIONS
    codes = scene.lead(*(told(f"t{topic}", MOST_PARTITIONS - 1) for topic in range(most + 2)), told("t0"))
    assert list(codes.values()) == [errors.POLICY_VIOLATION] * 2
    assert len(scene.replicas.done) == most + 1


@pytest.mark.parametrize(("known", "code"), [(7, errors.NONE), (6, errors.STALE_CONTROLLER_EPOCH)])
def test_the_first_order_of_an_epoch_waits_until_zookeeper_has_it(known: int, code: int) -> None:
    scene, asked = Scene(), []
    reachable = False

    def vouch(epoch: int) -> bool | None:
        asked.append(epoch)
        return epoch <= known if reachable else None

    orders = ControllerRequests(scene.view, scene.replicas, lambda: None, vouch)
    term = ControllerTerm(0, 7, -1)
    orders.leader_and_isr(term, [told()], scene.answered)
    orders.verify()
    assert (scene.answers, orders.unverified) == ([], True)
    reachable = True
    orders.verify()
    assert (scene.answers, orders.unverified) == ([(code, {})], False)
    orders.leader_and_isr(term, [told(number=1)], scene.answered)
    assert len(asked) == (3 if code == errors.NONE else 4), "a known epoch must be looked up once"


def test_requests_waiting_for_zookeeper_are_bounded_in_bytes() -> None:
    scene = Scene()
    instance = ControllerRequests(scene.view, scene.replicas, lambda: None, lambda epoch: None)
    term = ControllerTerm(0, 7, -1, size=_MOST_UNVERIFIED_BYTES // 4)
    for number in range(6):
        instance.leader_and_isr(term, [told(number=number)], scene.answered)
    assert scene.answers == [(errors.STALE_CONTROLLER_EPOCH, {})] * 2


@pytest.mark.parametrize("times", [1, 3])
def test_failed_role_change_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:  # fmt: skip
    """Otherwise the slot would stay without the leadership, because the controller sends it only once."""
    with real_replicas(tmp_path) as replicas:
        failures = iter([AssertionError("a fault")] * times)
        lead = leader_or_follower.become_leader

        def fails(*args: Any) -> None:
            for failure in failures:
                raise failure
            lead(*args)

        monkeypatch.setattr(leader_or_follower, "become_leader", fails)
        orders = ControllerRequests(replicas.view, replicas, lambda: None)
        answers: list[Any] = []
        orders.leader_and_isr(OFFICE, [told(replicas=[0])._replace(leader=0)], lambda *answer: answers.append(answer))
        assert answers == [(0, {("t", 0): UNKNOWN_SERVER_ERROR})]
        for _ in range(times):
            partition = replicas.partition("t", 0)
            assert partition is not None and partition.state().state == slots.FOLLOWER
            assert replicas.due() < math.inf
            assert replicas.retry(replicas.due())
        assert partition is not None and partition.state().state == slots.LEADER
        assert replicas.due() == math.inf
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_log_skipped_at_the_start_is_recovered_later(tmp_path: Path) -> None:
    """The topic's node was malformed at the start. The clean mark does not cover its log, which may have changed."""
    log_dir = tmp_path / "data"
    directory = log_dir / "t-0"
    batches = run_of_batches(0, 200)
    write_segment(directory, 0, batches, sealed=False)
    write_partition_metadata(directory, b"t" * 16)
    with real_replicas(tmp_path) as replicas:
        orders = ControllerRequests(replicas.view, replicas, lambda: None)
        answers: list[Any] = []
        told_of = told(replicas=[0])._replace(leader=0)
        orders.leader_and_isr(OFFICE, [told_of], lambda *answer: answers.append(answer))
        orders.leader_and_isr(OFFICE, [told_of], lambda *answer: answers.append(answer))
        assert answers == [(0, {("t", 0): UNKNOWN_SERVER_ERROR})] * 2, "the log is shown, and so recovered, afterwards"
        partition = replicas.partition("t", 0)
        assert partition is not None and partition.state().state == slots.RECOVERING
        assert isinstance(partition.owner, Log)
        opening.open_all(partition.owner, [("t", 0)], [opening.LogDir.read(str(log_dir), clean=True)], lambda: None)
        assert replicas.retry(replicas.due())
        state = partition.state()
        assert (state.state, state.leo, state.flushed) == (slots.LEADER, 200, 0)
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == ["t-0"]
    assert (directory / "00000000000000000000.log").read_bytes() == b"".join(batches)


@pytest.mark.parametrize("by", ["StopReplica", "UpdateMetadata", "UpdateMetadata at first"])
def test_log_skipped_at_the_start_is_deleted_with_its_topic(tmp_path: Path, by: str) -> None:
    """A log of another topic with the former name stays until the controller's next full request."""
    log_dir = tmp_path / "data"
    for index, topic_id in enumerate((b"t" * 16, b"u" * 16)):
        write_segment(log_dir / f"t-{index}", 0, run_of_batches(0, 20), sealed=False)
        write_partition_metadata(log_dir / f"t-{index}", topic_id)
    with real_replicas(tmp_path) as replicas:
        orders = ControllerRequests(replicas.view, replicas, lambda: None)
        shown = [told(replicas=[0])._replace(number=index) for index in (0, 1)]
        if by != "UpdateMetadata at first":
            orders.update_metadata(OFFICE, shown, [], lambda *_: None)
        if by == "StopReplica":
            orders.stop_replica(OFFICE, [StopReplica(("t", index), -1, True) for index in (0, 1)], lambda *_: None)
        else:
            orders.update_metadata(OFFICE, [one._replace(leader=DURING_DELETE) for one in shown], [], lambda *_: None)
    names = sorted(path.name for path in log_dir.iterdir() if path.is_dir())
    assert names[0].startswith("t-0.") and names[0].endswith("-delete") and names[1:] == ["t-1"]


def test_controller_process_dies_while_it_sets_a_log_aside(tmp_path: Path) -> None:
    """The death is between mark and rename. The next process opens the log again, without a clean mark."""
    with real_replicas(tmp_path) as replicas:
        one = told(replicas=[0])._replace(leader=0)
        replicas.become(one)
        former = published(replicas)
        row = replicas.view.row("t", 0)
        assert row is not None

        def dies(topic: str, index: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            replicas.put_away("t", 0, row, dies)
        replicas.slot_allocator.unlock(row[SLOT])
        (tmp_path / "data" / "t-0" / "00000000000000000000.log").write_bytes(b"".join(run_of_batches(0, 200)))
        successor = successor_of(replicas, one)
        successor.open(former)
        partition = successor.partition("t", 0)
        assert partition is not None
        assert (partition.state().state, partition.state().used) == (slots.RECOVERING, 1)
        assert successor.to_free == [row[SLOT]]


@pytest.mark.parametrize("on_disk", [None, NO_ID, b"t" * 16])
def test_a_topic_whose_node_has_no_id_at_the_start_keeps_its_log(tmp_path: Path, on_disk: bytes | None) -> None:
    """Old ZooKeeper tools omit the id, and the controller that adds it may be this broker, later."""
    log_dir = tmp_path / "data"
    directory = log_dir / "t-0"
    write_segment(directory, 0, run_of_batches(0, 200), sealed=False)
    if on_disk is not None:
        write_partition_metadata(directory, on_disk)
    with real_replicas(tmp_path) as replicas:
        one = told(replicas=[0])._replace(leader=0)
        replicas.view.apply(one._replace(topic_id=NO_ID, leader=-1, leader_epoch=-1))
        replicas.open(None)
        orders = ControllerRequests(replicas.view, replicas, lambda: None)
        assert orders.topic_id("t") == (one.topic_id if on_disk == one.topic_id else None)
        partition = replicas.partition("t", 0)
        assert partition is not None and partition.state().state == slots.RECOVERING
        assert isinstance(partition.owner, Log)
        opening.open_all(partition.owner, [("t", 0)], [opening.LogDir.read(str(log_dir), clean=True)], lambda: None)
        answers: list[Any] = []
        orders.leader_and_isr(OFFICE, [one], lambda *answer: answers.append(answer))
        assert answers == [(0, {})] and orders.topic_id("t") == one.topic_id
        state = partition.state()
        assert (state.state, state.leo) == (slots.LEADER, 200)
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == ["t-0"]


def test_topic_without_an_id_is_unchanged_for_the_next_controller_process(tmp_path: Path) -> None:
    with real_replicas(tmp_path) as replicas:
        one = told(replicas=[0])._replace(leader=0)
        replicas.become(one)
        former = published(replicas)
        successor = successor_of(replicas, one._replace(topic_id=NO_ID))
        successor.open(former)
        row, before = successor.view.row("t", 0), replicas.view.row("t", 0)
        assert row is not None and before is not None and row[SLOT] == before[SLOT]
        assert successor.to_free == []
        assert successor.view.topics["t"]["id"] == one.topic_id.hex()
        assert successor.become(one._replace(leader_epoch=1)) == 0


def published(replicas: ReplicaManager) -> Snapshot:
    """The metadata that the controller process of `t` leaves to the next one, as in shared memory."""
    replicas.view.show(["t"])
    former = Snapshot.parse(replicas.view.snapshot(1, replicas._config).encode(), replicas._config)
    replicas._log.shared.metadata.publish(1, former.encode())
    return former


def successor_of(replicas: ReplicaManager, one: PartitionUpdate) -> ReplicaManager:
    """The initial state of the next controller process of the same broker."""
    view = View(0, "c")
    view.apply(one)
    turns = CheckpointLocks(replicas._log.run_dir)
    dirs = PartitionDirs(replicas.dirs.log_dirs, turns)
    book = SlotAllocator(replicas._log.shared, PartitionLocks(Path(replicas._log.run_dir) / "partition.lock"), 2)
    return ReplicaManager(view, dirs, book, replicas._log.shared, Path(replicas._log.run_dir), replicas._config)


@pytest.mark.parametrize("order", ["become", "stop", "delete"])
def test_lock_holder_is_checked_while_a_request_waits(tmp_path: Path, order: str) -> None:
    with real_replicas(tmp_path) as replicas:
        one = told(replicas=[0])._replace(leader=0)
        replicas.become(one)
        locks = PartitionLocks(tmp_path / "run" / "partition.lock")
        row = replicas.view.row("t", 0)
        assert row is not None and locks.try_lock(row[SLOT])
        with pytest.raises(LockNotAvailable):
            if order == "become":
                replicas.become(one._replace(leader_epoch=1))
            else:
                replicas.stop("t", 0, 0, order == "delete")
        assert [slot for slot, _, _ in replicas._log.shared.slots.contended()] == [row[SLOT]]


@contextmanager
def real_replicas(folder: Path) -> Iterator[ReplicaManager]:
    data, run = folder / "data", folder / "run"
    for path in (data, run):
        path.mkdir(exist_ok=True)
    prefix = f"/odradek-test{secrets.token_hex(4)}-"
    try:
        shared = Shared.create(prefix, 1, 16)
        config = configuration.resolve({"log.dirs": str(data), "broker.id": "0"})
        book = SlotAllocator(shared, PartitionLocks(run / "partition.lock"), 1)
        yield ReplicaManager(View(0, "c"), PartitionDirs([str(data)], CheckpointLocks(run)), book, shared, run, config)
    finally:
        region.unlink_all(prefix)


@pytest.mark.parametrize("order", ["stop", "know"])
def test_lock_holder_is_checked_for_other_requests_too(order: str) -> None:
    scene = Scene()
    bad = [("../escaped", 0), ("t", -1), ("t", (1 << 31) - 1)]
    send: Callable[[], None] = (
        (lambda: scene.orders.stop_replica(OFFICE, [StopReplica(one, 0, True) for one in bad], scene.answered))
        if order == "stop"
        else (lambda: scene.orders.update_metadata(OFFICE, [told(*one) for one in bad], [], scene.answered))
    )
    send()
    ((error, codes),) = scene.answers
    assert (error, set(codes)) == (0, set(bad))
    assert (scene.replicas.done, scene.view.topics) == ([], {})
