"""Requests to a cluster: topics, leaders, offsets, configurations, log directories, committed offsets of groups.

All calls come from one thread and block.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from odradek.pipeline.errors import DataLoss, PipelineError, UnknownTopic
from odradek.pipeline.types import NO_ID, Leader, Partition, ReplicaPlace
from odradek.pipeline.wire.connections import Connections
from odradek.pipeline.wire.retries import RetryLater, check
from odradek.pipeline.wire.settings import Address

_NO_TOPIC = (3, 17)  # UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION
_MEMBERS_ONLY = (22, 25, 27)  # generation, member id, rebalance
_NO_OFFSET = -1
_TOPIC = 2  # the resource type of a configuration
_TOPICS_OWN = 1  # the source of a setting


class Brokers(Connections):
    """A cluster, by the `kafka.*` options without their prefix; a context manager, which closes what it opened.

    PipelineError, with a one-line message, for a request that fails; UnknownTopic where that is the cause.
    """

    _steady = False
    _led: tuple[int, dict[Partition, Leader]] = (0, {})  # at this number of failures

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Within the block, ask for leaders once, and again after each failure: a plan makes many requests."""
        self._steady, self._led = True, (self._failures, {})
        try:
            yield
        finally:
            self._steady = False

    # -- the cluster

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self.metadata([]).cluster_id or ""

    def topics(self, known: Collection[Partition] = ()) -> dict[str, int]:
        """The number of partitions of each topic that this user may see, internal ones included.

        Partitions that were `known` before are missing only when several answers are without them.
        """
        try:
            return self.insist_known(lambda: self._topics(known))
        except UnknownTopic:
            return self._topics()

    def _topics(self, known: Collection[Partition] = ()) -> dict[str, int]:
        found = {topic.name: len(topic.partitions) for topic in self.metadata(None).topics if not topic.error_code}
        if any(index >= found.get(topic, 0) for topic, index in known):
            raise UnknownTopic("a topic or partition that was known is missing")
        return found

    def leaders(self, topics: Iterable[str]) -> dict[Partition, Leader]:
        """The leaders of all partitions of these topics; waits for those that have none."""
        names = sorted(set(topics))
        return self.insist_known(lambda: self._leaders(names, None)) if names else {}

    def leaders_of(self, partitions: Iterable[Partition]) -> dict[Partition, Leader]:
        """The leaders of these partitions; waits for those that have none."""
        wanted = set(partitions)
        if not self._steady:
            return self._ask_leaders(wanted)
        since, led = self._led
        if since != self._failures or wanted - led.keys():
            former, led = led, self._ask_leaders(wanted)
            _check_same(former, led)
            self._led = self._failures, led
        return {key: led[key] for key in sorted(wanted)}

    def _ask_leaders(self, wanted: set[Partition]) -> dict[Partition, Leader]:
        names = sorted({topic for topic, _ in wanted})
        return self.insist_known(lambda: self._leaders(names, wanted)) if names else {}

    def _leaders(self, names: list[str], wanted: set[Partition] | None) -> dict[Partition, Leader]:
        answer = self.ask_anybody(names)
        _check_topics(answer.topics)
        hosts = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        rows = {(topic.name, row.partition_index): (topic, row) for topic in answer.topics for row in topic.partitions}
        keys = set(rows) if wanted is None else wanted
        absent = sorted(keys - rows.keys())
        if absent:
            raise UnknownTopic("no such partition: " + ", ".join(f"{topic}-{index}" for topic, index in absent))
        return {key: _leader(*rows[key], hosts) for key in sorted(keys)}

    # -- offsets

    def offsets(self, partitions: Iterable[Partition], at: int, committed: bool = False) -> dict[Partition, int]:
        """The offset `at` (EARLIEST, LATEST) of each; with `committed` the end is the last stable offset."""
        found = self._list(dict.fromkeys(partitions, at), committed)
        return {partition: row.offset for partition, row in found.items()}

    def offsets_by_time(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """The first offset whose record has that time (ms) or a later one; None where there is none."""
        found = self._list(dict(times), False)
        return {partition: None if row.offset == _NO_OFFSET else row.offset for partition, row in found.items()}

    def first_times(self, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """The time (ms) of the first record of each; None where it has none."""
        found = self._list(dict.fromkeys(partitions, 0), False)
        return {partition: None if row.offset == _NO_OFFSET else row.timestamp for partition, row in found.items()}

    def _list(self, asked: dict[Partition, int], committed: bool) -> dict[Partition, Any]:
        found: dict[Partition, Any] = {}

        def try_rest() -> None:
            rest = {key: at for key, at in asked.items() if key not in found}
            for address, parts in self._by_leader(rest).items():
                found.update(self._list_at(address, {key: rest[key] for key in parts}, committed))
            if len(found) < len(asked):
                raise RetryLater(f"no offsets of {_first(asked.keys() - found.keys())}")

        self.insist(try_rest)
        return found

    def _list_at(self, address: Address, asked: dict[Partition, int], committed: bool) -> dict[Partition, Any]:
        """The rows of the partitions that this broker really leads."""
        row_of = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
        rows = {key: row_of(partition_index=key[1], timestamp=at) for key, at in asked.items()}
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed), topics=_by_topic(ListOffsetsRequest.ListOffsetsTopic, rows),
            timeout_ms=int(self.settings.request_timeout * 1000), min_version=2,
        )  # fmt: skip
        return _rows(self.call(address, request), "offsets")

    def _by_leader(self, partitions: Iterable[Partition]) -> dict[Address, list[Partition]]:
        groups: dict[Address, list[Partition]] = defaultdict(list)
        for key, leader in self.leaders_of(partitions).items():
            groups[leader.host, leader.port].append(key)
        return groups

    # -- how they are kept

    def is_compacted(self, topic: str) -> bool:
        """Whether its cleanup.policy has `compact`."""
        found = self._configs([topic], ["cleanup.policy"])
        return any("compact" in (config.value or "") for config in found[topic])

    def own_configs(self, topics: Iterable[str], wherever: Collection[str]) -> dict[str, dict[str, str]]:
        """The settings of each topic itself; settings named in `wherever` also where they come from the broker."""
        return {
            topic: {
                row.name: row.value
                for row in rows
                if row.value is not None and (row.config_source == _TOPICS_OWN or row.name in wherever)
            }
            for topic, rows in self._configs(topics, None).items()
        }

    def _configs(self, topics: Iterable[str], names: list[str] | None) -> dict[str, list[Any]]:
        """The rows of each topic; `names` None means all settings."""
        resource_of = DescribeConfigsRequest.DescribeConfigsResource
        rows = [
            resource_of(resource_type=_TOPIC, resource_name=topic, configuration_keys=names) for topic in sorted(topics)
        ]

        def ask() -> dict[str, list[Any]]:
            self.ask_anybody([])
            request = DescribeConfigsRequest(resources=rows, include_synonyms=False, min_version=1)
            answer = self.call(self.informant, request)
            for found in answer.results:
                check(found.error_code, f"the configuration of {found.resource_name}")
            return {found.resource_name: list(found.configs) for found in answer.results}

        return self.insist(ask) if rows else {}

    # -- where they lie

    def places(self, partitions: Iterable[Partition]) -> dict[Partition, ReplicaPlace]:
        """Where the leaders store these; omits partitions whose leader does not tell, or not this user."""
        found: dict[Partition, ReplicaPlace] = {}
        for address, keys in self._by_leader(partitions).items():
            try:
                found.update(self._places_at(address, keys))
            except RetryLater:
                continue
        return found

    def _places_at(self, address: Address, keys: list[Partition]) -> dict[Partition, ReplicaPlace]:
        topic_of = DescribeLogDirsRequest.DescribableLogDirTopic
        topics = [topic_of(topic=name, partitions=list(rows)) for name, rows in _indexes(keys).items()]
        answer = self.call(address, DescribeLogDirsRequest(topics=topics))
        return {
            (topic.name, row.partition_index): ReplicaPlace(
                row.partition_size, _folder(result.log_dir, topic.name, row)
            )
            for result in answer.results
            for topic in result.topics
            for row in topic.partitions
            if not row.is_future_key
        }

    # -- groups

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit without being a member; PipelineError when the group has members, because only they may commit."""
        row_of = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
        rows = {
            key: row_of(partition_index=key[1], committed_offset=offset, committed_metadata="")
            for key, offset in offsets.items()
        }
        topics = _by_topic(OffsetCommitRequest.OffsetCommitRequestTopic, rows)

        def commit() -> None:
            request = OffsetCommitRequest(group_id=group, member_id="", topics=topics, max_version=9)
            answer = self.call(self._coordinator(group), request)
            if any(row.error_code in _MEMBERS_ONLY for topic in answer.topics for row in topic.partitions):
                raise PipelineError(f"group {group!r} has members, and only members may commit: use another group")
            _all_rows(answer, f"the offsets of group {group!r}")

        if rows:
            self.insist(commit)

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's committed offsets, without partitions that have none."""
        topic_of = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic_of(name=name, partition_indexes=rows) for name, rows in _indexes(partitions).items()]
        found = self._committed(group, topics) if topics else {}
        return {key: row.committed_offset for key, row in found.items() if row.committed_offset != _NO_OFFSET}

    def all_committed(self, group: str) -> list[tuple[int, str]]:
        """The group's committed offsets in whichever partitions, each with its metadata."""
        return [(row.committed_offset, row.metadata or "") for row in self._committed(group, None).values()]

    def _committed(self, group: str, topics: list[Any] | None) -> dict[Partition, Any]:
        """`topics` None means all that the group has; waits while a transaction is undecided."""

        def fetch() -> dict[Partition, Any]:
            request = OffsetFetchRequest(
                group_id=group, topics=topics, require_stable=True, min_version=2, max_version=7
            )
            answer = self.call(self._coordinator(group), request)
            check(answer.error_code, f"the offsets of group {group!r}")
            return _all_rows(answer, f"the offsets of group {group!r}")

        return self.insist(fetch)

    def _coordinator(self, group: str) -> Address:
        self.ask_anybody([])
        answer = self.call(self.informant, FindCoordinatorRequest(key=group, key_type=0, max_version=3))
        check(answer.error_code, f"the coordinator of group {group!r}")
        return answer.host, answer.port


def _check_same(former: Mapping[Partition, Leader], now: Mapping[Partition, Leader]) -> None:
    """Earlier offsets of the plan belong to the former topic."""
    for key in former.keys() & now.keys():
        if former[key].topic_id != now[key].topic_id:
            raise DataLoss(f"topic {key[0]!r} was recreated while its offsets were requested")


def _check_topics(topics: Iterable[Any]) -> None:
    missing = sorted(topic.name for topic in topics if topic.error_code in _NO_TOPIC)
    if missing:
        raise UnknownTopic(f"no such topic: {', '.join(missing)}")
    for topic in topics:
        check(topic.error_code, f"topic {topic.name!r}")


def _leader(topic: Any, row: Any, hosts: Mapping[int, Address]) -> Leader:
    if row.leader_id not in hosts:
        raise RetryLater(f"{topic.name}-{row.partition_index} has no leader")
    return Leader(
        row.leader_id, *hosts[row.leader_id], topic.topic_id.bytes if topic.topic_id else NO_ID, row.leader_epoch
    )


def _rows(answer: Any, what: str) -> dict[Partition, Any]:
    """The partitions' rows without a retriable error; PipelineError for other errors."""
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            try:
                check(row.error_code, f"{what} of {topic.name}-{row.partition_index}")
            except RetryLater:
                continue
            found[topic.name, row.partition_index] = row
    return found


def _all_rows(answer: Any, what: str) -> dict[Partition, Any]:
    for topic in answer.topics:
        for row in topic.partitions:
            check(row.error_code, f"{what} in {topic.name}-{row.partition_index}")
    return {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}


def _indexes(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        groups[topic].append(index)
    return groups


def _by_topic(topic_of: Any, rows: Mapping[Partition, Any]) -> list[Any]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for (topic, _), row in rows.items():
        groups[topic].append(row)
    return [topic_of(name=topic, partitions=parts) for topic, parts in groups.items()]


def _folder(log_dir: str, topic: str, row: Any) -> str:
    return os.path.join(log_dir, f"{topic}-{row.partition_index}")


def _first(partitions: Iterable[Partition]) -> str:
    topic, index = min(partitions)
    return f"{topic}-{index}"
