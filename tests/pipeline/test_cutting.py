"""Settings by which Spark would give a repeated batch other tasks; `faults/test_redo_cutting` has Spark do it."""

from __future__ import annotations

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.writing import cutting
from odradek.pipeline.writing.cutting import ADAPTIVE, PARTITIONS

OFF = {ADAPTIVE: "false"}
FIRST = "spark.sql.streaming.internal.stateStore.partitions"


@pytest.mark.parametrize(
    "settings",
    [
        OFF,
        {"spark.sql.adaptive.enabled": "false"},  # Spark sets it for stateful queries, and before 4.1 for all
        {ADAPTIVE: " FALSE "},
        OFF | {FIRST: "7", PARTITIONS: "7"},
        OFF | {FIRST: "7", PARTITIONS: " 07 "},
        OFF | {FIRST: "200"},
        OFF | {PARTITIONS: "7"},  # before 4.1 the checkpoint has the number
    ],
)
def test_settings_that_keep_the_tasks_of_a_batch_are_accepted(settings: dict[str, str]) -> None:
    cutting.check(settings.get)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, f"set {ADAPTIVE}=false"),
        ({ADAPTIVE: "true"}, f"set {ADAPTIVE}=false"),
        (OFF | {FIRST: "7", PARTITIONS: "8"}, f"{PARTITIONS} is 8 but was 7 in the stream's first batch"),
        (OFF | {FIRST: "7"}, f"{PARTITIONS} is 200 but was 7"),
    ],
)
def test_settings_that_may_change_the_tasks_of_a_batch_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError, match=why) as told:
        cutting.check(settings.get)
    assert "\n" not in str(told.value)
