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

    Start it from the thread that outlives it, as a Broker. Marks of tests that use it: `needs("java-3.9.1")`.
    """

    def __init__(self, folder: Path, brokers: int = 3, **overrides: Any) -> None:
        """`overrides` are server properties of all brokers, with `_` for `.`; a `None` removes a default."""
        self.zookeeper = ZooKeeper(folder / "zookeeper", TICK_MS)
        replicas = min(3, brokers)
        properties = {
            "zookeeper_connect": self.zookeeper.connect,
            "zookeeper_session_timeout_ms": SESSION_MS,
            "odradek_workers": 1,
            "controlled_shutdown_retry_backoff_ms": 200,  # or all of a cluster stopped at once take their time
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
        } | overrides
        self.brokers = [Broker(folder / f"broker-{i}", broker_id=i, **properties) for i in range(brokers)]

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- life

    def start(self, prepare: Callable[[ZooKeeper], None] | None = None) -> Cluster:
        """Start ZooKeeper, then all brokers at once; AssertionError with the log of what did not start.

        `prepare` is called between.
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
        """SIGKILL the broker's supervisor; returns when its children are dead too."""
        self.brokers[broker_id].kill()

    def restart(self, broker_id: int, *, kill: bool = False, **overrides: Any) -> Broker:
        """Start the broker again, on the same port and data; it is stopped, or killed, first if it runs."""
        return self.brokers[broker_id].restart(kill=kill, **overrides)

    def stop(self) -> None:
        """Stop the brokers that run, all at once, then ZooKeeper; asserts what `Broker.stop` does of each."""
        try:
            _all_of(broker.close for broker in self.brokers)
        finally:
            self.zookeeper.kill()

    def _destroy(self) -> None:
        """End what was started, when the error of that start is what counts."""
        for broker in self.brokers:
            if broker.process is not None:
                broker.kill()
        self.stop()

    # -- looking inside

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, broker_id: int) -> Broker:
        """The broker with an id, whether it runs or not."""
        return self.brokers[broker_id]

    def running(self) -> list[Broker]:
        """The brokers that run."""
        return [broker for broker in self.brokers if broker.process is not None]

    def metadata(self, *topics: str) -> Any:
        """What the first broker that answers says (Metadata version 7); no topics: all."""
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
        """The id of the broker that leads; -1 while none does."""
        row = self.partition(topic, partition)
        return row.leader_id if row is not None else -1

    def wait_leader(self, topic: str, partition: int = 0, *, other_than: int = -1, seconds: float = 60) -> int:
        """The leader's id, as soon as there is one that is not `other_than`."""
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
    """Do all at once, each to its end; the first error, if any."""
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(call) for call in calls]
    for one in done:
        one.result()
