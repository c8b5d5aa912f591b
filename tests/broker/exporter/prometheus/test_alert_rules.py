"""The alert rules fire when they should, by Prometheus' own tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from .panels import METRICS

RULES, CASES = METRICS / "alerts.yml", Path(__file__).with_name("alerts.test.yml")


@pytest.mark.live
@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("words", [("check", "rules", RULES), ("test", "rules", CASES)], ids=lambda words: words[0])
def test_promtool_agrees(words: tuple[str | Path, ...]) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_each_alert_has_a_case_that_fires() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    cases = [one for test in yaml.safe_load(CASES.read_text())["tests"] for one in test["alert_rule_test"]]
    for fires in (True, False):
        found = {one["alertname"] for one in cases if bool(one["exp_alerts"]) is fires}
        assert found == {rule["alert"] for group in groups for rule in group["rules"]}
