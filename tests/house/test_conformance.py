"""What is made of what a suite prints."""

from __future__ import annotations

import pytest

from .. import conformance

KCAT = conformance.SUITES[0]


def test_a_suite_that_passes() -> None:
    found = conformance.parse(KCAT, "logs: here\nPASSED metadata\n13 passed, 0 failed, 1 skipped\n")
    assert (found.passed, found.failed, found.skipped, found.names) == (13, 0, 1, ())
    assert found.row().endswith("| 13 | 0 | 1 | – |")


@pytest.mark.live
def test_each_failure_has_its_reason_or_says_that_it_has_none() -> None:
    found = conformance.parse(KCAT, "FAILED acl-add (rc 1) x\nFAILED TestNew/a|b\n0 passed, 2 failed, 0 skipped\n")
    assert found.names == ("acl-add", "TestNew/a|b")
    told = conformance.report([found])
    assert "acl-add: there is no authorizer yet" in told and "TestNew/a/b: **not explained**" in told


def test_a_suite_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="kcat did not say how many passed"):
        conformance.parse(KCAT, "setup failed")
