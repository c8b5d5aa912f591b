"""A connection to a cluster for the administrative commands: requests and responses of `kafka.protocol`.

KafkaAdminClient finds brokers, versions, controller and coordinators; this module builds the requests, because its
own methods hide the message that a broker sends with an error code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.errors import OdradekError

TIMEOUT_MS = 30_000
# resource types of configurations
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

_PAUSE = 0.1  # s between two attempts
# No listener; the connection broke or backs off before a retry; the broker, or the controller, is gone for now.
_GONE = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.NotControllerError,
)

register()

Partition = tuple[str, int]


class RequestFailed(OdradekError):
    """An error code from the broker, with its message if it sent one."""

    def __init__(self, code: int, text: str | None = None) -> None:
        self.code = code
        super().__init__(text or explain(code))


def explain(code: int) -> str:
    """Kafka's name and description of an error code."""
    error = kafka_errors.for_code(code)
    name = getattr(error, "message", error.__name__)
    about = getattr(error, "description", "")
    return f"{name} ({about})" if about else str(name)


def check(code: int, text: str | None = None) -> None:
    """Raise RequestFailed for any code but 0."""
    if code:
        raise RequestFailed(code, text)


class _Opened:
    """Makes the clients of a KafkaAdminClient, which leaves their thread and sockets when it cannot connect."""

    def __init__(self) -> None:
        self._clients: list[Any] = []

    def __call__(self, **settings: Any) -> Any:
        client = KafkaAdminClient.DEFAULT_CONFIG["kafka_client"](**settings)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """End them."""
        for client in self._clients:
            client.close()


class Cluster:
    """An open connection; a context manager. Raises OdradekError when no broker answers."""

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str] | None = None, timeout_ms: int = TIMEOUT_MS,
        request_ms: int | None = None,
    ) -> None:  # fmt: skip
        """`timeout_ms`: until a broker answers at all; `request_ms`: for each request, if not as `properties` say."""
        config = client_config(properties or {}, KafkaAdminClient.DEFAULT_CONFIG)
        if request_ms is not None:
            config["request_timeout_ms"] = request_ms
        config["bootstrap_servers"] = bootstrap.split(",")
        config.setdefault("client_id", "odradek-admin")
        config["bootstrap_timeout_ms"] = timeout_ms
        self.timeout_ms = timeout_ms
        opened = _Opened()
        try:
            self.admin = KafkaAdminClient(kafka_client=opened, **config)
        except (kafka_errors.KafkaError, ValueError) as error:
            opened.close()
            raise OdradekError(f"cannot reach a broker at {bootstrap}: {error}") from error

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()

    def send(self, request: Any, node: int | None = None) -> Any:
        """Send `request` to `node`, or to any broker that answers, and return the response."""

        async def send() -> Any:
            return await self.admin._manager.send(request, node_id=node)

        if node is not None:
            return self.admin._manager.run(send)
        return self._until_answered(lambda: self.admin._manager.run(send))

    def _until_answered(self, call: Callable[[], Any]) -> Any:
        """Repeat `call` until it succeeds: metadata may list a broker or controller for a while after it is gone."""
        deadline = time.monotonic() + self.timeout_ms / 1000
        while True:
            try:
                return call()
            except _GONE:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def send_each(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """Send to several nodes at once; returns each response, or the KafkaError in its place."""

        async def send() -> dict[int, Any]:
            under_way = {node: self.admin._manager.send(request, node_id=node) for node, request in requests.items()}
            answers: dict[int, Any] = {}
            for node, future in under_way.items():
                try:
                    answers[node] = await future
                except kafka_errors.KafkaError as error:
                    answers[node] = error
            return answers

        answers: dict[int, Any] = self.admin._manager.run(send)
        return answers

    def send_to_controller(self, request: Any, codes: Any) -> Any:
        """Send to the controller; `codes(response)` lists error codes, so that a moved controller is found again."""

        def errors(response: Any) -> Iterator[Any]:
            return (kafka_errors.for_code(code) for code in codes(response))

        def send() -> Any:
            try:
                return self.admin._manager.run(self.admin._send_request_to_controller, request, errors, False)
            except _GONE:
                self.admin._controller_id = None
                raise
            except RuntimeError as error:  # kafka-python raises it after two attempts
                self.admin._controller_id = None
                raise kafka_errors.NotControllerError(str(error)) from error

        return self._until_answered(send)

    def coordinators(self, groups: Iterable[str]) -> dict[str, int]:
        """The node id of the coordinator of each group."""
        nodes: dict[str, int] = self.admin._manager.run(self.admin._find_coordinator_ids, list(groups))
        return nodes

    def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """The MetadataResponse for `topics`, or for all; creates none."""
        names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        return self.send(MetadataRequest(topics=names, allow_auto_topic_creation=False))

    def configs(
        self, resource_type: int, names: Iterable[str], *, synonyms: bool = False, docs: bool = False
    ) -> dict[str, Any]:
        """{name: entries of DescribeConfigs}; requests for types 4 and 8 go to the broker itself. RequestFailed."""
        resource = DescribeConfigsRequest.DescribeConfigsResource
        found = {}
        for node, group in _by_node(resource_type, names).items():
            request = DescribeConfigsRequest(
                resources=[
                    resource(resource_type=resource_type, resource_name=name, configuration_keys=None) for name in group
                ],
                include_synonyms=synonyms,
                include_documentation=docs,
            )
            for result in self.send(request, node).results:
                check(result.error_code, result.error_message)
                found[result.resource_name] = result.configs
        return found

    def topic_config(self, name: str) -> dict[str, str]:
        """The resolved configuration of a topic. Raises RequestFailed."""
        return {entry.name: entry.value for entry in self.configs(TOPIC, [name])[name]}

    def offsets(
        self, timestamps: Mapping[Partition, int], isolation_level: int = 0
    ) -> tuple[dict[Partition, tuple[int, int]], dict[Partition, int]]:
        """ListOffsets for {(topic, partition): timestamp}: ({partition: (offset, timestamp)}, {…: error}).

        An offset of -1 means that no record has that timestamp or a later one.
        """
        leaders, failed = self.leaders(timestamps)
        found: dict[Partition, tuple[int, int]] = {}
        for node, partitions in leaders.items():
            request = _list_offsets({one: timestamps[one] for one in partitions}, isolation_level)
            for topic in self.send(request, node).topics:
                for part in topic.partitions:
                    one = (topic.name, part.partition_index)
                    if part.error_code:
                        failed[one] = part.error_code
                    else:
                        found[one] = (part.offset, part.timestamp)
        return found, failed

    def leaders(self, partitions: Iterable[Partition]) -> tuple[dict[int, list[Partition]], dict[Partition, int]]:
        """The partitions by leader, and the error codes of those without a leader."""
        places = {}
        for topic in self.metadata({name for name, _ in partitions}).topics:
            for part in topic.partitions:
                places[topic.name, part.partition_index] = part.leader_id, part.error_code
        leaders: dict[int, list[Partition]] = {}
        failed: dict[Partition, int] = {}
        for one in partitions:
            leader, code = places.get(one, (-1, kafka_errors.UnknownTopicOrPartitionError.errno))
            if leader < 0:
                failed[one] = code or kafka_errors.LeaderNotAvailableError.errno
            else:
                leaders.setdefault(leader, []).append(one)
        return leaders, failed


def _by_node(resource_type: int, names: Iterable[str]) -> dict[int | None, list[str]]:
    """Resources by the node that answers for them: any node (None) for topics, each broker for itself."""
    groups: dict[int | None, list[str]] = {}
    for name in names:
        own = resource_type in (BROKER, BROKER_LOGGER) and name
        groups.setdefault(int(name) if own else None, []).append(name)
    return groups


def _list_offsets(timestamps: Mapping[Partition, int], isolation_level: int) -> Any:
    """One ListOffsetsRequest; special timestamps need a version that supports them."""
    topics: dict[str, list[Any]] = {}
    make = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    for (name, index), timestamp in timestamps.items():
        topics.setdefault(name, []).append(make(partition_index=index, timestamp=timestamp))
    lowest = max((ListOffsetsRequest.min_version_for_timestamp(t) for t in timestamps.values() if t < 0), default=0)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=n, partitions=p) for n, p in topics.items()],
        min_version=max(lowest, 2 if isolation_level else 0),
    )
