"""The report on the output of a conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import conformance

KCAT = conformance.SUITES[0]
FRANZ_GO = conformance.SUITES[-1]


def test_counts_of_a_passing_suite_are_parsed() -> None:
    found = conformance.parse(KCAT, "logs: here\nPASSED metadata\n13 passed, 0 failed, 1 skipped\n")
    assert (found.passed, found.failed, found.skipped, found.names) == (13, 0, 1, ())
    assert found.row("now").endswith("| now | 13 | 0 | 1 | – |")


@pytest.mark.live
def test_report_explains_each_failure_or_marks_it_as_unexplained() -> None:
    found = conformance.parse(KCAT, "FAILED quorum (rc 1) x\nFAILED TestNew/a|b\n0 passed, 2 failed, 0 skipped\n")
    assert found.names == ("quorum", "TestNew/a|b")
    told = conformance.report([found])
    assert "quorum: a cluster on ZooKeeper has no quorum" in told and "TestNew/a/b: **not explained**" in told


@pytest.mark.live
def test_report_keeps_rows_of_suites_that_did_not_run() -> None:
    first, second = (conformance.parse(suite, "1 passed, 0 failed, 0 skipped") for suite in conformance.SUITES[:2])
    again = conformance.parse(conformance.SUITES[0], "2 passed, 0 failed, 0 skipped")
    told = conformance.report([again], conformance.report([second, first]))
    rows = [line.split(" | ")[2] for line in told.splitlines() if line.startswith("| kcat")]
    assert rows == ["2", "1"]


def test_suite_without_counts_is_an_error() -> None:
    with pytest.raises(ValueError, match="kcat did not say how many passed"):
        conformance.parse(KCAT, "setup failed")


def test_script_is_of_the_given_folder_or_else_of_ours(tmp_path: Path) -> None:
    assert conformance.script_of(FRANZ_GO, tmp_path) == conformance.OWN / "franz-go.sh"
    assert conformance.script_of(FRANZ_GO, tmp_path).exists()
    given = tmp_path / "franz-go.sh"
    given.touch()
    assert conformance.script_of(FRANZ_GO, tmp_path) == given
