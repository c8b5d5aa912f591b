"""Something of each kind that a broker keeps: what one version of the code wrote, another one must read and continue.

`add` writes more of a kind, and what the version before left unfinished is finished. `verify` reads all of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)  # fmt: skip

from ..clients import quotas
from ..clients.admin import alter_broker, create_topic, topic_id, unique
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce, producer_id
from ..clients.transactions import WAIT, Confluent, Raw, offsets_of, read
from ..harness.broker import Broker
from ..harness.process import wait_until

PROPERTIES = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "log_cleaner_backoff_ms": 100,
    "log_flush_start_offset_checkpoint_interval_ms": 100,  # a kill loses what came after it, as in Kafka
    "odradek_workers": 1,
}
DAY_MS = 86_400_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 20  # records of a codec
OURS = re.compile("metadata|dropped")
_ANY: Any = None  # its types do not know that a filter may leave a name out
EVERY = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)
CHANGED = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


class Kind(Protocol):
    """One kind of contents."""

    def add(self, broker: Broker) -> None: ...
    def verify(self, broker: Broker) -> None: ...


def checkpoint(broker: Broker, name: str, topic: str) -> int:
    """What a checkpoint file has of partition 0 of a topic; 0 if it has nothing."""
    file = broker.data_dir / name
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return next((int(row[2]) for row in rows if row[:2] == [topic, "0"]), 0)


class Records:
    """Compressed batches in several segments."""

    def __init__(self, broker: Broker) -> None:
        self._topic = create_topic(broker, "records", segment_bytes=4000)
        self._sent: list[bytes] = []

    def add(self, broker: Broker) -> None:
        for codec in CODECS:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5})
            for _ in range(EACH):
                self._sent.append(b"%d " % len(self._sent) + b"." * 100)
                producer.produce(self._topic, self._sent[-1])
            assert not producer.flush(WAIT)

    def verify(self, broker: Broker) -> None:
        assert read(broker, self._topic, "read_committed") == self._sent


class Compacted:
    """Ten keys, of which the cleaner has removed old values."""

    def __init__(self, broker: Broker) -> None:
        config: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": 0.01}
        self._topic = create_topic(broker, "compacted", **config)
        self._sent: dict[bytes, list[bytes]] = defaultdict(list)
        self._cleaned = 0

    def add(self, broker: Broker) -> None:
        with broker.wire() as wire:
            for _ in range(20):
                for key, values in [(b"%d" % number, self._sent[b"%d" % number]) for number in range(10)]:
                    values.append(key + b" %d" % len(values))
                    assert not produce(wire, self._topic, batch([values[-1]], key=key)).error_code
        before = self._cleaned
        wait_until(lambda: self._clean_up_to(broker) > before, WAIT, "the cleaner has removed old values")
        self._cleaned = self._clean_up_to(broker)

    def _clean_up_to(self, broker: Broker) -> int:
        return checkpoint(broker, "cleaner-offset-checkpoint", self._topic)

    def verify(self, broker: Broker) -> None:
        assert self._clean_up_to(broker) >= self._cleaned
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for value in read(broker, self._topic, "read_committed"):
            found[value.split()[0]].append(value)
        for key, values in self._sent.items():
            assert found[key][-1] == values[-1]
            assert found[key] == sorted(set(found[key]), key=values.index)
        assert sum(map(len, found.values())) < sum(map(len, self._sent.values()))


class Transactions:
    """One committed, one aborted, by the same transactional id each time."""

    def __init__(self, broker: Broker) -> None:
        self._topic = create_topic(broker, "transactions")
        self._committed: list[bytes] = []

    def add(self, broker: Broker) -> None:
        producer = Confluent(broker, "by-one-name")
        for commit in (True, False):
            producer.begin()
            producer.send(self._topic, b"%d %d" % (len(self._committed), commit))
            producer.commit() if commit else producer.abort()
        self._committed.append(b"%d 1" % len(self._committed))
        producer.close()

    def verify(self, broker: Broker) -> None:
        assert read(broker, self._topic, "read_committed") == self._committed


class OpenTransaction:
    """A transaction with records and an offset that stays open; the next version commits it."""

    def __init__(self, broker: Broker) -> None:
        self._topic = create_topic(broker, "open")
        self._committed: list[bytes] = []
        self._offset = -1
        self._open: Raw | None = None
        self._epoch = -1

    def add(self, broker: Broker) -> None:
        if self._open is not None:
            self._finish(broker, self._open)
        with broker.wire(WAIT) as wire:
            self._open = raw = Raw(wire, "left-open", timeout_ms=600_000)
            assert raw.epoch == self._epoch + 1, "the coordinator remembers the producer"
            self._epoch = raw.epoch
            assert raw.add(self._topic) == [0]
            assert not raw.write(self._topic, self._value(1)).error_code
            assert raw.add_offsets("of-transactions") == 0
            assert raw.commit_offset("of-transactions", self._topic, self._epoch + 1) == 0

    def _value(self, number: int) -> bytes:
        return b"epoch %d, record %d" % (self._epoch, number)

    def _finish(self, broker: Broker, raw: Raw) -> None:
        with broker.wire(WAIT) as wire:
            raw.wire = wire
            raw.find()
            assert not raw.write(self._topic, self._value(2)).error_code
            assert raw.end() == 0
        self._committed += [self._value(1), self._value(2)]
        self._offset = self._epoch + 1

    def verify(self, broker: Broker) -> None:
        assert read(broker, self._topic, "read_committed") == self._committed
        with broker.wire(WAIT) as wire:
            assert offsets_of(wire, "of-transactions", self._topic) == (self._offset, 0)


class Sequences:
    """An idempotent producer: its last batch is known, and is not appended twice."""

    def __init__(self, broker: Broker) -> None:
        self._topic = create_topic(broker, "sequences")
        with broker.wire(WAIT) as wire:
            self._id, self._epoch = producer_id(wire)
        self._count = 0

    def add(self, broker: Broker) -> None:
        with broker.wire() as wire:
            for _ in range(3):
                self._count += 1
                self._send(wire)

    def _send(self, wire: Any) -> None:
        """The last one, for the first time or again."""
        last = self._count - 1
        data = batch([b"%d" % last], producer=self._id, epoch=self._epoch, sequence=last)
        answer = produce(wire, self._topic, data)
        assert (answer.error_code, answer.base_offset) == (0, last)

    def verify(self, broker: Broker) -> None:
        with broker.wire() as wire:
            self._send(wire)
        assert read(broker, self._topic, "read_committed") == [b"%d" % number for number in range(self._count)]


class Offsets:
    """Commits of groups, with metadata."""

    def __init__(self, broker: Broker) -> None:
        self._topic = create_topic(broker, "offsets", 2)
        self._committed: dict[str, list[tuple[int, str]]] = {}

    def add(self, broker: Broker) -> None:
        for number in range(len(self._committed) + 1):  # groups before this get another offset
            offset = 10 * len(self._committed) + number
            consumer = self._consumer(broker, f"group-{number}")
            places = [TopicPartition(self._topic, index, offset + index, f"at {offset}") for index in range(2)]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()
            self._committed[f"group-{number}"] = [(offset + index, f"at {offset}") for index in range(2)]

    def _consumer(self, broker: Broker, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})

    def verify(self, broker: Broker) -> None:
        for group, expected in self._committed.items():
            consumer = self._consumer(broker, group)
            found = consumer.committed([TopicPartition(self._topic, index) for index in range(2)], timeout=WAIT)
            consumer.close()
            assert [(one.offset, one.metadata) for one in found] == expected, group


class Metadata:
    """Topics, configs, ACLs, SCRAM users, quotas, a trimmed log: all that clients can set."""

    def __init__(self, broker: Broker, factor: int = 1) -> None:
        self._factor = factor
        self._turn = 0
        self._topic = self._create(broker, "metadata", 2)
        self._described: dict[str, Any] = {}

    def _create(self, broker: Broker, stem: str, partitions: int) -> str:
        name = unique(stem)
        admin = _admin(broker)
        admin.create_topics([NewTopic(name, partitions, self._factor)])[name].result(WAIT)
        return name

    def add(self, broker: Broker) -> None:
        self._turn += 1
        self._create(broker, f"metadata-{self._turn}", self._turn)
        dropped = self._create(broker, "dropped", 1)
        admin = _admin(broker)
        admin.delete_topics([dropped])[dropped].result(WAIT)
        self._trim(broker)
        self._configure(broker)
        self._admit(broker, f"user-{self._turn}")
        wait_until(lambda: self._is_set(self.describe(broker), dropped), WAIT, "a broker describes what was set")
        self._described = self.describe(broker)

    def _trim(self, broker: Broker) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(3):
            producer.produce(self._topic, b"trimmed", partition=0)
        assert not producer.flush(WAIT)
        place = TopicPartition(self._topic, 0, 3 * self._turn - 1)
        admin = _admin(broker)
        admin.delete_records([place])[place].result(WAIT)

    def _configure(self, broker: Broker) -> None:
        value = str(DAY_MS + self._turn)
        change = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic, incremental_configs=[change])
        admin = _admin(broker)
        admin.incremental_alter_configs([resource])[resource].result(WAIT)
        with broker.wire() as wire:
            assert alter_broker(wire, log_retention_ms=value) == (0, None)

    def _admit(self, broker: Broker, name: str) -> None:
        admin = _admin(broker)
        words = (ResourceType.TOPIC, name, ResourcePatternType.PREFIXED, f"User:{name}", "*")
        rule = AclBinding(*words, AclOperation.READ, AclPermissionType.ALLOW)
        admin.create_acls([rule])[rule].result(WAIT)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, b"secret")])[name].result(WAIT)
        assert quotas.alter(broker, {"user": name}, consumer_byte_rate=1e6 + self._turn) == 0

    def _is_set(self, found: dict[str, Any], dropped: str) -> bool:
        """Of a cluster's brokers each hears of it in its own time."""
        value = str(DAY_MS + self._turn)
        counted = [len(found[name]) for name in ("acls", "scram")] + [sum(map(bool, found["quotas"].values()))]
        return (
            set(found["configs"].values()) == {value} and counted == [self._turn] * 3
            and len(found["topics"]) == self._turn + 1 and dropped not in found["topics"]
            and found["start"] == 3 * self._turn - 1
        )  # fmt: skip

    def describe(self, broker: Broker) -> dict[str, Any]:
        """All of it, as this broker tells clients."""
        admin = _admin(broker)
        found = {name: one for name, one in admin.list_topics(timeout=WAIT).topics.items() if OURS.match(name)}
        users = [f"user-{turn + 1}" for turn in range(self._turn)]
        scram: Any = admin.describe_user_scram_credentials(users)
        place = TopicPartition(self._topic, 0)
        with broker.wire(WAIT) as wire:
            return {
                "topics": {name: (len(one.partitions), topic_id(wire, name)) for name, one in found.items()},
                "start": admin.list_offsets({place: OffsetSpec.earliest()})[place].result(WAIT).offset,
                "configs": {**_changed(admin, ConfigResource.Type.TOPIC, self._topic),
                            **_changed(admin, ConfigResource.Type.BROKER, str(broker.properties["broker.id"]))},
                "acls": sorted(map(str, admin.describe_acls(EVERY).result(WAIT))),
                "scram": {name: _credentials(one.result(WAIT)) for name, one in scram.items()},
                "quotas": {name: quotas.described(broker, {"user": name}) for name in users},
            }  # fmt: skip

    def verify(self, broker: Broker) -> None:
        wait_until(lambda: self.describe(broker) == self._described, WAIT, fail=False)
        found = self.describe(broker)
        assert found == self._described, (found, self._described)

    def await_checkpoint(self, broker: Broker) -> None:
        """Wait until a kill cannot lose the start of the trimmed log."""
        name, start = "log-start-offset-checkpoint", 3 * self._turn - 1
        wait_until(lambda: checkpoint(broker, name, self._topic) == start, WAIT, f"{name} has {start}")


def _admin(broker: Broker) -> AdminClient:
    """A new one: it knows the controller."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def _credentials(found: Any) -> list[tuple[str, int]]:
    return [(one.mechanism.name, one.iterations) for one in found.scram_credential_infos]


def _changed(admin: AdminClient, kind: Any, name: str) -> dict[str, str | None]:
    """What differs from the defaults of a version."""
    resource = ConfigResource(kind, name)
    rows = admin.describe_configs([resource])[resource].result(WAIT)
    return {key: row.value for key, row in rows.items() if ConfigSource(row.source) in CHANGED}


KINDS: tuple[Callable[[Broker], Kind], ...] = (
    Records, Compacted, Transactions, OpenTransaction, Sequences, Offsets,
)  # fmt: skip
