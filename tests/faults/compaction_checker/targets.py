"""The brokers of a run, one or a cluster of three, and the faults that are injected into them."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from odradek.storage.tools import check

from ...cluster.chaos import admin_requests
from ...harness.broker import Broker
from ...harness.cluster import Cluster
from ...harness.process import wait_until
from ...harness.wire import Wire
from .committer import Committer
from .writers import PARTITIONS, Forgetful, Holding, Plain, Transactional, Writer

TOPIC = "compacted"
CONFIG = {
    "cleanup.policy": "compact", "segment.bytes": "8000", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300", "index.interval.bytes": "500",
}  # fmt: skip
BROKER: dict[str, Any] = {
    "log_cleaner_backoff_ms": 50, "log_cleaner_min_cleanable_ratio": 0.01, "log_segment_delete_delay_ms": 200,
    "offsets_topic_segment_bytes": 5000, "transaction_state_log_segment_bytes": 5000, "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 2, "auto_create_topics_enable": "false",
}  # fmt: skip
_ROLES = ("janitor", "worker", "coordinator")
_WAIT_S = 90


class OneBroker:
    """A broker of two workers."""

    replicas, config = 1, CONFIG
    kinds: tuple[type[Writer], ...] = (
        Plain, Forgetful, Transactional, Transactional, Holding, Committer, Committer,
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._broker = Broker(folder, **BROKER)
        self.wire, self.start, self.close = self._broker.wire, self._broker.start, self._broker.close

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def harm(self, rng: random.Random) -> str:
        """Inject a fault; returns its name."""
        kinds: dict[str, Callable[[], object]] = {
            **{f"the {role} killed": lambda role=role: self._kill(role, rng) for role in _ROLES},  # type: ignore[misc]  # a default in a lambda
            "the broker killed": lambda: self._broker.restart(kill=True),
            "the broker restarted": self._broker.restart,
        }
        kind = rng.choice([*list(kinds)[:3] * 2, *kinds])
        wait_until(lambda: all(self._broker.pids(role) for role in _ROLES), 60, "all run")
        wait_until(lambda: len(self._broker.pids("worker")) == 2, 60, "both workers run")
        kinds[kind]()
        return kind

    def _kill(self, role: str, rng: random.Random) -> None:
        self._broker.kill_role(role, rng.randrange(2) if role == "worker" else 0)

    def settle(self) -> None:
        """Wait until readers see all acknowledged records; with one broker they always do."""

    def finish(self, compare: Callable[[], None]) -> list[str]:
        """Compare before and after a restart; the faults that `odradek check` finds then."""
        compare()
        self._broker.restart()
        compare()
        self._broker.stop()
        return [str(fault) for fault in check.check(self._broker.data_dir, deep=True)]

    def rounds(self) -> int:
        """The number of compactions."""
        return _rounds(self._broker)


class ThreeBrokers:
    """A cluster in which every partition has three replicas and needs two."""

    replicas = 3
    # All idempotent: else a retry after a leader change may store a record twice (as with Kafka).
    kinds: tuple[type[Writer], ...] = (Plain, Plain, Transactional, Transactional, Holding)
    # A follower that is down for longer misses tombstones, and keeps the records that they delete (as with Kafka).
    config = {**CONFIG, "min.insync.replicas": "2", "delete.retention.ms": "20000"}

    def __init__(self, folder: Path) -> None:
        self._cluster = Cluster(
            folder,
            zookeeper_session_timeout_ms=2000,
            zookeeper_connection_timeout_ms=18_000,
            min_insync_replicas=2,
            **BROKER,
        )
        self.start, self.close = self._cluster.start, self._cluster.stop

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def wire(self, timeout: float = 15) -> Wire:
        """A connection to the first broker that runs."""
        return self._cluster.running()[0].wire(timeout)

    def harm(self, rng: random.Random) -> str:
        """Inject a fault; returns its name."""
        number = rng.randrange(3)
        kinds: dict[str, Callable[[], object]] = {
            "a broker killed": lambda: self._kill_broker(number, rng.choice([0.0, 1.0, 4.0])),
            "a broker restarted": lambda: self._cluster.restart(number),
            "leaders moved": lambda: self._move(rng),
            **{f"a {role} killed": lambda role=role: self._kill(number, role) for role in (*_ROLES, "replicator")},  # type: ignore[misc]  # a default in a lambda
        }
        kind = rng.choice([*list(kinds)[:3] * 2, *kinds])
        kinds[kind]()
        return kind

    def _kill_broker(self, number: int, pause_s: float) -> None:
        self._cluster.kill(number)
        time.sleep(pause_s)  # after its session expires, another broker leads
        self._cluster.broker(number).start()

    def _kill(self, number: int, role: str) -> None:
        broker = self._cluster.broker(number)
        wait_until(lambda: broker.pids(role), _WAIT_S, f"{role} runs")
        broker.kill_role(role)

    def _move(self, rng: random.Random) -> None:
        """Each partition's leader becomes another of its replicas, where the controller can do that."""
        wanted = {(TOPIC, index): rng.sample(range(3), 3) for index in range(PARTITIONS)}
        try:
            controller = self._cluster.metadata().controller_id
            with self._cluster.broker(controller).wire() as wire:
                admin_requests.reassign(wire, wanted)
                admin_requests.elect(wire, admin_requests.PREFERRED, wanted)
        except (OSError, EOFError):
            pass  # the controller has just died

    def settle(self) -> None:
        """Wait until all replicas are in sync: only then does the high watermark of a new leader reach its log end."""
        for index in range(PARTITIONS):
            self._cluster.wait_isr(TOPIC, index, len(self._cluster.running()), _WAIT_S)
        for broker in self._cluster.running():
            wait_until(lambda one=broker: _all_visible(one), _WAIT_S, "the high watermarks")  # type: ignore[misc]  # a default in a lambda

    def finish(self, compare: Callable[[], None]) -> list[str]:
        """Compare with all brokers, and with each one alone; the faults that `odradek check` finds then."""
        compare()
        for number in range(3):
            self.settle()
            others = [one for one in range(3) if one != number]
            for one in others:
                self._cluster.broker(one).stop()
            compare()
            for one in others:
                self._cluster.broker(one).start()
        brokers = self._cluster.running()
        self.settle()
        for broker in brokers:
            broker.stop()
        return [str(fault) for one in brokers for fault in check.check(one.data_dir, deep=True)]

    def rounds(self) -> int:
        """The number of compactions on all brokers."""
        return sum(_rounds(broker) for broker in self._cluster.brokers)


def _all_visible(broker: Broker) -> bool:
    """Whether the high watermark is at the log end in every partition that this broker leads."""
    told = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    rows: Iterable[dict[str, object]] = told["partitions"]
    return all(row.get("high_watermark") == row.get("log_end") for row in rows if row["topic"] == TOPIC)


def _rounds(broker: Broker) -> int:
    return len(re.findall(r"-\d+: compacted up to offset", broker.log))
