"""The metadata snapshot: the cluster's metadata at one version, as every process reads it.

The controller publishes it as JSON in the shared metadata region; each process parses it again when the version word
changes. To keep that cheap, parsing only decodes the JSON and builds two dicts; the rest is built at first use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.cluster.configs import configdef
from odradek.cluster.configs.admitted import NOBODY, Admitted
from odradek.cluster.tree import quota_nodes
from odradek.security.quotas.entities import Entity

ControllerProgress = tuple[
    int, int
]  # the last controller request carried out: controller epoch, number (-1: not numbered)
NO_PROGRESS: ControllerProgress = (0, -1)


class PartitionInfo(NamedTuple):
    """One partition; `log_dir` is an index into the leader's log.dirs, `leader` -1 means none.

    `offline`: replicas on brokers that the controller considers dead, or in failed log directories.
    """

    slot: int
    incarnation: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_dir: int
    offline: Sequence[int] = ()


class Broker(NamedTuple):
    """One broker; `endpoints` maps listener names to the advertised [host, port]."""

    id: int
    rack: str | None
    endpoints: dict[str, tuple[str, int]]


class Topic:
    """One topic: name, id (16 bytes), whether it is internal, its config overrides, its partitions by index."""

    __slots__ = ("_rows", "config", "id", "internal", "name")

    def __init__(self, name: str, raw: dict[str, Any]) -> None:
        self.name = name
        self.id = bytes.fromhex(raw["id"])
        self.internal: bool = raw["internal"]
        self.config: dict[str, str] = raw["config"]
        self._rows: list[list[Any]] = raw["partitions"]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def partitions(self) -> list[PartitionInfo]:
        """All partitions in order of their index."""
        return [PartitionInfo(*row) for row in self._rows]

    def partition(self, index: int) -> PartitionInfo | None:
        """One partition, None when there is no such index."""
        return PartitionInfo(*self._rows[index]) if 0 <= index < len(self._rows) else None


class Topics(Mapping[str, Topic]):
    """Topics by name, built at first use."""

    __slots__ = ("_cache", "_raw")

    def __init__(self, raw: dict[str, dict[str, Any]]) -> None:
        self._raw = raw
        self._cache: dict[str, Topic] = {}

    def __getitem__(self, name: str) -> Topic:
        topic = self._cache.get(name)
        if topic is None:
            topic = self._cache[name] = Topic(name, self._raw[name])
        return topic

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Any:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class SnapshotIdentity:
    """Identity of a snapshot: an object that outlives it, such as an idle connection, keeps this and not the data."""

    __slots__ = ()


class Snapshot:
    """The cluster's metadata at one version; immutable."""

    def __init__(self, raw: dict[str, Any], static: Mapping[str, Any] | None = None) -> None:
        self.identity = SnapshotIdentity()
        self.version: int = raw["version"]
        self.cluster_id: str = raw["cluster_id"]
        self.controller_id: int = raw["controller_id"]
        self.security: int = raw.get("security", 0)  # the version of the security metadata that belongs to it
        self.controller_progress: ControllerProgress = tuple(raw.get("heard", NO_PROGRESS))
        self.brokers = {b["id"]: _broker(b) for b in raw["brokers"]}
        self.protocols: dict[str, str] = raw.get("protocols", {})  # of this broker's listeners, by name
        self.topics = Topics(raw["topics"])
        self.admitted = _admitted(raw)
        self._dynamic: dict[str, dict[str, str]] = raw["dynamic"]["brokers"]
        self._in_force = {who: configdef.in_force(configs) for who, configs in self._dynamic.items()}
        self._ids: dict[str, str] | None = None
        self._static = static or {}
        self._resolved: dict[str, dict[str, Any]] = {}
        self._quotas: Mapping[Entity, Mapping[str, float]] | None = None
        self._raw = raw

    @classmethod
    def parse(cls, blob: bytes, static: Mapping[str, Any] | None = None) -> Snapshot:
        """The snapshot in a published blob; `static` is the broker's own typed config, the base of topic configs."""
        return cls(json.loads(blob), static)

    @classmethod
    def empty(cls, static: Mapping[str, Any] | None = None) -> Snapshot:
        """The snapshot before the first publication: version 0, no broker, no topic."""
        return cls(raw_snapshot(0, "", -1, [], {}, {}), static)

    def encode(self) -> bytes:
        """The blob to publish."""
        return json.dumps(self._raw, separators=(",", ":")).encode()

    def by_id(self, topic_id: bytes) -> str | None:
        """The name of the topic with this 16-byte id."""
        if self._ids is None:
            self._ids = {topic["id"]: name for name, topic in self._raw["topics"].items()}
        return self._ids.get(topic_id.hex())

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """One partition, None when topic or partition is unknown."""
        return self.topics[topic].partition(index) if topic in self.topics else None

    @property
    def quota_paths(self) -> dict[str, dict[str, float]]:
        """Client quotas by path (cluster.tree.quota_nodes): equal in two snapshots between which no quota changed."""
        found: dict[str, dict[str, float]] = self._raw.get("quotas", {})
        return found

    @property
    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """Client quotas by entity."""
        if self._quotas is None:
            self._quotas = quota_nodes.by_entity(self.quota_paths)
        return self._quotas

    def overrides(self, name: str) -> dict[str, str]:
        """topic -> value as text, for the topics that override the config `name`; builds no Topic."""
        topics = self._raw["topics"].items()
        return {topic: raw["config"][name] for topic, raw in topics if name in raw["config"]}

    def slots(self) -> dict[int, tuple[str, int, PartitionInfo]]:
        """slot -> (topic, index, partition) of every partition."""
        return {
            info.slot: (name, index, info)
            for name, topic in self.topics.items()
            for index, info in enumerate(topic.partitions)
        }

    def here(self) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, slot) of all partitions that have a slot on this broker.

        Their logs are here even where the broker is not among the replicas: the logs of replicas that were moved away
        while it was down stay until a controller has sent its full list of replicas
        (broker.controller.replicas.stray_replicas).
        """
        for name, topic in self.topics.items():
            for index, info in enumerate(topic.partitions):
                if info.slot >= 0:
                    yield name, index, info.slot

    def dynamic_config(self, broker: int | None) -> dict[str, str]:
        """Dynamic broker configs as set: of one broker, or (None) the cluster-wide defaults."""
        return self._dynamic.get("" if broker is None else str(broker), {})

    def dynamic_layers(self, broker: int) -> tuple[dict[str, str], ...]:
        """Dynamic broker configs in force for `broker`, most specific first."""
        return self._in_force.get(str(broker), {}), self._in_force.get("", {})

    def broker_config(self, name: str, broker: int) -> Any:
        """The typed value of a broker config in force: dynamic, static, default."""
        for layer in self.dynamic_layers(broker):
            if name in layer:
                return configdef.parse(name, layer[name])
        value = self._static.get(name)
        return configdef.broker_default(name) if value is None else value

    def topic_config(self, topic: str, broker: int | None = None) -> dict[str, Any]:
        """All topic configs of `topic` as typed values, resolved against the static and dynamic broker configs.

        `broker` defaults to the one whose static config was given. KeyError: no such topic. Cached.
        """
        resolved = self._resolved.get(topic)
        if resolved is None:
            layers = self.dynamic_layers(self._own_id() if broker is None else broker)
            resolved = configdef.resolve_topic(self.topics[topic].config, layers, self._static)
            _bound_timestamps(resolved)
            self._resolved[topic] = resolved
        return resolved

    def check_overrides(self, configs: Mapping[str, str]) -> None:
        """ConfigError unless these are valid topic overrides with the static and dynamic broker configs."""
        configdef.validate_topic(configs, self.dynamic_layers(self._own_id()), self._static)

    def _own_id(self) -> int:
        """This broker's id, also while it is not registered: other brokers' configs do not apply to it."""
        own: int = self._static.get("broker.id", -1)
        return own if own >= 0 else min(self.brokers, default=0)


def _admitted(raw: dict[str, Any]) -> Admitted:
    """Which connections belong to brokers; none when the snapshot does not contain them."""
    admitted = raw.get("admitted")
    return Admitted(**admitted) if admitted else NOBODY


def _broker(raw: dict[str, Any]) -> Broker:
    endpoints = {name: (host, port) for name, (host, port) in raw["endpoints"].items()}
    return Broker(raw["id"], raw["rack"], endpoints)


def _bound_timestamps(config: dict[str, Any]) -> None:
    """Use message.timestamp.difference.max.ms for the two newer bounds where they are not set (KIP-937)."""
    unset = configdef.topic_default("message.timestamp.difference.max.ms")
    both = config["message.timestamp.difference.max.ms"]
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if config[name] == unset and both != unset:
            config[name] = both


def raw_snapshot(
    version: int,
    cluster_id: str,
    controller_id: int,
    brokers: list[dict[str, Any]],
    topics: dict[str, dict[str, Any]],
    dynamic: dict[str, dict[str, str]],
    admitted: Admitted = NOBODY,
    progress: ControllerProgress = NO_PROGRESS,
    security: int = 0,
    quotas: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    protocols: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The JSON object of a snapshot.

    A topic is {"id": 32 hex, "internal": bool, "config": {name: text}, "partitions": rows of PartitionInfo};
    a broker {"id", "rack", "endpoints": {listener: [host, port]}}; `dynamic` maps "" (the cluster-wide default)
    and broker ids to dynamic broker configs as text. `progress` is for the next controller process. `security` is the
    version of the security metadata that belongs to it. `quotas` has client quotas by path (cluster.tree.quota_nodes).
    `protocols` has the listeners of this broker, with their security protocols; none: they are as at the start.
    """
    return {
        "version": version,
        "cluster_id": cluster_id,
        "controller_id": controller_id,
        "brokers": brokers,
        "topics": topics,
        "dynamic": {"brokers": dynamic, "topics_default": {}},
        "admitted": admitted.raw,
        "heard": progress,
        "security": security,
        "quotas": dict(quotas),
        "protocols": dict(protocols),
    }


def first_partitions(topics: dict[str, dict[str, Any]], shown: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The topics of a snapshot; each topic in `shown` has only that many first partitions, and 0 leaves it out."""
    if not shown:
        return topics
    return {
        name: topic if name not in shown else {**topic, "partitions": topic["partitions"][: shown[name]]}
        for name, topic in topics.items()
        if shown.get(name, 1)
    }
