"""The overrides of a topic whose retention is not known: what ends that, and what does not."""

from __future__ import annotations

import pytest

from odradek.cluster.configs.adopted_configs import MARK, UNKNOWN_RETENTION, altered, is_marked

WITH_MORE = {**UNKNOWN_RETENTION, "segment.bytes": "5000"}


def test_a_topic_without_the_mark_is_what_is_wanted() -> None:
    assert altered({"retention.ms": "5"}, {"segment.bytes": "9"}, ["segment.bytes"]) == {"segment.bytes": "9"}


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
@pytest.mark.parametrize("value", ["given", None])
def test_naming_one_of_the_three_ends_it(name: str, value: str | None) -> None:
    wanted = {key: text for key, text in WITH_MORE.items() if key != name} | ({name: value} if value else {})
    found = altered(WITH_MORE, wanted, [name])
    assert found == {key: text for key, text in wanted.items() if key != MARK}


def test_any_other_change_does_not() -> None:
    assert altered(UNKNOWN_RETENTION, WITH_MORE, ["segment.bytes"]) == WITH_MORE


def test_replacing_all_overrides_by_others_does_not() -> None:
    """As an AlterConfigs of max.message.bytes alone does: it would leave the broker's default retention."""
    assert altered(UNKNOWN_RETENTION, {"segment.bytes": "5000"}, ["segment.bytes"]) == WITH_MORE


def test_sending_back_what_was_read_says_only_what_differs() -> None:
    """As old tools do, which replace all that they have read."""
    assert altered(UNKNOWN_RETENTION, WITH_MORE, list(WITH_MORE)) == WITH_MORE
    changed = {**WITH_MORE, "retention.ms": "1000"}
    found = altered(UNKNOWN_RETENTION, changed, list(changed))
    assert found["retention.ms"] == "1000" and not is_marked(found)


@pytest.mark.parametrize("wanted", [{"retention.ms": "-1", MARK: "false"}, {"retention.ms": "-1"}])
def test_taking_away_the_mark_keeps_the_rest(wanted: dict[str, str]) -> None:
    assert altered(UNKNOWN_RETENTION, wanted, [MARK]) == {"retention.ms": "-1"}
