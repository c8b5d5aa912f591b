"""A process dies at every single step of every change of a partition; the next holder of the lock continues.

A child does the work and exits, without any cleaning up, at its n-th system call or publish; n grows until the work
comes to its end. After each death another process takes the lock (and so repairs), goes on writing, and then all
that was acknowledged must be there, once, in order, and the directory must pass `odradek check`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from odradek.ipc import producers, region, slots
from odradek.ipc.slots import Slot
from odradek.protocol import errors
from odradek.storage.files import names
from odradek.storage.log import control_batch, leader_or_follower, transactions, trim
from odradek.storage.log.partition import LockNotAvailable, Partition
from odradek.storage.producers import snapshots
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check

from ..harness.process import die_with_parent, turns
from .live import NOW, Live, batch, live, put, records
from .log.following import differences, follower, receive, sent

_CALLS = ("pwritev", "pwrite", "write", "open", "close", "rename", "replace", "unlink", "ftruncate", "truncate")


class _Countdown:
    """Exits the process at the n-th call of anything it wraps."""

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            os._exit(42)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = call(*args, **kwargs)
            self.step()
            return result

        return wrapped

    def install(self) -> None:
        for name in _CALLS:
            setattr(os, name, self.around(getattr(os, name)))
        Slot.publish = self.around(Slot.publish)  # type: ignore[method-assign]  # a test double
        producers.ProducerTable.append = self.around(producers.ProducerTable.append)  # type: ignore[method-assign]  # a test double
        producers.ProducerTable.insert = self.around(producers.ProducerTable.insert)  # type: ignore[method-assign]  # a test double
        region.unlink = self.around(region.unlink)


def _dies_at(world: Live, step: int, work: Callable[[Partition], object]) -> bool:
    """Whether a child that does `work` died at `step`; False when it finished before."""
    pid = os.fork()
    if not pid:
        try:
            partition = world.partition(1)
            _Countdown(step).install()
            work(partition)
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 42), f"the child failed at step {step}"
    return status == 42


def _deaths(tmp_path: Path, **config: Any) -> Iterator[tuple[int, Live]]:
    for step in range(500):
        with live(tmp_path / str(step), **config) as world:
            yield step, world


@pytest.mark.parametrize("idempotent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_death_during_append_index_and_roll(tmp_path: Path, idempotent: bool) -> None:
    producer = 3 if idempotent else -1

    def one(n: int) -> Any:
        return batch(b"%d" % n * 40, producer=producer, sequence=n if idempotent else -1, timestamp=NOW + n)

    for step, world in _deaths(tmp_path, segment_bytes=600, index_interval_bytes=100):
        partition = world.partition()
        for n in range(5):
            put(partition, one(n))

        def work(p: Partition, one: Callable[[int], Any] = one) -> None:
            put(p, one(5), one(6))
            put(p, one(7))

        died = _dies_at(world, step, work)
        for n in range(5, 10):  # the client retries what was not acknowledged, then goes on
            put(partition, one(n))
        found = records(world.partition(2))
        assert [offset for offset, _ in found] == list(range(len(found)))
        values = [value for _, value in found]
        if idempotent:
            assert values == [b"%d" % n * 40 for n in range(10)], f"step {step}"
        else:
            assert values[:5] == [b"%d" % n * 40 for n in range(5)]
            assert values[-5:] == [b"%d" % n * 40 for n in range(5, 10)]
        assert not list(check.check(world.root / "t-0")), f"step {step}"
        if not died:
            assert step > 10
            return
    pytest.fail("the work never came to its end")


@pytest.mark.slow
def test_death_during_a_roll_over_a_gap(tmp_path: Path) -> None:
    """A snapshot above the gap would lack the producers that another leader has in it."""
    far = 5 << 31
    for step in range(500):
        with follower(tmp_path / str(step), cleanup_policy="compact") as world:
            directory = world.root / "t-0"
            receive(world.partition(), sent(0, 1, producer=(7, 0, 0)))
            died = _dies_at(world, step, lambda p: receive(p, sent(far, 1, producer=(7, 0, 1))))
            with world.partition(2).locked() as values:
                end = values[slots.F_LEO]
            assert max(snapshots.snapshot_offsets(directory), default=0) <= end, f"step {step}"
            if end == 1:
                receive(world.partition(2), sent(1, 1, producer=(8, 0, 0)))
            assert not differences(world), f"step {step}"
            if not died:
                assert end == far + 1
                return
    pytest.fail("the work never came to its end")


def test_death_while_the_producer_table_grows(tmp_path: Path) -> None:
    for step, world in _deaths(tmp_path):
        partition = world.partition()
        for producer in range(9):
            put(partition, batch(b"x", producer=producer, sequence=0))

        def more(p: Partition) -> None:
            for producer in range(9, 12):
                put(p, batch(b"x", producer=producer, sequence=0))

        died = _dies_at(world, step, more)
        for producer in range(12):
            put(partition, batch(b"x", producer=producer, sequence=0))
        assert len(records(world.partition(2))) == 12, f"step {step}"
        if not died:
            return
    pytest.fail("the work never came to its end")


def segments(partition: Partition) -> list[int]:
    """The segments that a process has cached."""
    state = partition.state()
    return list(partition.bases(state.active_base, state.generation))


@pytest.mark.slow
def test_death_during_delete_records(tmp_path: Path) -> None:
    def delete(partition: Partition) -> None:
        with partition.locked() as values:
            trim.advance(partition, values, 7)

    starts = set()  # after a death
    for step, world in _deaths(tmp_path, segment_bytes=300):
        partition = world.partition()
        for n in range(10):
            put(partition, batch(b"%d" % n * 50))
        janitor = world.partition(3)
        segments(janitor)
        died = _dies_at(world, step, delete)
        left = set(names.segment_bases(partition.directory))
        assert left - {0} <= set(snapshots.snapshot_offsets(partition.directory)), f"step {step}"
        with partition.locked():
            pass
        assert segments(janitor) == names.segment_bases(partition.directory), f"step {step}"
        put(partition, batch(b"new"))
        found = records(world.partition(2))
        starts.add(found[0][0])
        assert [offset for offset, _ in found] == list(range(found[0][0], 11))
        assert partition.state().log_start == found[0][0]
        assert not list(check.check(world.root / "t-0")), f"step {step}"
        if not died:
            assert (found[0][0], starts) == (7, {0, 7})
            return
    pytest.fail("the work never came to its end")


@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.long)])
def test_death_at_the_end_of_a_transaction(tmp_path: Path, commit: bool) -> None:
    for step, world in _deaths(tmp_path):
        partition = world.partition()
        sent = batch(b"a", producer=3, sequence=0)
        sent.transactional = True
        sent.view[22] |= 0x10
        put(partition, sent)
        assert partition.state().unstable == 0

        def end(p: Partition) -> None:
            assert control_batch.write_marker(p, 3, 0, 1, commit, NOW) == errors.NONE

        died = _dies_at(world, step, end)
        if died:  # the coordinator was not answered: it tries again
            end(partition)
        state = partition.state()
        assert state.unstable == -1, f"step {step}"
        found = transactions.aborted_between(world.partition(2), partition.slot.read(), 0, state.leo)
        assert set(found) == (set() if commit else {(3, 0)}), f"step {step}"
        if not died:
            return
    pytest.fail("the work never came to its end")


@pytest.mark.parametrize("leads", [True, pytest.param(False, marks=pytest.mark.long)])
def test_death_while_becoming_leader_of_another_epoch(tmp_path: Path, leads: bool) -> None:
    """The controller process dies, the leader continues to write, and then the request is carried out again. The former
    epoch ends with its last record: a follower that got a lower end would truncate committed records.
    """

    def become(partition: Partition, epoch: int) -> None:
        with partition.locked() as values:
            leader_or_follower.become_leader(partition, values, epoch, [2], [1, 2], 0)

    for step, world in _deaths(tmp_path):
        partition = world.partition()
        become(partition, 3)
        put(partition, batch(b"0"), batch(b"1"))
        become(partition, 4)
        put(partition, batch(b"2"), batch(b"3"))
        if not leads:
            partition.slot.update(state=slots.FOLLOWER, led_since=-1)
        died = _dies_at(world, step, lambda p: become(p, 5))
        if died and partition.state().leader_epoch == 4:
            end = 5
            if leads:
                put(partition, batch(b"4"))
            else:
                assert receive(partition, sent(4, epoch=4)) == 5
        else:
            end = 4
        become(partition, 5)
        put(partition, batch(b"5"))
        cache = EpochCache.read(partition.directory)
        assert list(cache.entries) == [(3, 0), (4, 2), (5, end)], f"step {step}"
        assert partition.state().latest_epoch == 5
        assert not list(check.check(world.root / "t-0")), f"step {step}"
        if not died:
            assert step > 3
            return
    pytest.fail("the work never came to its end")


@pytest.fixture
def acks() -> Iterator[list[tuple[int, int]]]:
    """A pipe for each of three writers."""
    made = [os.pipe() for _ in range(3)]
    yield made
    for end in chain(*made):
        os.close(end)


@pytest.mark.slow
def test_sigkill_at_random_under_three_writers(tmp_path: Path, acks: list[tuple[int, int]]) -> None:
    """Three processes append for one idempotent producer each; each is killed and replaced again and again."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    with live(tmp_path, segment_bytes=20_000, index_interval_bytes=500) as world:

        def write_for_ever(number: int, first: int) -> None:
            partition, n = world.partition(number), first
            while True:
                one = batch(b"%d:%d" % (number, n), producer=number, sequence=n)
                try:
                    put(partition, one)
                except LockNotAvailable:
                    continue
                if one.error:
                    os._exit(3)
                os.write(acks[number][1], n.to_bytes(4, "big"))
                n += 1

        def start(number: int, first: int) -> int:
            pid = os.fork()
            if not pid:
                die_with_parent()
                try:
                    write_for_ever(number, first)
                finally:
                    os._exit(1)
            return pid

        for read, _ in acks:
            os.set_blocking(read, False)
        acked = [-1, -1, -1]
        pids = [start(number, 0) for number in range(3)]
        for _ in turns(60, lambda: sum(acked) > 50):
            time.sleep(rng.uniform(0.001, 0.03))
            victim = rng.randrange(3)
            os.kill(pids[victim], signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pids[victim], 0)[1]) == -signal.SIGKILL
            _collect(acks, acked)
            pids[victim] = start(victim, acked[victim] + 1)  # retries what was not acknowledged
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        _collect(acks, acked)
        reader = world.partition(4)
        with reader.locked():
            pass  # repairs the state after the last deaths
        found = records(reader)
        assert [offset for offset, _ in found] == list(range(len(found)))
        for number in range(3):
            mine = [int(value.split(b":")[1]) for _, value in found if value.startswith(b"%d:" % number)]
            assert mine == list(range(len(mine)))
            assert len(mine) >= acked[number] + 1
        assert sum(acked) > 50
        assert reader.slot.read()[slots.F_LEO] == len(found)
        assert not list(check.check(world.root / "t-0"))


def _collect(acks: list[tuple[int, int]], acked: list[int]) -> None:
    for number, (read, _) in enumerate(acks):
        try:
            while data := os.read(read, 4096):
                acked[number] = int.from_bytes(data[-4:], "big")
        except BlockingIOError:
            pass
