"""Apache Kafka 3.9.1 and we give the same administrative requests equal answers, except for messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.library import message_class as message

from ..harness.apache import Apache
from ..harness.broker import Broker, ExternalBroker
from ..harness.process import wait_until
from ..harness.wire import Wire

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

NO_ID = UUID(int=0)
READS = {3, 32, 35, 43, 45, 60, 75}
_MESSAGE = re.compile(r"error_message=(\"[^\"]*\"|'[^']*')")
_IDS = re.compile(r"UUID\('[^']*'\)|(cluster_id|log_dir)='[^']*'|(total|usable)_bytes=\d+")


@pytest.fixture(scope="module")
def both(
    broker: Broker | ExternalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Any], tuple[str, str]]]:
    """A function that returns the answers of Kafka and of us to a request, without the fields that must differ."""
    apache = Apache("3.9.1", tmp_path_factory.mktemp("apache")).start()
    try:
        with Wire(apache.bootstrap, 60) as theirs, Wire(broker.bootstrap, 60) as ours:
            ports = {theirs: apache.bootstrap.split(":")[1], ours: broker.bootstrap.split(":")[1]}

            def ask(request: Any) -> tuple[str, str]:
                first, second = (plain(wire.call(request), ports[wire]) for wire in (theirs, ours))
                return first, second

            def call(request: Any) -> tuple[str, str]:
                answers = ask(request)
                if answers[0] != answers[1] and request.API_KEY in READS:  # Kafka's broker follows its controller
                    wait_until(lambda: len(set(ask(request))) == 1, 30, fail=False)
                    answers = ask(request)
                return answers

            yield call
    finally:
        apache.stop()


def plain(response: Any, port: str) -> str:
    """The response as text, sorted, without messages, ids, ports and configs of our own."""
    for result in getattr(response, "results", []) or []:
        if getattr(result, "configs", None):
            mine = [config for config in result.configs if not config.name.startswith("odradek.")]
            result.configs = sorted(mine, key=lambda config: config.name)
    for topic in getattr(response, "topics", []) or []:
        if getattr(topic, "configs", None):
            mine = [config for config in topic.configs if not config.name.startswith("odradek.")]
            topic.configs = sorted(mine, key=lambda config: config.name)
    for topic in getattr(response, "topics", []) or []:
        if getattr(topic, "partitions", None):
            topic.partitions = sorted(topic.partitions, key=str)
    for result in getattr(response, "results", []) or []:
        for topic in getattr(result, "topics", []):
            topic.partitions = sorted(topic.partitions, key=str)
    for name in ("topics", "responses", "replica_election_results"):
        if getattr(response, name, None):
            setattr(response, name, sorted(getattr(response, name), key=str))
    text = _IDS.sub("_", str(response).replace(f"port={port}", "port=P"))
    return _MESSAGE.sub("error_message=_", text).replace("error_message=None", "error_message=_")


def create(name: str, version: int = 7, only: bool = False, **what: Any) -> Any:
    request = message("CreateTopicsRequest")
    kind = request.CreatableTopic
    assigned = what.get("assigned", {})
    topic = kind(
        name=name,
        num_partitions=what.get("partitions", -1 if assigned else 1),
        replication_factor=what.get("factor", -1 if assigned else 1),
        assignments=[
            kind.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assigned.items()
        ],
        configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in what.get("configs", {}).items()],
    )
    rest = {"validate_only": only} if version >= 1 else {}
    return request[version](topics=[topic], timeout_ms=30_000, **rest)


def metadata(version: int, *names: str, every: bool = False) -> Any:
    request = message("MetadataRequest")
    topics = [request.MetadataRequestTopic(name=name) for name in names]
    rest = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if version >= 8:
        rest["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        rest["include_cluster_authorized_operations"] = True
    return request[version](topics=None if every and version else topics, **rest)


def partitions(name: str, count: int, given: list[list[int]] | None = None) -> Any:
    request = message("CreatePartitionsRequest")
    kind = request.CreatePartitionsTopic
    rows = None if given is None else [kind.CreatePartitionsAssignment(broker_ids=row) for row in given]
    topic = kind(name=name, count=count, assignments=rows)
    return request[3](topics=[topic], timeout_ms=30_000, validate_only=False)


def describe(kind: int, name: str, version: int = 4, keys: list[str] | None = None) -> Any:
    request = message("DescribeConfigsRequest")
    resource = request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    rest = {"include_synonyms": True} if version >= 1 else {}
    return request[version](resources=[resource], **rest)


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    request = message("IncrementalAlterConfigsRequest")
    config = request.AlterConfigsResource.AlterableConfig
    configs = [config(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return request[1](resources=[resource], validate_only=False)


def replace(name: str, version: int, **configs: str) -> Any:
    request = message("AlterConfigsRequest")
    config = request.AlterConfigsResource.AlterableConfig
    rows = [config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = request.AlterConfigsResource(resource_type=2, resource_name=name, configs=rows)
    return request[version](resources=[resource], validate_only=False)


def pages(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = message("DescribeTopicPartitionsRequest")
    start = request.Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None
    topics = [request.TopicRequest(name=name) for name in names]
    return request[0](topics=topics, response_partition_limit=limit, cursor=start)


def elect(version: int, *topics: tuple[str, list[int]]) -> Any:
    request = message("ElectLeadersRequest")
    rows = [request.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return request[version](topic_partitions=rows, timeout_ms=30_000)


def move(name: str, partition: int, replicas: list[int] | None) -> Any:
    request = message("AlterPartitionReassignmentsRequest")
    kind = request.ReassignableTopic
    row = kind.ReassignablePartition(partition_index=partition, replicas=replicas)
    return request[0](timeout_ms=30_000, topics=[kind(name=name, partitions=[row])])


def log_dirs(version: int) -> Any:
    request = message("DescribeLogDirsRequest")
    asked = {"t": [0, 1, 77], "nope": [0]}
    topics = [request.DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in asked.items()]
    return request[version](topics=topics)


def delete(version: int, *names: str) -> Any:
    return message("DeleteTopicsRequest")[version](topic_names=list(names), timeout_ms=30_000)


def delete_states(*states: tuple[str | None, UUID]) -> Any:
    request = message("DeleteTopicsRequest")
    topics = [request.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return request[6](topics=topics, timeout_ms=30_000)


def acls(version: int) -> Any:
    return message("DescribeAclsRequest")[version](
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def scram(*names: str) -> Any:
    request = message("DescribeUserScramCredentialsRequest")
    return request[0](users=[request.UserName(name=name) for name in names])


def test_answers_to_topic_requests_equal_kafkas(both: Callable[[Any], tuple[str, str]]) -> None:
    requests: list[Any] = [create("t", partitions=2), create("t")]
    requests += [create(f"v{version}", version) for version in range(7)]
    requests += [create(name) for name in ("", ".", "..", "a b", "x" * 250, "__cluster_metadata", "t.1_x", "t_1.x")]
    requests += [create("p", partitions=n) for n in (0, -2)] + [create("p", factor=n) for n in (0, 2, -2)]
    requests += [create("defaults", partitions=-1, factor=-1), create("given", assigned={0: [0], 1: [0]})]
    bad: list[dict[int, list[int]]] = [{0: [0], 2: [0]}, {0: [0, 0]}, {0: [9]}, {0: []}]
    requests += [create("a", assigned=assigned) for assigned in bad] + [create("a", assigned={0: [0]}, partitions=1)]
    values = [("nope", "1"), ("retention.ms", "x"), ("retention.ms", None), ("segment.bytes", "1")]
    values += [("cleanup.policy", "foo"), ("compression.type", "foo")]
    requests += [create("c", configs={name: value}) for name, value in values]
    requests += [create("c", configs={"segment.bytes": "1000000", "cleanup.policy": "compact"})]
    requests += [partitions("t", count) for count in (4, 4, 2, 0, -1)] + [partitions("nope", 3)]
    rows: list[list[list[int]]] = [[[0], [0]], [[9]], [[0, 0]], [[]], []]
    requests += [partitions("t", 5, row) for row in rows]
    for version in range(13):
        requests += [metadata(version, "t", *(["nope", "a b"] if version >= 4 else []))]
        requests += [metadata(version, every=True)]
    requests += [pages(["t", "c"]), pages(["t", "nope", "a b"]), pages(["t", "c"], 2), pages(["t", "c"], 1)]
    requests += [pages(["t", "c"], cursor=("t", 2)), pages([], 2, ("t", 0))]
    requests += [elect(version, ("t", [0, 99]), ("nope", [0])) for version in range(3)]
    requests += [move("t", 0, where) for where in ([0], None, [9], [], [0, 0], [-1])]
    requests += [move("t", 99, [0]), move("nope", 0, [0])]
    requests += [log_dirs(version) for version in range(5)]
    requests += [delete(version, f"v{version}") for version in range(6)]
    requests += [delete(5, "t", "nope"), delete(5, "given", "given")]
    requests += [delete_states(("c", NO_ID), ("nope", NO_ID), (None, UUID(int=5)))]
    requests += [delete_states(("given", UUID(int=9))), metadata(12, every=True)]
    for request in requests:
        theirs, ours = both(request)
        assert ours == theirs, request


def test_answers_to_config_requests_equal_kafkas(both: Callable[[Any], tuple[str, str]]) -> None:
    requests = [create("t", configs={"retention.ms": "5000"}), describe(2, "t")]
    requests += [describe(2, "t", version, ["retention.ms", "nope"]) for version in range(1, 5)]
    requests += [describe(2, "nope"), describe(2, "a b"), describe(2, ""), describe(4, "9"), describe(4, "x")]
    requests += [describe(8, ""), describe(8, "9"), describe(4, ""), describe(3, "x")]
    for name, how, value in (
        ("retention.ms", 0, "6000"),
        ("retention.ms", 0, "x"),
        ("nope", 0, "1"),
        ("nope", 1, None),
        ("cleanup.policy", 2, "compact"),
        ("retention.ms", 2, "1"),
        ("retention.ms", 0, None),
        ("cleanup.policy", 3, "delete"),
    ):
        requests += [change(2, "t", (name, how, value)), describe(2, "t")]
    requests += [change(2, "nope", ("retention.ms", 0, "1")), change(2, "", ("retention.ms", 0, "1"))]
    requests += [change(2, "t", ("a", 0, "1"), ("a", 0, "2")), change(3, "x", ("a", 0, "1"))]
    for name, value in (("log.segment.bytes", "1048577"), ("num.partitions", "3"), ("log.segment.bytes", "1")):
        requests += [change(4, "", (name, 0, value)), describe(4, "")]
    requests += [change(4, "", ("listeners", 0, "PLAINTEXT://:1")), change(4, "", ("my.own", 0, "1"))]
    requests += [change(4, "0", ("log.retention.ms", 0, "123456")), change(4, "9", ("log.retention.ms", 0, "1"))]
    names = ["log.retention.ms", "log.retention.hours", "log.segment.bytes", "message.max.bytes", "my.own"]
    requests += [describe(4, "0", keys=names), describe(4, ""), describe(2, "t")]
    requests += [replace("t", version, segment_bytes="2000000") for version in range(3)] + [describe(2, "t")]
    requests += [change(4, "", *[(name, 1, None) for name in ("log.segment.bytes", "my.own")])]
    requests += [change(4, "0", ("log.retention.ms", 1, None)), describe(2, "t"), delete(5, "t")]
    for request in requests:
        theirs, ours = both(request)
        assert ours == theirs, request


def test_answers_on_unknown_resources_equal_kafkas(both: Callable[[Any], tuple[str, str]]) -> None:
    quotas, cluster = message("DescribeClientQuotasRequest"), message("DescribeClusterRequest")
    requests = [acls(version) for version in range(4)]
    requests += [quotas[version](components=[], strict=False) for version in range(2)]
    requests += [cluster[version](include_cluster_authorized_operations=True) for version in range(2)]
    requests += [cluster[1](include_cluster_authorized_operations=False, endpoint_type=2)]
    requests += [scram(), scram("bob"), scram("bob", "bob")]
    requests += [message("ListPartitionReassignmentsRequest")[0](timeout_ms=1000, topics=None)]
    requests += [message("ListConfigResourcesRequest")[0]()]
    for request in requests:
        theirs, ours = both(request)
        assert ours == theirs, request
