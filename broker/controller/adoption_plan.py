"""Plans the adoption of log directories. `odradek adopt --dry-run` prints the plan, broker.controller.adopt_log_dirs
carries it out.

Each `<topic>-<partition>` directory becomes a partition of the topic of that name. The topic's id and configs come from
the metadata log of the KRaft cluster that filled the directories, if that log is readable. Otherwise the topic id comes
from `partition.metadata` and the retention is unknown: then all records are kept (cluster.configs.adopted_configs).

A directory with a topic id other than the topic's, or whose topic is deleted according to the metadata log, becomes a
stray, which no process deletes. A directory whose topic is not in the metadata log is adopted: the log may end before
the topic was created.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.controller import kraft_log
from odradek.cluster.configs import adopted_configs, configdef
from odradek.cluster.configs.adopted_configs import RETENTION, UNKNOWN_RETENTION
from odradek.cluster.decisions import planning
from odradek.cluster.rules import topicnames
from odradek.cluster.tree.kraft_metadata import BROKER, TOPIC, Metadata, MetadataPartition, MetadataTopic
from odradek.storage.dirs import boot_id, logdirs
from odradek.storage.files import checkpoints, names
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.segment.epochs import EpochCache

NO_METADATA = "the directory has no metadata log of KRaft"
_NOT_MENTIONED = "the metadata log does not mention this topic"
_UNCOMMITTED = "not certain to be committed: "
_UNREADABLE = "not understood: "


@dataclass
class FoundDirectory:
    """One partition directory."""

    path: Path
    topic_id: bytes | None


@dataclass
class TopicAdoption:
    """One topic to create from its directories. `unknown` says why its retention is unknown; "" when it is known."""

    name: str
    id: bytes | None
    partitions: int
    found: dict[int, FoundDirectory]
    configs: dict[str, str] = field(default_factory=dict)
    unknown: str = ""
    epochs: dict[int, int] = field(default_factory=dict)  # by partition
    notes: list[str] = field(default_factory=list)


@dataclass
class AdoptionPlan:
    """The whole plan. `strays` are set aside, each with its reason; `broker_configs` are dynamic ones, by broker id,
    None for the cluster-wide default."""

    topics: list[TopicAdoption] = field(default_factory=list)
    strays: dict[tuple[str, int], tuple[Path, str]] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    doubtful_defaults: set[str] = field(default_factory=set)  # dynamic broker configs whose value is uncertain
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def plan(log_dirs: Sequence[str], broker: int, config: BrokerConfig) -> AdoptionPlan:
    """Plan what `broker` adopts from its log directories. Changes nothing.

    Raises LogDirError for a sub-directory that is not a partition's, OSError for disk errors.
    """
    topics, marked = _found(log_dirs)
    metadata, why, notes = _metadata(log_dirs, config)
    adoption = AdoptionPlan(notes=[*notes, *marked])
    if metadata is not None:
        _take_broker_configs(adoption, metadata, broker)
        adoption.notes += _kept(metadata)
    for name in sorted({*topics, *(_own_topics(metadata, broker) if metadata else ())}):
        wrong = topicnames.problem(name)
        if wrong:
            adoption.notes.append(f"ignored: directories of {name}, which is not a topic name: {wrong}")
        else:
            _Topic(adoption, name, topics.get(name, {}), metadata, why).decide(broker, config)
    _note_defaults(adoption, config)
    return adoption


def _note_defaults(adoption: AdoptionPlan, config: BrokerConfig) -> None:
    """Warn of topics whose retention depends on the former broker's server.properties, which no directory holds."""
    levels = [*adoption.broker_configs.values(), config.originals]
    dynamic = tuple(reversed(adoption.broker_configs.values()))  # broker's before cluster-wide
    topics = [topic.name for topic in adoption.topics if _ages_by_default(topic, dynamic, config)]
    if topics and not any(name in level for level in levels for name in _LOG_RETENTION):
        adoption.warnings.append(
            f"no retention.ms override, and none of {', '.join(_LOG_RETENTION)} is set (the former broker may have had "
            f"one in its server.properties), so the default of 7 days applies: {', '.join(topics)}"
        )


_LOG_RETENTION = tuple(adopted_configs.broker_retention("retention.ms"))


def _ages_by_default(topic: TopicAdoption, dynamic: tuple[Mapping[str, str], ...], config: BrokerConfig) -> bool:
    policy = configdef.resolve_one("cleanup.policy", topic.configs, dynamic, config)
    return "delete" in policy and "retention.ms" not in topic.configs


def _found(log_dirs: Iterable[str]) -> tuple[dict[str, dict[int, FoundDirectory]], list[str]]:
    """Partition directories by topic, and notes on those marked as deleted, future or stray."""
    topics: dict[str, dict[int, FoundDirectory]] = {}
    marked: dict[str, list[str]] = {}
    for folder in log_dirs:
        for path, name in logdirs.partitions_in(folder):
            if name.mark:
                marked.setdefault(name.mark, []).append(str(path))
            else:
                topics.setdefault(name.topic, {})[name.partition] = FoundDirectory(path, _topic_id(path))
    notes = [f"{_MARKS[mark]}: {', '.join(paths)}" for mark, paths in sorted(marked.items())]
    return {topic: dict(sorted(found.items())) for topic, found in topics.items()}, notes


_MARKS = {
    names.DELETE_DIR: "deleted by the former broker, will be removed",
    names.FUTURE_DIR: "ignored, incomplete copies",
    names.STRAY_DIR: "ignored, stray replicas",
}


def _topic_id(path: Path) -> bytes | None:
    try:
        return checkpoints.read_partition_metadata(path)
    except CheckpointError:
        return None


def _metadata(log_dirs: Sequence[str], config: Mapping[str, Any]) -> tuple[Metadata | None, str, list[str]]:
    """The metadata if any, the reason why it leaves retention unknown, and notes for the log."""
    directory = kraft_log.find(log_dirs, config["metadata.log.dir"])
    if directory is None:
        return None, NO_METADATA, []
    wrong = _not_for(directory, log_dirs)
    if wrong:
        return None, wrong, [f"not read: {directory}"]
    try:
        metadata = kraft_log.load(directory)
        return metadata, _skipped(metadata), [f"metadata log: {directory}"]
    except kraft_log.UnreadableMetadataLog as error:
        return None, "the metadata log cannot be read", [f"not readable: {error}"]


def _skipped(metadata: Metadata) -> str:
    """Why the metadata is incomplete: a newer Kafka's records may hold configs; "" when it is complete."""
    keys = ", ".join(map(str, sorted(metadata.unknown)))
    return f"the metadata log has records that this version does not support: api keys {keys}" if keys else ""


def _not_for(directory: Path, log_dirs: Sequence[str]) -> str:
    """Why a metadata log does not apply to the log directories; "" when it does.

    An Odradek broker that lost its metadata may have changed configs since, also from shorter retention to longer.
    """
    if any(Path(folder, boot_id.FILE_NAME).exists() for folder in log_dirs):
        return "the metadata log is older than the changes of an Odradek broker here"
    clusters = {_cluster(folder) for folder in (str(directory.parent), *log_dirs)} - {None}
    return "the metadata log belongs to another cluster" if len(clusters) > 1 else ""


def _cluster(folder: str) -> str | None:
    try:
        meta = checkpoints.read_meta_properties(folder)
    except (CheckpointError, OSError):  # startup reports it
        return None
    return meta.cluster_id if meta else None


def _own_topics(metadata: Metadata, broker: int) -> list[str]:
    """Topics of which this broker has a replica."""
    return [
        name
        for name, topic in metadata.topics.items()
        if any(broker in partition.replicas for partition in topic.partitions.values())
    ]


def _take_broker_configs(adoption: AdoptionPlan, metadata: Metadata, broker: int) -> None:
    for level, name in ((None, ""), (broker, str(broker))):
        checked = adopted_configs.check_broker(metadata.configs.get((BROKER, name), {}))
        if checked.configs:
            adoption.broker_configs[level] = checked.configs
        doubts = metadata.doubts(BROKER, name, checked.configs)
        adoption.doubtful_defaults.update(checked.refused, doubts)
        if checked.refused:
            whose = "all brokers" if level is None else f"broker {level}"
            adoption.notes.append(f"dynamic configs of {whose} that are not taken over: {', '.join(checked.refused)}")


def _kept(metadata: Metadata) -> list[str]:
    counts = [f"{len(keys)} {kind}{'s' * (len(keys) != 1)}" for kind, keys in sorted(metadata.kept.items()) if keys]
    others = [name for kind, name in metadata.configs if kind not in (TOPIC, BROKER)]
    if others:
        counts.append(f"configs of {', '.join(sorted(others))}")
    return [f"not in force, kept only in the metadata log: {', '.join(counts)}"] if counts else []


class _Topic:
    """Decides on one topic."""

    def __init__(
        self, adoption: AdoptionPlan, name: str, found: dict[int, FoundDirectory], metadata: Metadata | None, why: str
    ) -> None:
        self.all = adoption
        self.metadata = metadata
        self.known: MetadataTopic | None = metadata.topics.get(name) if metadata else None
        self.topic = TopicAdoption(name, None, 0, found)
        self.why = why or ("" if self.known else _NOT_MENTIONED)

    def decide(self, broker: int, config: Mapping[str, Any]) -> None:
        topic = self.topic
        topic.id = self.known.id if self.known else _most_common(topic.found)
        self._put_strays_aside()
        parts = self.known.partitions if self.known else {}
        if not topic.found and not parts:
            return
        topic.partitions = 1 + max({*topic.found, *parts})
        if topic.partitions - len({*topic.found, *parts}) > planning.MOST_PARTITIONS:
            last = topic.found.get(topic.partitions - 1)
            self.all.warnings.append(f"ignored: {last and last.path}, too many partitions before it are missing")
            return
        for index in range(topic.partitions):
            topic.epochs[index] = self._epoch(topic.found.get(index), parts.get(index))
        self._note_partitions(broker)
        self._configure(config)
        self.all.topics.append(topic)

    def _epoch(self, found: FoundDirectory | None, part: MetadataPartition | None) -> int:
        """The partition's leader epoch: one above Kafka's, so that consumers detect what its log may have lost.

        Partitions of __transaction_state keep Kafka's epoch: partitions reject markers with an older coordinator epoch,
        and Kafka does not know our epochs if it takes the directory back. No client consumes that topic.
        """
        latest = _latest_epoch(found.path) if found else -1
        former = max(latest, part.leader_epoch if part else -1)
        return max(former, 0) if self.topic.name == topicnames.TRANSACTIONS else former + 1

    def _put_strays_aside(self) -> None:
        topic = self.topic
        deleted = self.metadata.deleted if self.metadata else set()
        for index, one in list(topic.found.items()):
            if one.topic_id in deleted:
                reason = "its topic is deleted"
            elif one.topic_id is not None and one.topic_id != topic.id:
                reason = "it belongs to another topic of that name"
            else:
                continue
            self.all.strays[topic.name, index] = (one.path, reason)
            del topic.found[index]

    def _note_partitions(self, broker: int) -> None:
        topic, parts = self.topic, self.known.partitions if self.known else {}
        empty = [index for index in range(topic.partitions) if index not in topic.found]
        behind = [index for index in topic.found if index in parts and _is_behind(broker, parts[index].isr)]
        if empty:
            topic.notes.append(f"without a directory, start empty: partitions {_join(empty)}")
        if behind:
            topic.notes.append(
                f"not in sync at the end of the metadata log, may lack records: partitions {_join(behind)}"
            )

    def _configure(self, config: Mapping[str, Any]) -> None:
        topic = self.topic
        configs = self.metadata.configs.get((TOPIC, topic.name), {}) if self.metadata and self.known else {}
        checked = adopted_configs.check_topic(configs)
        if checked.refused:
            topic.notes.append(f"configs that are not taken over: {', '.join(checked.refused)}")
        topic.unknown = self.why or self._doubt(checked.configs, checked.refused)
        internal = _internal(topic.name, config)
        if topic.unknown and internal:
            topic.unknown, topic.configs = "", internal
        else:
            topic.configs = checked.configs | (UNKNOWN_RETENTION if topic.unknown else {})

    def _doubt(self, configs: Mapping[str, str], refused: Iterable[str]) -> str:
        """Why the retention is unknown although the metadata log mentions the topic."""
        assert self.metadata is not None
        odd = [name for name in RETENTION if name in refused]
        if odd:
            return _UNREADABLE + ", ".join(odd)
        doubts = self.metadata.doubts(TOPIC, self.topic.name, RETENTION)
        for name in (name for name in RETENTION if name not in configs):
            doubts += [one for one in adopted_configs.broker_retention(name) if one in self.all.doubtful_defaults]
        return _UNCOMMITTED + ", ".join(doubts) if doubts else ""


def _internal(name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """The configs that an internal topic must have."""
    if name == topicnames.SHARE_GROUPS:
        return {name: value for name, value in UNKNOWN_RETENTION.items() if name in RETENTION}
    return {key: str(value) for key, value in planning.internal_configs(name, 1, config).items()}


def _most_common(found: Mapping[int, FoundDirectory]) -> bytes | None:
    ids = Counter(one.topic_id for one in found.values() if one.topic_id is not None)
    return max(ids, key=lambda one: ids[one]) if ids else None


def _is_behind(broker: int, isr: Sequence[int]) -> bool:
    """Whether other brokers were in sync and this one was not; Kafka 4's ISRs are empty after a clean stop of all."""
    return bool(isr) and broker not in isr


def _latest_epoch(directory: Path) -> int:
    try:
        return EpochCache.read(directory).latest
    except (CheckpointError, OSError):
        return -1


def _join(indexes: Iterable[int]) -> str:
    """`0-3, 5`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
