"""The state in KRaft's metadata log: topics with their ids, partitions and configs, after the records read so far.

A metadata log on disk does not show its high watermark. With one voter everything on the disk is committed. With
several voters a new leader may truncate the end of the log, and a single directory does not show that. Records of a
snapshot are always committed. Later records are applied as well, but `doubtful` keeps the configs whose last record may
be uncommitted, and a topic that an uncommitted record deletes does not count as deleted. Configs that are created
together with their topic are as certain as the topic, and its directory proves the topic: brokers create directories
only for committed topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from odradek.cluster.tree import kraft_records as records
from odradek.cluster.tree.kraft_records import Record

TOPIC, BROKER = 2, 4  # Kafka's ConfigResource types


class MetadataPartition(NamedTuple):
    """One partition: broker ids, and the leader epoch in force."""

    replicas: list[int]
    isr: list[int]
    leader_epoch: int


class MetadataTopic:
    """One topic; `batch` is the log position of its creation."""

    def __init__(self, name: str, topic_id: bytes, batch: int) -> None:
        self.name = name
        self.id = topic_id
        self.batch = batch
        self.partitions: dict[int, MetadataPartition] = {}


class Entry(NamedTuple):
    """A record from the log: `certain` when it is committed; records of one `batch` are committed together."""

    record: Record
    batch: int
    certain: bool


class Metadata:
    """The state after all entries passed to `apply`."""

    def __init__(self) -> None:
        self.topics: dict[str, MetadataTopic] = {}
        self.deleted: set[bytes] = set()  # ids of topics whose deletion is committed
        self.configs: dict[tuple[int, str], dict[str, str]] = {}  # by resource type and name
        self.doubtful: set[tuple[int, str, str]] = set()  # resource type and name, config
        self.kept: dict[str, set[bytes]] = {}  # users, ACLs, quotas: their keys
        self.unknown: Counter[int] = Counter()  # records skipped, by api key
        self.migrating = False  # the copy from ZooKeeper is incomplete: state may be missing here
        self._ids: dict[bytes, MetadataTopic] = {}
        self._open: list[Entry] | None = None  # the open transaction of the log

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply the next entries of the log. A transaction is applied when it ends; an unfinished one never is."""
        for entry in entries:
            if isinstance(entry.record, records.TransactionRecord):
                self._transaction(entry, entry.record.action)
            elif self._open is not None:
                self._open.append(entry._replace(batch=self._open[0].batch))
            else:
                self._apply(entry)

    def _transaction(self, entry: Entry, action: str) -> None:
        held, self._open = self._open, [entry] if action == records.BEGIN else None
        if held is not None and action == records.END:
            for one in held[1:]:
                self._apply(one._replace(certain=entry.certain))

    def _apply(self, entry: Entry) -> None:
        record = entry.record
        if isinstance(record, records.TopicRecord):
            self.topics[record.name] = self._ids[record.id] = MetadataTopic(record.name, record.id, entry.batch)
        elif isinstance(record, records.PartitionRecord):
            self._partition(record)
        elif isinstance(record, records.PartitionChangeRecord):
            self._partition_change(record)
        elif isinstance(record, records.ConfigRecord):
            self._config(record, entry)
        elif isinstance(record, records.RemoveTopicRecord):
            self._remove_topic(record.id, entry.certain)
        else:
            self._other(record)

    def _partition(self, record: records.PartitionRecord) -> None:
        topic = self._ids.get(record.topic_id)
        if topic is not None:
            topic.partitions[record.partition] = MetadataPartition(record.replicas, record.isr, record.leader_epoch)

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        topic = self._ids.get(record.topic_id)
        former = topic.partitions.get(record.partition) if topic is not None else None
        if topic is not None and former is not None:
            replicas = former.replicas if record.replicas is None else record.replicas
            isr = former.isr if record.isr is None else record.isr
            epoch = former.leader_epoch + record.elected
            topic.partitions[record.partition] = MetadataPartition(replicas, isr, epoch)

    def _config(self, record: records.ConfigRecord, entry: Entry) -> None:
        configs = self.configs.setdefault(record[:2], {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        topic = self.topics.get(record.resource) if record.resource_type == TOPIC else None
        if entry.certain or (topic is not None and topic.batch == entry.batch):
            self.doubtful.discard(record[:3])
        else:
            self.doubtful.add(record[:3])

    def _remove_topic(self, topic_id: bytes, certain: bool) -> None:
        topic = self._ids.pop(topic_id, None)
        if topic is not None and self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
            self.configs.pop((TOPIC, topic.name), None)
            self.doubtful = {one for one in self.doubtful if one[:2] != (TOPIC, topic.name)}
        if certain:
            self.deleted.add(topic_id)

    def _other(self, record: Record) -> None:
        if isinstance(record, records.ZkMigrationStateRecord):
            self.migrating = record.state == records.PRE_MIGRATION
        elif isinstance(record, records.UnknownRecord):
            self.unknown[record.api_key] += 1
        elif isinstance(record, records.KeptRecord):
            keys = self.kept.setdefault(record.kind, set())
            keys.discard(record.key)
            if not record.removed:
                keys.add(record.key)

    def doubts(self, resource_type: int, resource: str, names: Iterable[str]) -> list[str]:
        """The configs among `names` of a resource whose last change may be uncommitted."""
        return [name for name in names if (resource_type, resource, name) in self.doubtful]
