"""The overrides of a topic whose retention is unknown: some changes set it, others keep it unknown."""

from __future__ import annotations

import pytest

from odradek.cluster.configs.adopted_configs import MARK, UNKNOWN_RETENTION, altered, is_marked

WITH_MORE = {**UNKNOWN_RETENTION, "segment.bytes": "5000"}


def test_topic_without_mark_is_unchanged() -> None:
    assert altered({"retention.ms": "5"}, {"segment.bytes": "9"}, ["segment.bytes"]) == {"segment.bytes": "9"}


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
@pytest.mark.parametrize("value", ["given", None])
def test_setting_a_retention_config_removes_mark(name: str, value: str | None) -> None:
    wanted = {key: text for key, text in WITH_MORE.items() if key != name} | ({name: value} if value else {})
    found = altered(WITH_MORE, wanted, [name])
    assert found == {key: text for key, text in wanted.items() if key != MARK}


def test_other_change_keeps_mark() -> None:
    assert altered(UNKNOWN_RETENTION, WITH_MORE, ["segment.bytes"]) == WITH_MORE


def test_replacing_other_overrides_keeps_mark() -> None:
    """An AlterConfigs of only max.message.bytes must not apply the broker's default retention."""
    assert altered(UNKNOWN_RETENTION, {"segment.bytes": "5000"}, ["segment.bytes"]) == WITH_MORE


def test_resent_configs_count_only_where_they_differ() -> None:
    """Old tools send back all configs that they have read."""
    assert altered(UNKNOWN_RETENTION, WITH_MORE, list(WITH_MORE)) == WITH_MORE
    changed = {**WITH_MORE, "retention.ms": "1000"}
    found = altered(UNKNOWN_RETENTION, changed, list(changed))
    assert found["retention.ms"] == "1000" and not is_marked(found)


@pytest.mark.parametrize("wanted", [{"retention.ms": "-1", MARK: "false"}, {"retention.ms": "-1"}])
def test_removed_mark_keeps_other_overrides(wanted: dict[str, str]) -> None:
    assert altered(UNKNOWN_RETENTION, wanted, [MARK]) == {"retention.ms": "-1"}
