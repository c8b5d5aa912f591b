"""Several real brokers that share one real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .broker import Broker
from .process import wait_until
from .zookeeper import ZooKeeper

SESSION_MS = 6000  # ZooKeeper with ticks of half a second grants 1 to 10 s
TICK_MS = 500


class Cluster:
    """ZooKeeper and `brokers` brokers with the ids from 0, each of one worker; a context manager.

    Start it from a thread that outlives it, as a Broker. Marks of tests that use it: `needs("java-3.9.1")`.
    """

    def __init__(self, folder: Path, brokers: int = 3, **overrides: Any) -> None:
        """`overrides` are server properties of all brokers, with `_` for `.`; `None` removes a default."""
        self.zookeeper = ZooKeeper(folder / "zookeeper", TICK_MS)
        replicas = min(3, brokers)
        properties = {
            "zookeeper_connect": self.zookeeper.connect,
            "zookeeper_session_timeout_ms": SESSION_MS,
            "odradek_workers": 1,
            "controlled_shutdown_retry_backoff_ms": 200,  # otherwise the concurrent stop of all brokers takes long
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
        } | overrides
        self.brokers = [Broker(folder / f"broker-{i}", broker_id=i, **properties) for i in range(brokers)]

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- life cycle

    def start(self, prepare: Callable[[ZooKeeper], None] | None = None) -> Cluster:
        """Start ZooKeeper, then all brokers at once; AssertionError with the log of a broker that does not start.

        `prepare` is called in between.
        """
        try:
            self.zookeeper.start()
            if prepare:
                prepare(self.zookeeper)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.await_ready()
        except BaseException:
            self._destroy()
            raise
        return self

    def kill(self, broker_id: int) -> None:
        """SIGKILL the broker's supervisor; returns after the death of its children."""
        self.brokers[broker_id].kill()

    def restart(self, broker_id: int, *, kill: bool = False, **overrides: Any) -> Broker:
        """Start the broker again on the same port and data, after a stop or kill if it runs."""
        return self.brokers[broker_id].restart(kill=kill, **overrides)

    def stop(self) -> None:
        """Stop all running brokers at once, then ZooKeeper; asserts for each what `Broker.stop` asserts."""
        try:
            _all_of(broker.close for broker in self.brokers)
        finally:
            self.zookeeper.kill()

    def _destroy(self) -> None:
        """End all started processes after a failed start, whose error is the one to report."""
        for broker in self.brokers:
            if broker.process is not None:
                broker.kill()
        self.stop()

    # -- inspection

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, broker_id: int) -> Broker:
        """The broker with this id, running or not."""
        return self.brokers[broker_id]

    def running(self) -> list[Broker]:
        """The running brokers."""
        return [broker for broker in self.brokers if broker.process is not None]

    def metadata(self, *topics: str) -> Any:
        """Metadata (version 7) of the first broker that responds; no topics: all."""
        for broker in self.running():
            try:
                with broker.wire() as wire:
                    return wire.metadata(*topics)
            except (OSError, EOFError):
                continue
        raise AssertionError("no broker of the cluster answers")

    def partition(self, topic: str, partition: int = 0) -> Any:
        """The partition's row of Metadata (`leader_id`, `leader_epoch`, `isr_nodes`, …), None if there is none."""
        rows = self.metadata(topic).topics[0].partitions
        return next((row for row in rows if row.partition_index == partition), None)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the leader; -1 without one."""
        row = self.partition(topic, partition)
        return row.leader_id if row is not None else -1

    def wait_leader(self, topic: str, partition: int = 0, *, other_than: int = -1, seconds: float = 60) -> int:
        """The leader's id, as soon as there is a leader other than `other_than`."""
        found: list[int] = []

        def led() -> bool:
            found[:] = [self.leader(topic, partition)]
            return found[0] not in (-1, other_than)

        wait_until(led, seconds, f"a leader of {topic}-{partition} other than {other_than}")
        return found[0]

    def wait_isr(self, topic: str, partition: int, size: int, seconds: float = 60) -> list[int]:
        """The ids of the in-sync replicas, as soon as there are `size` of them."""

        def in_sync() -> list[int]:
            row = self.partition(topic, partition)
            return list(row.isr_nodes) if row is not None and len(row.isr_nodes) == size else []

        return wait_until(in_sync, seconds, f"{size} in-sync replicas of {topic}-{partition}")


def _all_of(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls at once and wait for all; raises the first error."""
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(call) for call in calls]
    for one in done:
        one.result()
