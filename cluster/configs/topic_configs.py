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
    return "tiered storage is not supported" if value else None


# fmt: off
TOPIC_CONFIGS = (
    ConfigKey(
        "segment.bytes", INT, "1073741824", MEDIUM,
        "Size in bytes at which the log rolls the active segment. Retention and compaction process only rolled "
        "segments.",
        check=at_least(14),
    ),
    ConfigKey(
        "segment.ms", LONG, "604800000", MEDIUM,
        "Age in milliseconds at which the log rolls the active segment even if it is not full, so that old records can "
        "expire.",
        check=at_least(1),
    ),
    ConfigKey(
        "segment.jitter.ms", LONG, "0", MEDIUM,
        "Largest random time subtracted from segment.ms, so that partitions do not all roll at once.",
        check=at_least(0),
    ),
    ConfigKey(
        "segment.index.bytes", INT, "10485760", MEDIUM,
        "Largest size of a segment's offset index in bytes; the log rolls the segment when its index is full.",
        check=at_least(4),
    ),
    ConfigKey(
        "flush.messages", LONG, "9223372036854775807", MEDIUM,
        "Number of records after which the log is synced to disk; the append that reaches it waits for the sync. 1 "
        "syncs every append.",
        check=at_least(1),
    ),
    ConfigKey(
        "flush.ms", LONG, "9223372036854775807", MEDIUM,
        "Longest time in milliseconds for which records stay unsynced.",
        check=at_least(0),
    ),
    ConfigKey(
        "retention.bytes", LONG, "-1", MEDIUM,
        "Size of a partition above which the broker deletes its oldest segments; -1 is no limit.",
    ),
    ConfigKey(
        "retention.ms", LONG, "604800000", MEDIUM,
        "How long the log keeps records under the cleanup policy delete, in milliseconds; -1 keeps them forever.",
        check=at_least(-1),
    ),
    ConfigKey(
        "max.message.bytes", INT, "1048588", MEDIUM,
        "Largest record batch accepted, in bytes after compression.",
        check=at_least(0),
    ),
    ConfigKey(
        "index.interval.bytes", INT, "4096", MEDIUM,
        "Bytes of log between two entries of the offset index. A smaller interval makes lookups more precise and "
        "indexes larger.",
        check=at_least(0),
    ),
    ConfigKey(
        "delete.retention.ms", LONG, "86400000", MEDIUM,
        "How long a compacted topic keeps tombstones, in milliseconds, so that a consumer that reads from the start "
        "still sees them.",
        check=at_least(0),
    ),
    ConfigKey(
        "min.compaction.lag.ms", LONG, "0", MEDIUM,
        "Minimum time in milliseconds for which a record of a compacted topic stays uncompacted.",
        check=at_least(0),
    ),
    ConfigKey(
        "max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM,
        "Maximum time in milliseconds for which a record of a compacted topic stays uncompacted.",
        check=at_least(1),
    ),
    ConfigKey(
        "file.delete.delay.ms", LONG, "60000", MEDIUM,
        "Milliseconds before a file that is marked as deleted is removed from disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5", MEDIUM,
        "Minimum ratio of the uncompacted part to the whole log at which the log cleaner compacts it, between 0 and 1.",
        check=between(0, 1),
    ),
    ConfigKey(
        "cleanup.policy", LIST, "delete", MEDIUM,
        "What happens to old segments: delete removes them by age and size, compact keeps the last record of each key; "
        "or both.",
        check=list_of("compact", "delete"),
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", MEDIUM,
        "Whether an out-of-sync replica can become leader if no in-sync replica is available, which can lose records.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", MEDIUM,
        "Minimum number of in-sync replicas for a produce request with acks=all; with fewer, producers get "
        "NOT_ENOUGH_REPLICAS.",
        check=at_least(1),
    ),
    ConfigKey(
        "compression.type", STRING, "producer", MEDIUM,
        "Codec of stored batches: gzip, snappy, lz4, zstd, uncompressed, or producer to keep the producer's codec.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey(
        "compression.gzip.level", INT, "-1", MEDIUM,
        "Level for gzip when compression.type is gzip: 1 to 9, or -1 for gzip's default.",
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
        "Whether the broker preallocates the disk space of a new segment.",
    ),
    ConfigKey(
        "message.format.version", STRING, "3.0-IV1", MEDIUM,
        "Record format of older Kafka releases. Since 3.0 all records are stored as magic 2.",
        check=RELEASE, works=False,
    ),
    ConfigKey(
        "message.timestamp.type", STRING, "CreateTime", MEDIUM,
        "Timestamp of a record: CreateTime, which the producer sets, or LogAppendTime, the time of the append.",
        check=one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "message.timestamp.difference.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Superseded by message.timestamp.before.max.ms and message.timestamp.after.max.ms; the limit for both if they "
        "are not set.",
        check=at_least(0),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Largest difference in milliseconds by which a record's timestamp may be before the broker's clock.",
        check=at_least(0),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Largest difference in milliseconds by which a record's timestamp may be after the broker's clock.",
        check=at_least(0),
    ),
    ConfigKey(
        "leader.replication.throttled.replicas", LIST, "", MEDIUM,
        "Replicas whose leader sends at most leader.replication.throttled.rate: pairs of partition:broker, where "
        "broker is the leader; or * for all.",
        check=throttled,
    ),
    ConfigKey(
        "follower.replication.throttled.replicas", LIST, "", MEDIUM,
        "Replicas that fetch at most at follower.replication.throttled.rate: pairs of partition:broker, where broker "
        "is the follower; or * for all.",
        check=throttled,
    ),
    ConfigKey(
        "message.downconversion.enable", BOOLEAN, "true", LOW,
        "Whether the broker converts batches for consumers that do not support the stored format; otherwise they get "
        "UNSUPPORTED_VERSION.",
    ),
    ConfigKey(
        "remote.storage.enable", BOOLEAN, "false", MEDIUM,
        "Tiered storage is not supported: must be false.",
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
        "Tiered storage is not supported: must be false.",
        check=untiered, works=False,
    ),
    ConfigKey(
        "remote.log.delete.on.disable", BOOLEAN, "false", MEDIUM,
        "Tiered storage is not supported: must be false.",
        check=untiered, works=False,
    ),
    ConfigKey(
        "odradek.visible.after.flush", BOOLEAN, "false", MEDIUM,
        "Whether consumers see a record only after it is synced to disk: the high watermark then stops at the synced "
        "offset, and produce requests with acks=all wait for the sync.",
    ),
    ConfigKey(
        "odradek.producers.max", INT, "100000", LOW,
        "Maximum number of producer ids whose state a partition keeps. Beyond it, the partition drops the ids that "
        "have been idle longest, but none with an open transaction.",
        check=at_least(100),
    ),
    ConfigKey(
        "odradek.producers.trusted", BOOLEAN, "false", MEDIUM,
        "Whether a leader validates only the header and the checksum of produced batches, not their records. This "
        "saves the decompression, but a faulty client can then store a batch that consumers cannot read and that "
        "blocks them.",
    ),
    ConfigKey(
        "odradek.retention.unknown", BOOLEAN, "false", MEDIUM,
        "True for a topic from log directories that the broker took over, while its cleanup.policy, retention.ms and "
        "retention.bytes are unknown: the broker neither deletes nor compacts its records. Setting or deleting one of "
        "these three configs removes it.",
    ),
)
