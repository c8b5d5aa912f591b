"""The APIs that Apache Kafka serves with KRaft only, with the same ACLs at Kafka 4.1 and at our broker.

As test_every_api_as_kafka: the client that is compared connects from 127.0.0.2, and the ACLs that vary are for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.security.acls.acl_types import ResourceType

from ...harness.apache import Apache
from ...harness.broker import Broker
from .every_api import MISSING, OTHER, TOPIC, Request
from .test_every_api_as_kafka import ALL, AUTHORIZER, BROKERS, EACH, NAMES, Acl, Case, Side, cases

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("java-4.1.0")]


def _topics(*names: str, limit: int = 100) -> Request:
    fields = {"topics": [("TopicRequest", {"name": name}) for name in names], "response_partition_limit": limit}
    return Request("DescribeTopicPartitions", (0,), {**fields, "cursor": None})


REQUESTS = (
    Request("ListConfigResources", (0, 1), {"resource_types": []}),
    Request("ListConfigResources", (1,), {"resource_types": [2, 4, 8]}),
    _topics(TOPIC, OTHER, MISSING),
    _topics(),
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Brokers at which the client may do nothing without an ACL; the administrator may do everything."""
    folder = tmp_path_factory.mktemp("kraft")
    more = {"allow_everyone_if_no_acl_found": "true"}  # until the administrator has ACLs
    kafka = Apache(
        "4.1.0",
        folder,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        **more,
    )
    broker = Broker(folder / "ours", authorizer_class_name=AUTHORIZER, **more)
    broker.set(offsets_topic_num_partitions=4, transaction_state_log_num_partitions=2)  # as Apache has them
    try:
        kafka.start()
        broker.start()
        both = Side(broker.bootstrap), Side(kafka.bootstrap)
        for side in both:
            side.add(Acl(kind, _whole(kind), ALL, host=BROKERS) for kind in NAMES)
        yield both
        for side in both:
            side.close()
    finally:
        broker.close()
        kafka.stop()


def _whole(kind: ResourceType) -> str:
    return "kafka-cluster" if kind is ResourceType.CLUSTER else "*"


def played(side: Side, case: Case) -> dict[tuple[int, int], Any]:
    """What the client sees with these ACLs, by version and place among the requests."""
    side.set_acls(case)
    return {
        (version, place): side.ask(request, version)
        for place, request in enumerate(REQUESTS)
        for version in request.versions
    }


@pytest.mark.timeout(900)
def test_answers_with_each_acl_equal_kafkas(sides: tuple[Side, Side]) -> None:
    of_these = [case for case in cases() if {acl.kind for acl in case} <= {ResourceType.TOPIC, ResourceType.CLUSTER}]
    seen = []
    for case in of_these[:: max(1, EACH // 2)]:  # with fewer of them, the ACLs hardly make a difference
        ours, theirs = (played(side, case) for side in sides)
        assert ours == theirs, case
        seen.append(repr(ours))
    assert len(set(seen)) > 10, "the ACLs make a difference"
