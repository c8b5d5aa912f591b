"""`odradek status` of a broker that does not serve yet."""

from __future__ import annotations

import json
from typing import Any

from odradek.broker.findings.findings import Finding
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
    assert lines[3] == f"to recover: {', '.join(logs[:10])} and 2 more"
    assert lines[4] == "starting: controller, worker-0"


def test_a_start_whose_logs_are_recovered_names_processes_only() -> None:
    assert status.render(sample(starting=["controller"])).splitlines()[3] == "starting: controller"


def test_a_broker_that_serves_waits_for_nothing() -> None:
    assert not any("starting" in line for line in status.render(sample(ready=True)).splitlines())


def test_what_is_wrong_comes_first() -> None:
    assert status.render(sample(ready=True)).splitlines()[:2] == ["nothing is wrong", ""]
    late = Finding("certificate", "warning", "a certificate expires in 9 days", "odradek tls renew")
    lines = status.render(sample(ready=True, findings=[late])).splitlines()
    assert lines[:4] == ["WARNING: a certificate expires in 9 days", "  to do: odradek tls renew", "", lines[3]]
    assert lines[3].startswith("serving on l")


def test_json_has_the_findings_as_a_list() -> None:
    late = Finding("certificate", "warning", "a certificate expires in 9 days", "odradek tls renew")
    assert json.loads(json.dumps(sample(findings=[late]).as_json()))["findings"] == [late.as_json()]
