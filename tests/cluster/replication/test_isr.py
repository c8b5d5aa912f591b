"""A leader's ISR when ZooKeeper answers late, or leaves the outcome of a write unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.broker.controller.member.isr_keeper import IsrKeeper
from odradek.cluster.metadata.view import PartitionUpdate, View
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import TreeUnavailable
from odradek.cluster.tree.znodes import PartitionState
from odradek.ipc import replicas, slots
from odradek.ipc.replicas import IN, JOINING, OUT
from odradek.storage.log import leader_or_follower

from ..simulation.memory import MemoryTable
from ..simulation.tree import ZooKeeper
from ..simulation.world import World

STATE = znodes.state_path("t", 0)
LATE = 1e6  # a time at which the next check is due


class Led:
    """Broker 1 leads t-0, with the follower 2, in a slot without a log."""

    incarnation = 1

    def __init__(self) -> None:
        self.slot = MemoryTable()[0]
        self.slot.publish(slots.SlotState(state=slots.LEADER, incarnation=1, latest_epoch=9, leo=5, led_since=0))
        replicas.set_followers(self.slot, [2], [1, 2], 0, ())

    @contextmanager
    def locked(self) -> Iterator[Any]:
        yield self.slot.fields()

    def standing(self) -> int:
        return replicas.read(self.slot)[0].isr_status


class Scene:
    """The leader's IsrKeeper with its own session; `other` is another writer."""

    def __init__(self, isr: list[int]) -> None:
        self.servers = ZooKeeper(World(1))
        self.servers.lag = 1e9  # no transaction arrives by itself
        self.other, self.tree = (self.servers.connect(number, lambda: None) for number in (0, 1))
        self.tree.ensure(znodes.ISR_CHANGES)
        self.tree.ensure(znodes.partition_path("t", 0))
        self.tree.create(STATE, znodes.encode_state(PartitionState(1, 0, isr, 1)))
        self.other.see(self.servers.zxid)
        self.led = Led()
        self.led.slot.update(isr_count=len(isr))
        view = View(1, "c")
        self.row = view.apply(PartitionUpdate("t", b"t" * 16, 0, 1, 1, 0, isr, 0, [1, 2]))
        self.keeper = IsrKeeper(view, self, self.tree, 1000, lambda: None)  # type: ignore[arg-type]  # a test double

    def __iter__(self) -> Iterator[Any]:
        yield "t", 0, self.row

    def partition(self, topic: str, index: int) -> Any:
        return self.led

    def look(self) -> None:
        self.keeper._last = -LATE
        self.keeper.tick(0.0)

    def isr(self) -> list[int]:
        return znodes.decode_state(self.servers.nodes[STATE].data).isr

    def written_by_other(self, isr: list[int]) -> None:
        """Simulate a write of the keeper with an unknown outcome: its ZooKeeper server does not have it yet."""
        self.other.set(STATE, znodes.encode_state(PartitionState(1, 0, isr, 1)))

    def told(self) -> list[Any]:
        paths = [f"{znodes.ISR_CHANGES}/{name}" for name in self.servers.nodes[znodes.ISR_CHANGES].children]
        return [one for path in paths for one in notices.decode_partitions(self.servers.nodes[path].data)]


def test_written_member_counts_before_zookeeper_server_has_it() -> None:
    scene = Scene([1])
    leader_or_follower.await_joining(scene.led, scene.led.slot.fields(), [2])  # type: ignore[arg-type]  # sequences of ints
    scene.written_by_other([1, 2])
    scene.look()
    assert scene.led.standing() == JOINING, "the high watermark must wait for it"
    scene.look()
    assert (scene.led.standing(), scene.isr(), scene.row[5]) == (IN, [1, 2], [1, 2])


def test_unknown_outcome_is_resolved_by_a_write() -> None:
    scene = Scene([1])
    leader_or_follower.await_joining(scene.led, scene.led.slot.fields(), [2])  # type: ignore[arg-type]  # sequences of ints
    version = scene.servers.nodes[STATE].version
    scene.look()
    assert (scene.led.standing(), scene.isr()) == (OUT, [1])
    assert scene.servers.nodes[STATE].version == version + 1, "a write in flight is refused"


@pytest.mark.parametrize(("isr", "standing", "count"), [([1, 2], JOINING, 1), ([1], OUT, 2)])
def test_next_process_corrects_isr_size_in_slot(isr: list[int], standing: int, count: int) -> None:
    """The former process wrote an ISR and died before it updated the slot, so the next one reads the tree at its start.

    Otherwise acks=all would be refused for ever if a follower had joined, and wrongly accepted if one had left.
    """
    scene = Scene(isr)
    replicas.set_isr_status(scene.led.slot, {2: standing})
    scene.led.slot.update(isr_count=count)
    replicas.record_fetch(
        scene.led.slot, scene.led.slot.fields(), replicas.find(scene.led.slot, 2), 5 if 2 in isr else 0, 0, 5, 10**15
    )
    scene.look()
    assert (scene.led.slot.state().isr_count, scene.isr()) == (len(isr), isr)
    assert scene.led.standing() == (IN if 2 in isr else OUT)
    version = scene.servers.nodes[STATE].version
    scene.look()
    assert scene.servers.nodes[STATE].version == version, "no further write is needed"


@pytest.mark.parametrize("done", [True, False])
def test_unknown_isr_shrink_is_checked(done: bool) -> None:
    """The follower catches up meanwhile, so that nothing else causes a check."""
    scene = Scene([1, 2])
    scene.led.slot.update(leo=9)
    each = scene.tree.each

    def lost(transactions: Any) -> Any:
        if done:
            each(transactions)
        return [TreeUnavailable("/") for _ in transactions]

    scene.tree.each = lost  # type: ignore[method-assign]  # a test double
    scene.look()
    scene.tree.each = each  # type: ignore[method-assign]  # a test double
    assert (scene.led.standing(), scene.isr()) == (IN, [1] if done else [1, 2])
    fields = scene.led.slot.fields()
    replicas.record_fetch(scene.led.slot, fields, replicas.find(scene.led.slot, 2), 9, 0, 9, 10**15)
    scene.look()
    assert scene.row[5] == scene.isr(), "the leader knows the ISR"
    assert scene.told() == [("t", 0)]


def test_lost_isr_notification_is_repeated() -> None:
    scene = Scene([1, 2])
    scene.led.slot.update(leo=9)
    multi = scene.tree.multi

    def lost(operations: Any) -> Any:
        if operations[0].path == znodes.ISR_CHANGE:
            raise TreeUnavailable("/")
        return multi(operations)

    scene.tree.multi = lost  # type: ignore[method-assign]  # a test double
    scene.look()
    assert (scene.isr(), scene.told()) == ([1], [])
    scene.tree.multi = multi  # type: ignore[method-assign]  # a test double
    assert scene.keeper.due() <= 0.2, "the notification is repeated soon"
    scene.look()
    assert scene.told() == [("t", 0)]


@pytest.mark.parametrize("offline", [[], [2]])
def test_replica_reported_offline_does_not_join(monkeypatch: pytest.MonkeyPatch, offline: list[int]) -> None:
    """A broker in controlled shutdown still fetches."""
    scene = Scene([1])
    slot = scene.led.slot
    monkeypatch.setattr(scene.keeper._view, "brokers", {1: None, 2: None})
    scene.keeper._view.apply(PartitionUpdate("t", b"t" * 16, 0, 1, 1, 0, [1], 0, [1, 2], offline=offline))
    replicas.set_isr_status(slot, {2: OUT})
    replicas.record_fetch(slot, slot.fields(), replicas.find(slot, 2), 5, 0, 5, time.monotonic_ns() // 1_000_000)
    scene.look()
    assert scene.isr() == ([1] if offline else [1, 2])


@pytest.mark.parametrize(("hw", "isr"), [(5, [1, 2]), (6, [1])])
def test_follower_behind_risen_high_watermark_does_not_join(
    monkeypatch: pytest.MonkeyPatch, hw: int, isr: list[int]
) -> None:
    """A follower outside the ISR may lack what was committed between the check and the lock."""
    scene = Scene([1])
    slot = scene.led.slot
    monkeypatch.setattr(scene.keeper._view, "brokers", {1: None, 2: None})
    slot.update(hw=5)
    replicas.set_isr_status(slot, {2: OUT})
    row, now_ms = replicas.find(slot, 2), time.monotonic_ns() // 1_000_000
    replicas.record_fetch(slot, slot.fields(), row, 5, 0, 5, now_ms)

    @contextmanager
    def locked() -> Iterator[Any]:
        slot.update(hw=max(hw, slot.state().hw), leo=max(hw, slot.state().leo))
        yield slot.fields()

    monkeypatch.setattr(scene.led, "locked", locked)
    scene.look()
    assert (scene.isr(), scene.row[5]) == (isr, isr)
    assert scene.led.standing() == (IN if 2 in isr else OUT)


def caught_up(scene: Scene, standing: int = OUT) -> None:
    """The follower has just fetched up to the log end."""
    slot = scene.led.slot
    replicas.set_isr_status(slot, {2: standing})
    now_ms = time.monotonic_ns() // 1_000_000
    replicas.record_fetch(slot, slot.fields(), replicas.find(slot, 2), slot.state().leo, 0, slot.state().leo, now_ms)


def test_high_watermark_waits_for_joining_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may die, or not get the lock, after the write, and the follower may still be elected."""
    scene = Scene([1])
    monkeypatch.setattr(scene.keeper._view, "brokers", {1: None, 2: None})
    caught_up(scene)
    write = scene.tree.each
    seen = []

    def each(transactions: Any) -> Any:
        seen.append((scene.led.standing(), scene.led.slot.state().hw_quorum, scene.isr()))
        return write(transactions)

    monkeypatch.setattr(scene.tree, "each", each)
    scene.look()
    assert (seen, scene.isr()) == ([(JOINING, 2, [1])], [1, 2])


@pytest.mark.parametrize(("isr", "known"), [([1], replicas.UNKNOWN), ([1, 2], 5)])
@pytest.mark.parametrize("epoch", [0, 1])
def test_out_of_sync_follower_joins_only_after_fetch_in_new_epoch(epoch: int, isr: list[int], known: int) -> None:
    """The follower may have restarted without its log's end: a new epoch covers that (decisions.broker_epochs)."""
    scene = Scene([1])
    caught_up(scene)
    values = scene.led.slot.fields()
    leader_or_follower.become_leader(scene.led, values, epoch, [2], isr, 0)  # type: ignore[arg-type]  # sequences of ints
    assert replicas.read(scene.led.slot)[0].leo == (known if epoch else 5)


def test_follower_that_ends_before_the_epoch_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former leader may have committed the records between, even above the high watermark here."""
    scene = Scene([1])
    monkeypatch.setattr(scene.keeper._view, "brokers", {1: None, 2: None})
    caught_up(scene)
    scene.led.slot.update(epoch_start=6, leo=6, hw=0)
    scene.look()
    assert scene.isr() == [1]
    caught_up(scene)
    scene.look()
    assert scene.isr() == [1, 2]
