"""What a log handler says of drops and failures, and when."""

from __future__ import annotations

from collections import Counter

from odradek.loghandler.reports import Reports

START = "odradek.logging: topic logs: "


def reports() -> Reports:
    return Reports("logs", 60.0)


def test_nothing_is_said_while_all_is_well() -> None:
    made = reports()
    made.answered()
    assert made.line(Counter(), 0, 0.0) is None and made.seconds(Counter(), 0.0) is None
    assert made.last_line(Counter()) is None


def test_first_drop_is_said_at_once_and_later_ones_once_a_period() -> None:
    made = reports()
    assert made.line(Counter(full=1), 5, 100.0) == f"{START}1 record dropped: 1 full"
    assert made.line(Counter(full=9), 5, 159.0) is None and made.seconds(Counter(full=9), 159.0) == 1.0
    assert made.line(Counter(full=9, large=1), 5, 160.0) == f"{START}9 records dropped: 8 full, 1 large"
    assert made.line(Counter(full=9, large=1), 5, 500.0) is None


def test_short_failure_is_not_said() -> None:
    made = reports()
    made.failed("refused", 10.0)
    assert made.line(Counter(), 1, 10.9) is None and made.seconds(Counter(), 10.75) == 0.25
    made.answered()
    assert made.line(Counter(), 1, 12.0) is None


def test_failure_is_said_once_a_period_and_its_end_at_once() -> None:
    made = reports()
    made.failed("refused", 10.0)
    assert made.line(Counter(), 2, 11.0) == f"{START}cannot send: refused; 2 records wait"
    made.failed("late", 30.0)
    assert made.line(Counter(full=4), 9, 70.9) is None
    assert made.line(Counter(full=4), 9, 71.0) == f"{START}cannot send: late; 9 records wait; 4 records dropped: 4 full"
    made.answered()
    assert made.seconds(Counter(full=5), 72.0) == 0
    assert made.line(Counter(full=5), 0, 72.0) == f"{START}sends again; 1 record dropped: 1 full"
    assert made.line(Counter(full=5), 0, 200.0) is None


def test_failure_is_said_though_a_drop_was_said_just_before() -> None:
    made = reports()
    made.failed("refused", 10.0)
    assert made.line(Counter(full=1), 2, 10.5) == f"{START}1 record dropped: 1 full"
    line = made.line(Counter(full=3), 2, 11.0)
    assert line == f"{START}cannot send: refused; 2 records wait; 2 records dropped: 2 full"


def test_reason_of_a_refusal_is_said_with_the_drops() -> None:
    made = reports()
    made.refused("Compacted topic cannot accept message without key")
    assert made.line(Counter(refused=1), 0, 0.0) == (
        f"{START}1 record dropped: 1 refused; Compacted topic cannot accept message without key"
    )


def test_last_line_has_the_drops_that_no_line_had() -> None:
    made = reports()
    made.line(Counter(full=1), 5, 100.0)
    assert made.last_line(Counter(full=1)) is None
    made.failed("refused", 101.0)
    assert made.last_line(Counter(full=1, closed=2)) == f"{START}cannot send: refused; 2 records dropped: 2 closed"


def test_record_about_drops_waits_for_a_broker_that_answers() -> None:
    made = reports()
    assert not made.report_due(3, 0.0) and made.report_seconds(3, 0.0) is None
    made.answered()
    assert made.report_due(3, 0.0) and not made.report_due(0, 0.0)
    made.report_made(0.0)
    assert not made.report_due(3, 59.0) and made.report_seconds(3, 59.0) == 1.0
    assert made.report_due(3, 60.0)
    made.report_made(60.0)
    made.hurry()
    assert made.report_due(3, 61.0)
    made.failed("refused", 61.0)
    assert not made.report_due(3, 200.0)
