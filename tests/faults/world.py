"""A broker under load: three producers on the same partitions, and two readers at their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.ipc import roles
from odradek.ipc.rundir import shm_prefix
from odradek.ipc.shm import Shared

from ..clients.admin import create_topic, unique
from ..clients.raw.calls import list_offsets
from ..harness.process import wait_until
from . import load
from .checker import Found, faults, key_of
from .churn import Churn
from .load import Hiccups, Producer
from .readers import Tail, read_all
from .transactor import Transactor

PARTITIONS = 3
STALL_S = 2.0
HOPS = 5  # threads and processes between a crash and an answer, each of which may wait for a CPU
SMALL_SEGMENTS = {"segment_bytes": 60_000, "index_interval_bytes": 1000}


# Topics that keep the janitor and the workers' fsync busy.
SIDES: dict[str, dict[str, Any]] = {
    "retained": {"retention_bytes": 30_000, "segment_bytes": 10_000, "file_delete_delay_ms": 300},
    "synced": {"flush_messages": 1},
    "compacted": {
        "cleanup_policy": "compact",
        "segment_bytes": 10_000,
        "min_cleanable_dirty_ratio": 0.01,
        "file_delete_delay_ms": 300,
    },
}
BUSY = {
    "transaction_state_log_num_partitions": 4,
    "log_retention_check_interval_ms": 200,
    "log_segment_delete_delay_ms": 300,
    "log_cleaner_backoff_ms": 100,
    "log_flush_offset_checkpoint_interval_ms": 200,
    "log_flush_start_offset_checkpoint_interval_ms": 200,
    "replica_high_watermark_checkpoint_interval_ms": 200,
}


class World:
    """The load on one broker; `verify` checks the result. `sides`: add load that keeps every process busy."""

    def __init__(self, broker: Any, *, pause: float = 0.02, sides: bool = False) -> None:
        self.broker = broker
        self.arming: Any = None  # a test's failpoints
        self.topic = create_topic(broker, "shared", PARTITIONS, **SMALL_SEGMENTS)
        self.producers = [self.producer(number, idempotent=number != 2, pause=pause) for number in range(3)]
        self.tails = [Tail(broker.bootstrap, self.topic, PARTITIONS, number) for number in range(2)]
        self.hiccups = Hiccups(broker.folder / "hiccups")
        self.sides = {name: self._side(name, at) for at, name in enumerate(SIDES, 10)} if sides else {}
        self.owners: list[Churn | Transactor] = self._owners() if sides else []

    def _side(self, name: str, number: int) -> Producer:
        topic = create_topic(self.broker, name, 1, **SIDES[name])
        return Producer(self.broker.bootstrap, topic, 1, number, idempotent=name == "synced", pause=0.05)

    def _owners(self) -> list[Churn | Transactor]:
        """Clients that keep the controller and the coordinator busy."""
        bootstrap = self.broker.bootstrap
        transactions = create_topic(self.broker, "transactions", 2, **SMALL_SEGMENTS)
        return [Churn(bootstrap, self.topic, unique("churn")), Transactor(bootstrap, transactions)]

    def producer(self, number: int, **options: Any) -> Producer:
        return Producer(self.broker.bootstrap, self.topic, PARTITIONS, number, **options)

    @property
    def clients(self) -> list[Any]:
        return [*self.producers, *self.tails, *self.sides.values(), *self.owners, self.hiccups]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the load during the block."""
        with load.running(self.clients):
            self.await_more()
            wait_until(self._spread, 60, "every worker serves producers")
            yield

    def _spread(self) -> bool:
        """Whether every worker has served a produce request; producers change connections now and then."""
        table = Shared.attach(shm_prefix(self.broker.data_dir)).processes
        workers = range(roles.FIRST_WORKER, roles.FIRST_WORKER + self.broker.properties["odradek.workers"])
        return all(table.get(role, "produce_requests") for role in workers)

    def stop(self) -> None:
        """Stop the load once the requests in flight are answered."""
        for client in self.clients:
            client.stop()

    def await_more(self, more: int = 30, seconds: float = 60) -> None:
        """Wait until every producer makes progress, and a transaction was completed."""
        load.await_more(self.producers, more, seconds, lambda: self.broker.log[-6000:])
        transactors = [owner for owner in self.owners if isinstance(owner, Transactor)]
        wait_until(lambda: all(one.decided for one in transactors), seconds, "a transaction is completed")

    @property
    def acked(self) -> int:
        """Records acknowledged to all producers."""
        return sum(producer.history.count for producer in self.producers)

    @property
    def problems(self) -> list[str]:
        """Answers that clients must never get."""
        return [problem for client in self.clients for problem in client.problems]

    def longest_gap(self) -> float:
        """The longest wait in seconds for the next answer on an open connection.

        Without clients whose answers wait for the disk, which may be slow.
        """
        return max(client.longest_gap for client in [*self.producers, *self.tails])

    def within(self, seconds: float) -> None:
        """Assert that no client on an open connection waited longer, apart from the delays of the machine itself.

        Only the waiting time shows that a fault does not block other clients.
        """
        gap, hiccup = self.longest_gap(), self.hiccups.longest
        clients = [*self.producers, *self.tails]
        _, until = max((client.longest_gap, client.gap_ended) for client in clients)
        greeting, greeted = max((client.longest_greeting, client.greeting_ended) for client in clients)
        print(f"longest gap {gap:.2f} s (until {until}), on a new connection {greeting:.2f} s (until {greeted})")
        print(f"the machine's own hiccups {hiccup:.2f} s")
        allowed = seconds + HOPS * hiccup
        assert gap < allowed, f"a client of a running process waited {gap:.2f} s\n{self.broker.log[-4000:]}"

    def verify(self) -> None:
        """After `running`: the checker finds no fault, and the directory passes `odradek check`."""
        assert not self.problems, f"{self.problems[:5]}\n{self.broker.log[-4000:]}"
        log = everything(self.broker, self.topic)
        found = faults([one.history for one in self.producers], log, [tail.log for tail in self.tails])
        found += [fault for name, side in self.sides.items() for fault in _side_faults(self.broker, name, side)]
        found += [fault for owner in self.owners for fault in owner.faults(self.broker)]
        assert not found, "\n".join([f"{len(found)} faults", *found[:10], self.broker.log[-6000:]])
        for tail in self.tails:
            assert any(tail.log.values()), "a reader that saw no record proves nothing"
        self.broker.stop()
        checked(self.broker)
        self.broker.start()


def _side_faults(broker: Any, name: str, side: Producer) -> list[str]:
    log = everything(broker, side.topic, 1)
    if name == "compacted":
        return _compacted_faults(side, log[0])
    return [f"{name}: {fault}" for fault in faults([side.history], log, [], trimmed=name == "retained")]


def _compacted_faults(side: Producer, rows: list[Found]) -> list[str]:
    """The last record of each key is its last acknowledged record or a later one."""
    last = {row.key: row.number for row in rows}
    wanted = {key_of(side.history.producer, number): number for number in sorted(side.history.acked[0])}
    found = [
        f"compacted: {key!r} ends at {last.get(key)}, not {n}" for key, n in wanted.items() if last.get(key, -1) < n
    ]
    offsets = [row.offset for row in rows]
    return found if offsets == sorted(set(offsets)) else [*found, "compacted: offsets do not rise"]


def everything(broker: Any, topic: str, partitions: int = PARTITIONS) -> Any:
    """All records of a topic, read from its start."""
    with broker.wire() as wire:
        ask = lambda at, partition: wait_until(lambda: _offset(wire, topic, partition, at), what="offsets")  # noqa: E731
        starts = {partition: ask(-2, partition)[0] for partition in range(partitions)}
        ends = {partition: ask(-1, partition)[0] for partition in range(partitions)}
    return read_all(broker.bootstrap, topic, ends, starts)


def _offset(wire: Any, topic: str, partition: int, timestamp: int) -> tuple[int] | None:
    found = list_offsets(wire, topic, timestamp, partition=partition)
    return None if found.error_code else (found.offset,)


def checked(broker: Any) -> None:
    """Assert that `odradek check` finds no fault; the broker must be stopped."""
    done = broker.command("check", str(broker.data_dir))
    assert done.returncode == 0, f"odradek check: {done.stdout[-3000:]}{done.stderr[-2000:]}\n{broker.log[-3000:]}"


def await_role(broker: Any, role: str, count: int, seconds: float = 30) -> None:
    """Wait until any `count` processes of `role` run again."""
    wait_until(lambda: len(broker.pids(role)) >= count, seconds, f"{count} {role} again")
