"""SIGKILL during adoption: the next start continues, and the outcome is that of an undisturbed adoption.

`ODRADEK_TEST_SEED` repeats the moments of the random kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.cluster.configs.adopted_configs import UNKNOWN_RETENTION

from ..faults.failpoints.arming import Arming
from ..harness.process import die_with_parent, wait_until
from . import adopting
from .adopting import Described, Filled

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]

# Steps of the controller process during and after adoption, in order, as named in failpoints/points.py.
STEPS = (
    "metadata.before-commit", "metadata.after-commit", "metadata.before-slot", "metadata.after-slot",
    "metadata.before-publish", "metadata.region-made", "metadata.after-publish",
)  # fmt: skip
ODRADEK = [sys.executable, "-m", "odradek.broker"]
DELETED = "-delete"  # Kafka's suffix of deleted logs
LONGEST_S = 3.0  # for a start, on a machine that is not very busy
RANDOM = 6


class Outcome(NamedTuple):
    """The outcome of an adoption."""

    said: Described
    unknown: list[str]
    directories: list[str]


def outcome(broker: Any) -> Outcome:
    found = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    kept = [path.name for path in broker.data_dir.iterdir() if path.is_dir() and not path.name.endswith(DELETED)]
    return Outcome(adopting.describe(broker.bootstrap), found["unknown_retention"], sorted(kept))


def lost(before: Path, after: Path) -> list[str]:
    """Kafka's logs that are missing or changed, except those that Kafka had marked as deleted."""
    logs = [path for path in before.glob("*-*/*.log") if not path.parent.name.endswith(DELETED)]
    same = lambda path: path.is_file() and path.read_bytes()  # noqa: E731
    return [str(path) for path in logs if same(after / path.relative_to(before)) != path.read_bytes()]


@pytest.fixture(scope="module")
def undisturbed(kafka: Filled, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    from ..harness.broker import Broker

    folder = tmp_path_factory.mktemp("undisturbed")
    broker = adopting.adopted(lambda **given: Broker(folder), kafka.killed, folder).start()
    try:
        return outcome(broker)
    finally:
        broker.close()


def check(broker: Any, kafka: Filled, undisturbed: Outcome) -> None:
    broker.start()
    assert outcome(broker) == undisturbed
    assert lost(kafka.killed, broker.data_dir) == []
    assert "Traceback" not in broker.log
    assert undisturbed.unknown == []


@pytest.fixture
def broker(kafka: Filled, fresh_broker: Any, tmp_path: Path) -> Any:
    """A broker on the directory of a killed Kafka, not started."""
    return adopting.adopted(fresh_broker, kafka.killed, tmp_path)


@pytest.fixture
def arming(broker: Any, tmp_path: Path) -> Iterator[Arming]:
    made = Arming(tmp_path / "failpoints")
    broker.env |= made.environment()
    yield made
    made.disarm()


def test_adoption_completes_after_kills_at_each_step(
    broker: Any, arming: Arming, kafka: Filled, undisturbed: Outcome
) -> None:  # fmt: skip
    """All processes are killed when the controller has reached the step; each start continues the adoption."""
    for step in STEPS:
        arming.arm(step, action=signal.SIGSTOP)
        broker.launch()
        wait_until(lambda step=step: arming.fired(step), 60, step)  # type: ignore[misc]  # a default in a lambda
        broker.kill()
    check(broker, kafka, undisturbed)


def test_adoption_completes_after_kills_of_the_controller(
    broker: Any, arming: Arming, kafka: Filled, undisturbed: Outcome
) -> None:  # fmt: skip
    """The next controller process continues, while the broker keeps running."""
    for step in STEPS[:3]:
        arming.arm(step)
    check(broker, kafka, undisturbed)
    assert all(map(arming.fired, STEPS[:3]))


@pytest.mark.long
def test_adoption_completes_after_kills_at_random_moments(
    kafka: Filled, undisturbed: Outcome, fresh_broker: Any, tmp_path: Path
) -> None:
    seed = int(os.environ.get("ODRADEK_TEST_SEED", random.randrange(1 << 32)))
    print(f"ODRADEK_TEST_SEED={seed}")
    rng = random.Random(seed)
    for number in range(RANDOM):
        broker = adopting.adopted(fresh_broker, kafka.killed, tmp_path / str(number))
        for _ in range(rng.randrange(1, 4)):
            broker.launch()
            time.sleep(rng.uniform(0, LONGEST_S))
            broker.kill()
        check(broker, kafka, undisturbed)
        broker.stop()


def test_kill_during_adopt_defaults_leaves_each_topic_consistent(
    kafka: Filled, fresh_broker: Any, tmp_path: Path
) -> None:
    """A topic has all configs that keep its records, or none; a second run of the command completes the change."""
    broker = adopting.adopted(fresh_broker, adopting.without_metadata(kafka.killed, tmp_path), tmp_path).start()
    words = ["adopt", "--bootstrap-server", broker.bootstrap, "--defaults"]
    with subprocess.Popen([*ODRADEK, *words], stderr=subprocess.DEVNULL, preexec_fn=die_with_parent) as asking:
        changes = Path(broker.data_dir, "odradek-metadata.db-wal")
        size = changes.stat().st_size if changes.exists() else 0
        while asking.poll() is None and (not changes.exists() or changes.stat().st_size == size):
            pass
        broker.kill()
        asking.kill()
    broker.start()
    for name, configs in adopting.describe(broker.bootstrap).configs.items():
        kept = {key: configs[key][0] for key in UNKNOWN_RETENTION if key in configs and "TOPIC" in configs[key][1]}
        assert kept in ({}, UNKNOWN_RETENTION), name
    assert broker.command(*words).returncode == 0
    assert outcome(broker).unknown == []
