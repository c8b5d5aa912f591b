"""What a broker offers as an Apache Kafka of some version: the APIs of both, and what brokers need of each other."""

from __future__ import annotations

import pytest

from odradek.workers.apis import table

PRODUCE, FETCH, STOP_REPLICA, DESCRIBE_GROUPS = 0, 1, 5, 15


@pytest.mark.parametrize(("like", "produce", "fetch"), [("3.9", (0, 11), (0, 17)), ("4.1", (0, 13), (4, 18))])
def test_versions_are_those_that_both_offer(like: str, produce: tuple[int, int], fetch: tuple[int, int]) -> None:
    own, offered = table.served(False), table.served(False, like)
    assert offered[PRODUCE].versions == (0, min(produce[1], own[PRODUCE].versions[1]))
    assert offered[FETCH].versions == (fetch[0], min(fetch[1], own[FETCH].versions[1]))
    assert offered[PRODUCE].fast_path is own[PRODUCE].fast_path
    for key, row in offered.items():
        first, last = own[key].versions
        assert first <= row.versions[0] <= row.versions[1] <= last


@pytest.mark.parametrize(("like", "served"), [("3.9", [0, 2, 3]), ("4.1", [3])])
def test_produce_is_served_from_the_version_of_that_kafka(like: str, served: list[int]) -> None:
    """4.1.0 offers it from 0 for librdkafka (KAFKA-18659); asked, it ends the connection."""
    produce = table.served(False, like)[PRODUCE]
    assert [version for version in (0, 2, 3) if produce.serves(version)] == served
    assert produce.versions[0] == 0


def test_newer_versions_of_this_broker_are_not_offered() -> None:
    assert table.served(False)[DESCRIBE_GROUPS].versions[1] == 6
    assert table.served(False, "3.9")[DESCRIBE_GROUPS].versions[1] == 5


@pytest.mark.parametrize("like", ["3.9", "4.1"])
def test_requests_between_brokers_stay(like: str) -> None:
    assert table.served(True, like)[STOP_REPLICA] == table.served(True)[STOP_REPLICA]
    assert STOP_REPLICA not in table.served(False, like)
