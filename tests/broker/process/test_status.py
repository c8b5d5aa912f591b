"""What `odradek status` says of a broker that does not serve yet."""

from __future__ import annotations

from typing import Any

from odradek.broker.process import status


def sample(**given: Any) -> status.Sample:
    empty: dict[str, Any] = {
        "data_dir": "/d", "run_dir": "/r", "listeners": ["l"], "advertised": [], "metadata_version": 1, "ready": False,
        "processes": [], "partitions": [],
    }  # fmt: skip
    return status.Sample(**(empty | given))


def test_a_start_names_what_it_waits_for() -> None:
    logs = [f"t-{number}" for number in range(12)]
    lines = status.render(sample(starting=["controller", "worker-0"], recovering=logs)).splitlines()
    assert lines[1] == f"to recover: {', '.join(logs[:10])} and 2 more"
    assert lines[2] == "starting: controller, worker-0"


def test_a_start_whose_logs_are_recovered_names_processes_only() -> None:
    assert status.render(sample(starting=["controller"])).splitlines()[1] == "starting: controller"


def test_a_broker_that_serves_waits_for_nothing() -> None:
    assert not any("starting" in line for line in status.render(sample(ready=True)).splitlines())
