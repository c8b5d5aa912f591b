"""`odradek scale`: 1 → 4 → 1 under clients that never retry, without one error."""

from __future__ import annotations

from typing import Any

import pytest

from ..harness.process import wait_until
from .acknowledged import Load

pytestmark = pytest.mark.live


def scale(broker: Any, workers: int) -> None:
    """Request `workers` and wait until so many run."""
    done = broker.command("scale", "--workers", str(workers), "--override", f"log.dirs={broker.data_dir}")
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: len(broker.pids("worker")) == workers, 60, f"{workers} workers")


@pytest.mark.timeout(180)
def test_clients_without_retries_get_no_error_while_workers_scale(fresh_broker: Any) -> None:
    """The first worker and its connections stay, so retries=0 suffices."""
    broker = fresh_broker(odradek_workers=1)
    load = Load(broker, **{"enable.idempotence": False, "retries": 0})
    load.await_more()
    first = broker.pids("worker")
    for workers in (4, 1, 3, 1):
        scale(broker, workers)
        load.await_more()
        assert broker.pids("worker")[0] == first[0], "the first worker stays"
    load.verify()


@pytest.mark.timeout(180)
def test_retired_worker_loses_and_duplicates_no_record(fresh_broker: Any) -> None:
    """Clients of a retired worker reconnect and retry."""
    broker = fresh_broker(odradek_workers=4)
    loads = [Load(broker) for _ in range(4)]
    for workers in (1, 4, 2):
        for load in loads:
            load.await_more()
        scale(broker, workers)
    for load in loads:
        load.await_more()
        load.verify()
