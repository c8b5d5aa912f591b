"""Topic configs: all of Kafka 3.9, with its names, types, defaults and checks, and ours (`odradek.`)."""

from __future__ import annotations

import re

from odradek.cluster.configs.configtypes import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    ConfigKey,
    at_least,
    between,
    list_of,
    matches,
    one_of,
    or_value,
)

RELEASE = matches(
    r"0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)(\.\d+)?(-IV\d)?|[1-4]\.\d+(\.\d+)?(-IV\d)?",
    "a Kafka release such as 2.8 or 3.0-IV1",
)
_PAIR = re.compile(r"(\d+:\d+)?", re.ASCII)


def throttled(value: list[str]) -> str | None:
    """`*` for all replicas, or a list of replicas; Kafka accepts empty elements in it."""
    if "".join(value) == "*" or all(map(_PAIR.fullmatch, value)):
        return None
    return "must be *, or pairs of partition:broker such as 0:1,1:2"


def untiered(value: bool) -> str | None:
    """Only false: Kafka also refuses true without tiered storage, or with ZooKeeper."""
    return "there is no tiered storage" if value else None


# fmt: off
TOPIC_CONFIGS = (
    ConfigKey(
        "segment.bytes", INT, "1073741824", MEDIUM,
        "Size in bytes at which the active segment file is closed and a new one begun. Retention and "
        "compaction work on whole closed segments.",
        check=at_least(14),
    ),
    ConfigKey(
        "segment.ms", LONG, "604800000", MEDIUM,
        "Age in milliseconds at which the active segment is closed even if it is not full, so that "
        "old records can expire.",
        check=at_least(1),
    ),
    ConfigKey(
        "segment.jitter.ms", LONG, "0", MEDIUM,
        "Largest random time taken off segment.ms, so that partitions do not all roll at once.",
        check=at_least(0),
    ),
    ConfigKey(
        "segment.index.bytes", INT, "10485760", MEDIUM,
        "Largest size of a segment's offset index; a full index closes the segment.",
        check=at_least(4),
    ),
    ConfigKey(
        "flush.messages", LONG, "9223372036854775807", MEDIUM,
        "Number of records after which the log is synced to disk; the append that reaches it waits "
        "for the sync. 1 syncs every write.",
        check=at_least(1),
    ),
    ConfigKey(
        "flush.ms", LONG, "9223372036854775807", MEDIUM,
        "Longest time in milliseconds that written records stay unsynced.",
        check=at_least(0),
    ),
    ConfigKey(
        "retention.bytes", LONG, "-1", MEDIUM,
        "Size a partition may reach before its oldest segments are deleted; -1 is no limit. Counts "
        "for each partition.",
    ),
    ConfigKey(
        "retention.ms", LONG, "604800000", MEDIUM,
        "How long records are kept, in milliseconds, when the cleanup policy deletes; -1 keeps them "
        "forever.",
        check=at_least(-1),
    ),
    ConfigKey(
        "max.message.bytes", INT, "1048588", MEDIUM,
        "Largest record batch accepted, in bytes after compression.",
        check=at_least(0),
    ),
    ConfigKey(
        "index.interval.bytes", INT, "4096", MEDIUM,
        "Bytes of log between two entries of the offset index. Smaller finds offsets in fewer bytes "
        "and makes larger indexes.",
        check=at_least(0),
    ),
    ConfigKey(
        "delete.retention.ms", LONG, "86400000", MEDIUM,
        "How long tombstones of a compacted topic are kept, in milliseconds, so that a reader which "
        "began at the start still sees them.",
        check=at_least(0),
    ),
    ConfigKey(
        "min.compaction.lag.ms", LONG, "0", MEDIUM,
        "Shortest time in milliseconds for which a record of a compacted topic stays as it was "
        "written.",
        check=at_least(0),
    ),
    ConfigKey(
        "max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM,
        "Longest time in milliseconds for which a record of a compacted topic may wait for "
        "compaction.",
        check=at_least(1),
    ),
    ConfigKey(
        "file.delete.delay.ms", LONG, "60000", MEDIUM,
        "Milliseconds between the renaming of a deleted file and its removal from disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5", MEDIUM,
        "Share of a compacted log that must be uncompacted before the compactor takes it up, between "
        "0 and 1.",
        check=between(0, 1),
    ),
    ConfigKey(
        "cleanup.policy", LIST, "delete", MEDIUM,
        "What becomes of old segments: delete by age and size, compact to the last record of each "
        "key, or both.",
        check=list_of("compact", "delete"),
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", MEDIUM,
        "Whether a replica that is not in sync may become leader when no other is left, at the price "
        "of lost records.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", MEDIUM,
        "How many replicas must have a write before acks=all is answered; with fewer in sync, "
        "producers get NOT_ENOUGH_REPLICAS.",
        check=at_least(1),
    ),
    ConfigKey(
        "compression.type", STRING, "producer", MEDIUM,
        "Codec in which batches are stored: gzip, snappy, lz4, zstd, uncompressed, or producer to "
        "keep what the producer sent.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey(
        "compression.gzip.level", INT, "-1", MEDIUM,
        "Level for gzip when compression.type is gzip: 1 to 9, or -1 for its default.",
        check=or_value(-1, between(1, 9)),
    ),
    ConfigKey(
        "compression.lz4.level", INT, "9", MEDIUM,
        "Level for lz4 when compression.type is lz4: 1 to 17.",
        check=between(1, 17),
    ),
    ConfigKey(
        "compression.zstd.level", INT, "3", MEDIUM,
        "Level for zstd when compression.type is zstd: -131072 to 22.",
        check=between(-131072, 22),
    ),
    ConfigKey(
        "preallocate", BOOLEAN, "false", MEDIUM,
        "Whether the space of a new segment is reserved on disk when it is created.",
    ),
    ConfigKey(
        "message.format.version", STRING, "3.0-IV1", MEDIUM,
        "Former releases of Kafka kept records in the format of that release. Since 3.0 all are stored as magic 2.",
        check=RELEASE, works=False,
    ),
    ConfigKey(
        "message.timestamp.type", STRING, "CreateTime", MEDIUM,
        "Which time a record carries: CreateTime as the producer set it, or LogAppendTime as the "
        "broker wrote it.",
        check=one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "message.timestamp.difference.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Superseded by message.timestamp.before.max.ms and message.timestamp.after.max.ms; bounds "
        "both when they are not set.",
        check=at_least(0),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM,
        "How far in the past a record's timestamp may lie, in milliseconds before the broker's clock.",
        check=at_least(0),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", LONG, "9223372036854775807", MEDIUM,
        "How far in the future a record's timestamp may lie, in milliseconds after the broker's "
        "clock.",
        check=at_least(0),
    ),
    ConfigKey(
        "leader.replication.throttled.replicas", LIST, "", MEDIUM,
        "Replicas that their leader sends no faster than leader.replication.throttled.rate: "
        "partition:broker pairs, the broker being the leader; or * for all.",
        check=throttled,
    ),
    ConfigKey(
        "follower.replication.throttled.replicas", LIST, "", MEDIUM,
        "Replicas that copy no faster than follower.replication.throttled.rate: partition:broker "
        "pairs, the broker being the follower; or * for all.",
        check=throttled,
    ),
    ConfigKey(
        "message.downconversion.enable", BOOLEAN, "true", LOW,
        "Whether batches are converted for consumers too old for the stored format; otherwise they "
        "get UNSUPPORTED_VERSION.",
    ),
    ConfigKey(
        "remote.storage.enable", BOOLEAN, "false", MEDIUM,
        "Tiered storage, which this broker does not have: only false.",
        check=untiered, works=False,
    ),
    ConfigKey(
        "local.retention.ms", LONG, "-2", MEDIUM,
        "Local share of retention.ms under tiered storage; -2 follows retention.ms.",
        check=at_least(-2), works=False,
    ),
    ConfigKey(
        "local.retention.bytes", LONG, "-2", MEDIUM,
        "Local share of retention.bytes under tiered storage; -2 follows retention.bytes.",
        check=at_least(-2), works=False,
    ),
    ConfigKey(
        "remote.log.copy.disable", BOOLEAN, "false", MEDIUM,
        "Tiered storage, which this broker does not have.",
        check=untiered, works=False,
    ),
    ConfigKey(
        "remote.log.delete.on.disable", BOOLEAN, "false", MEDIUM,
        "Tiered storage, which this broker does not have.",
        check=untiered, works=False,
    ),
    ConfigKey(
        "odradek.visible.after.flush", BOOLEAN, "false", MEDIUM,
        "Whether consumers see a record only after it has been synced to disk: the high watermark then "
        "stays at the synced offset, and so do answers to acks=all.",
    ),
    ConfigKey(
        "odradek.producers.max", INT, "100000", LOW,
        "Producer ids that a partition remembers; those that wrote last are kept, and those with an open transaction.",
        check=at_least(100),
    ),
    ConfigKey(
        "odradek.producers.trusted", BOOLEAN, "false", MEDIUM,
        "Whether producers' batches are stored by their headers and checksums alone, without a look at their records. "
        "It saves unpacking them; but a batch that no consumer can read is stored, and stops its consumers.",
    ),
    ConfigKey(
        "odradek.retention.unknown", BOOLEAN, "false", MEDIUM,
        "True for a topic of log directories that were taken over, while its cleanup.policy, retention.ms "
        "and retention.bytes cannot be known: nothing of it is deleted or compacted. Setting or unsetting "
        "one of these three ends it.",
    ),
)
