"""Broker configs that this broker reads, alone or in a cluster, with Kafka 3.9's defaults.

One default differs from Kafka's: `listeners` is loopback only, because there is no authentication yet.
"""

from __future__ import annotations

import re

from odradek.cluster.configs.configtypes import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigKey,
    at_least,
    between,
    list_of,
    one_of,
    or_value,
)
from odradek.protocol.wire import INT32_MAX

_HOST = re.compile(r"[0-9a-zA-Z\-%._:\[\]]+")  # Kafka's Utils.validHostPattern, and the brackets of IPv6


def connection_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: `host:number,…`. Raises ValueError."""
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, number = entry.rpartition(":")
        if not (colon and _HOST.fullmatch(host.strip()) and number.strip().isdecimal() and int(number) <= INT32_MAX):
            raise ValueError(f"max.connections.per.ip.overrides: {entry!r} is not of the form host:number")
        found[host.strip().strip("[]")] = int(number)
    return found


def _overrides(value: str) -> str | None:
    try:
        connection_overrides(value)
    except ValueError as error:
        return str(error)
    return None


_SERVER = re.compile(r"([^\s:\[\]]+|\[[^\s\[\]]+\])(:(?P<port>[0-9]{1,5}))?")


def _servers(value: str) -> str | None:
    found = [_SERVER.fullmatch(part.strip()) for part in value.partition("/")[0].split(",")]
    good = all(server is not None and int(server["port"] or 0) <= 0xFFFF for server in found)
    return None if good or not value else "must be host:port,host:port/chroot"


# fmt: off
BROKER_CONFIGS = (
    ConfigKey(
        "zookeeper.connect", STRING, None, HIGH,
        "ZooKeeper servers as host:port,host:port/chroot. Without it the metadata tree is kept in a "
        "file of the first log directory.",
        check=_servers,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms", INT, "18000", HIGH,
        "Time without contact after which ZooKeeper declares this broker gone.",
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms", INT, None, HIGH,
        "Longest wait for the first connection to ZooKeeper; unset: the session timeout.",
    ),
    ConfigKey(
        "zookeeper.set.acl", BOOLEAN, "false", HIGH,
        "Whether only the brokers may change what they create in ZooKeeper (they need odradek.zookeeper.auth for it).",
    ),
    ConfigKey(
        "broker.id.generation.enable", BOOLEAN, "true", MEDIUM,
        "Whether a broker without broker.id is given one above reserved.broker.max.id.",
    ),
    ConfigKey(
        "reserved.broker.max.id", INT, "1000", MEDIUM,
        "Largest number that may be set as broker.id; given ids lie above.",
        check=at_least(0),
    ),
    ConfigKey("broker.id", INT, "-1", HIGH, "This broker's number in the cluster; -1 has one given."),
    ConfigKey(
        "message.max.bytes", INT, "1048588", HIGH,
        "Largest record batch accepted, in bytes after compression. Topics override it with "
        "max.message.bytes.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "broker.rack", STRING, None, MEDIUM,
        "Rack of this broker, told to clients and used to spread replicas.",
    ),
    ConfigKey(
        "controlled.shutdown.enable", BOOLEAN, "true", MEDIUM,
        "Whether leadership is moved away before a clean stop.",
    ),
    ConfigKey(
        "controlled.shutdown.max.retries", INT, "3", MEDIUM,
        "How often a broker that stops asks again for its leadership to be moved.",
    ),
    ConfigKey(
        "controlled.shutdown.retry.backoff.ms", LONG, "5000", MEDIUM,
        "Pause before it asks again.",
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", HIGH, "Whether topics can be deleted."),
    ConfigKey(
        "compression.type", STRING, "producer", HIGH,
        "Codec in which batches are stored: gzip, snappy, lz4, zstd, uncompressed, or producer to "
        "keep what the producer sent.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level", INT, "-1", MEDIUM,
        "Level for gzip when compression.type is gzip: 1 to 9, or -1 for its default.",
        check=or_value(-1, between(1, 9)), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.lz4.level", INT, "9", MEDIUM,
        "Level for lz4 when compression.type is lz4: 1 to 17.",
        check=between(1, 17), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.zstd.level", INT, "3", MEDIUM,
        "Level for zstd when compression.type is zstd: -131072 to 22.",
        check=between(-131072, 22), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots", INT, "1000", MEDIUM,
        "Number of incremental fetch sessions kept.",
        check=at_least(0),
    ),
    ConfigKey(
        "fetch.max.bytes", INT, "57671680", MEDIUM,
        "Largest answer to one fetch request.",
        check=at_least(1024),
    ),
    ConfigKey(
        "max.request.partition.size.limit", INT, "2000", MEDIUM,
        "Largest number of partitions in one DescribeTopicPartitions answer.",
        check=at_least(1),
    ),
    ConfigKey(
        "metadata.log.dir", STRING, None, HIGH,
        "Where KRaft's metadata log is, when log.dirs of an Apache Kafka are taken over; unset: in one of log.dirs.",
    ),
    ConfigKey("node.id", INT, "-1", HIGH, "Another name for broker.id."),
    ConfigKey(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092", HIGH,
        "Where the broker listens: NAME://host:port, comma-separated. 0.0.0.0 or no host is every "
        "interface. Unlike Kafka's, the default is loopback only: there is no authentication yet.",
        mode=PER_BROKER, at_start=True,
    ),
    ConfigKey(
        "advertised.listeners", STRING, None, HIGH,
        "Addresses told to clients, when they differ from listeners.",
        mode=PER_BROKER, at_start=True,
    ),
    ConfigKey(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW,
        "Security protocol of each listener name, as NAME:PROTOCOL pairs.",
        mode=PER_BROKER, at_start=True,
    ),
    ConfigKey(
        "controller.listener.names", STRING, None, HIGH,
        "Listeners that are Kafka's controllers' alone: this broker leaves them out.",
    ),
    ConfigKey(
        "socket.send.buffer.bytes", INT, "102400", HIGH,
        "SO_SNDBUF of client sockets; -1 leaves the kernel's choice.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes", INT, "102400", HIGH,
        "SO_RCVBUF of client sockets; -1 leaves the kernel's choice.",
    ),
    ConfigKey(
        "socket.request.max.bytes", INT, "104857600", HIGH,
        "Largest request; a connection that announces a larger one is closed.",
        check=at_least(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size", INT, "50", MEDIUM,
        "Connections that may wait to be accepted; unless it is set, as many as Linux allows (4096).",
        check=at_least(1),
    ),
    ConfigKey(
        "max.connections.per.ip", INT, "2147483647", MEDIUM,
        "Largest number of connections from one address.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides", STRING, "", MEDIUM,
        "Exceptions to max.connections.per.ip, as address:count pairs.",
        check=_overrides, mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections", INT, "2147483647", MEDIUM,
        "Largest number of client connections.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connection.creation.rate", INT, "2147483647", MEDIUM,
        "Largest number of new connections a second.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey("connections.max.idle.ms", LONG, "600000", MEDIUM, "Connections idle for longer are closed."),
    ConfigKey(
        "controller.socket.timeout.ms", INT, "30000", MEDIUM,
        "Time limit of requests from the controller to brokers.",
    ),
    ConfigKey(
        "default.replication.factor", INT, "1", MEDIUM,
        "Replication factor of topics created automatically or with -1.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms", LONG, "30000", HIGH,
        "A follower that has not caught up for this long leaves the in-sync set.",
    ),
    ConfigKey(
        "replica.socket.timeout.ms", INT, "30000", HIGH,
        "Time limit of a follower's fetch on the network.",
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes", INT, "65536", HIGH,
        "SO_RCVBUF of a follower's connections. -1, or if it is not set: the kernel chooses, which is faster.",
    ),
    ConfigKey(
        "replica.fetch.max.bytes", INT, "1048576", MEDIUM,
        "Bytes a follower asks for of each partition.",
        check=at_least(0),
    ),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", HIGH, "How long a follower's fetch waits for data."),
    ConfigKey(
        "replica.fetch.backoff.ms", INT, "1000", MEDIUM,
        "Pause of a follower after a failed fetch.",
        check=at_least(0),
    ),
    ConfigKey(
        "replica.selector.class", STRING, None, MEDIUM,
        "Kafka's RackAwareReplicaSelector has consumers read from a replica in their own rack (KIP-392).",
    ),
    ConfigKey("replica.fetch.min.bytes", INT, "1", HIGH, "Bytes for which a follower's fetch waits."),
    ConfigKey(
        "replica.fetch.response.max.bytes", INT, "10485760", MEDIUM,
        "Bytes a follower asks for in one fetch.",
        check=at_least(0),
    ),
    ConfigKey(
        "num.replica.fetchers", INT, "1", HIGH,
        "Connections to each leader from which a follower copies.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "leader.replication.throttled.rate", LONG, "9223372036854775807", MEDIUM,
        "Bytes a second that this broker sends at most of the replicas in topics' "
        "leader.replication.throttled.replicas. Set it while the broker runs.",
        check=at_least(0), mode=CLUSTER_WIDE, internal=True,
    ),
    ConfigKey(
        "follower.replication.throttled.rate", LONG, "9223372036854775807", MEDIUM,
        "Bytes a second that this broker copies at most of the replicas in topics' "
        "follower.replication.throttled.replicas. Set it while the broker runs.",
        check=at_least(0), mode=CLUSTER_WIDE, internal=True,
    ),
    ConfigKey(
        "replication.quota.window.num", INT, "11", LOW,
        "Samples over which the rate of throttled replication is taken.",
        check=at_least(1),
    ),
    ConfigKey(
        "replication.quota.window.size.seconds", INT, "1", LOW,
        "Length of each of these samples.",
        check=at_least(1),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", LONG, "5000", HIGH,
        "How often high watermarks are written to disk.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable", BOOLEAN, "true", HIGH,
        "Whether leadership goes back to preferred replicas by itself.",
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage", INT, "10", HIGH,
        "Share of partitions not led by their preferred replica from which leadership is rebalanced.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", LONG, "300", HIGH,
        "How often leadership balance is looked at.",
        check=at_least(1),
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", HIGH,
        "Whether a replica that is not in sync may become leader when no other is left, at the price "
        "of lost records.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey("inter.broker.listener.name", STRING, None, MEDIUM, "Listener used between brokers."),
    ConfigKey(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM,
        "Without inter.broker.listener.name: brokers use the listener of this security protocol among themselves.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "group.min.session.timeout.ms", INT, "6000", MEDIUM,
        "Shortest session timeout a group member may ask for.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms", INT, "1800000", MEDIUM,
        "Longest session timeout a group member may ask for.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms", INT, "3000", MEDIUM,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    ConfigKey(
        "group.max.size", INT, "2147483647", MEDIUM,
        "Largest number of members of a group.",
        check=at_least(1),
    ),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", HIGH, "Largest metadata text of an offset commit."),
    ConfigKey(
        "offsets.topic.replication.factor", SHORT, "3", HIGH,
        "Replication factor of __consumer_offsets; fewer when there are fewer brokers.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.topic.num.partitions", INT, "50", HIGH,
        "Partitions of __consumer_offsets; must not change once it exists.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.topic.segment.bytes", INT, "104857600", HIGH,
        "Segment size of __consumer_offsets.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.topic.compression.codec", INT, "0", HIGH,
        "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        check=between(0, 4),
    ),
    ConfigKey(
        "offsets.retention.minutes", INT, "10080", HIGH,
        "How long offsets of an empty group or of a partition no longer subscribed are kept.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms", LONG, "600000", HIGH,
        "How often expired offsets are looked for.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.commit.timeout.ms", INT, "5000", HIGH,
        "Longest wait of an offset commit for its replicas.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.cleaner.threads", INT, "1", MEDIUM,
        "Logs that are compacted at the same time.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", MEDIUM,
        "Bytes a second compaction may read and write.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size", LONG, "134217728", MEDIUM,
        "Memory of the compactor's key map.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size", INT, "524288", MEDIUM,
        "Memory for what compaction reads at once, half of it; it takes 4 MiB for each log at least.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", MEDIUM,
        "How full the compactor's key map may get.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms", LONG, "15000", MEDIUM,
        "Pause of the compactor when there is nothing to do.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", MEDIUM,
        "Share of a compacted log that must be uncompacted before the compactor takes it up, between "
        "0 and 1.",
        check=between(0, 1), mode=CLUSTER_WIDE,
    ),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true", MEDIUM, "Whether compacted topics are compacted."),
    ConfigKey(
        "log.cleaner.delete.retention.ms", LONG, "86400000", MEDIUM,
        "How long tombstones of a compacted topic are kept, in milliseconds, so that a reader which "
        "began at the start still sees them.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms", LONG, "0", MEDIUM,
        "Shortest time in milliseconds for which a record of a compacted topic stays as it was "
        "written.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM,
        "Longest time in milliseconds for which a record of a compacted topic may wait for "
        "compaction.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.partitions", INT, "1", MEDIUM,
        "Partitions of topics created automatically or with -1.",
        check=at_least(1),
    ),
    ConfigKey("log.dir", STRING, "/tmp/kafka-logs", HIGH, "Data directory, when log.dirs is not set."),
    ConfigKey(
        "log.dirs", STRING, None, HIGH,
        "Data directories, comma-separated; partitions are spread over them.",
    ),
    ConfigKey(
        "log.segment.bytes", INT, "1073741824", HIGH,
        "Size in bytes at which the active segment file is closed and a new one begun. Retention and "
        "compaction work on whole closed segments.",
        check=at_least(14), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms", LONG, None, HIGH,
        "Age in milliseconds at which the active segment is closed even if it is not full, so that "
        "old records can expire.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.hours", INT, "168", HIGH,
        "As log.roll.ms, in hours; log.roll.ms wins.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.roll.jitter.ms", LONG, None, HIGH,
        "Largest random time taken off log.roll.ms, so that partitions do not all roll at once.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.jitter.hours", INT, "0", HIGH,
        "As log.roll.jitter.ms, in hours; log.roll.jitter.ms wins.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.retention.ms", LONG, None, HIGH,
        "How long records are kept, in milliseconds, when the cleanup policy deletes; -1 keeps them "
        "forever.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.minutes", INT, None, HIGH,
        "As log.retention.ms, in minutes; log.retention.ms wins.",
    ),
    ConfigKey(
        "log.retention.hours", INT, "168", HIGH,
        "As log.retention.ms, in hours; log.retention.ms and log.retention.minutes win.",
    ),
    ConfigKey(
        "log.retention.bytes", LONG, "-1", HIGH,
        "Size a partition may reach before its oldest segments are deleted; -1 is no limit. Counts "
        "for each partition.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.check.interval.ms", LONG, "300000", MEDIUM,
        "How often the janitor looks for segments to delete.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.cleanup.policy", LIST, "delete", MEDIUM,
        "What becomes of old segments: delete by age and size, compact to the last record of each "
        "key, or both.",
        check=list_of("compact", "delete"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.size.max.bytes", INT, "10485760", MEDIUM,
        "Largest size of a segment's offset index; a full index closes the segment.",
        check=at_least(4), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes", INT, "4096", MEDIUM,
        "Bytes of log between two entries of the offset index. Smaller finds offsets in fewer bytes "
        "and makes larger indexes.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.interval.messages", LONG, "9223372036854775807", HIGH,
        "Number of records after which the log is synced to disk; the append that reaches it waits "
        "for the sync. 1 syncs every write.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms", LONG, "60000", HIGH,
        "Milliseconds between the renaming of a deleted file and its removal from disk.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms", LONG, "9223372036854775807", HIGH,
        "How often the janitor looks for logs to sync; used as log.flush.interval.ms when that is not "
        "set.",
    ),
    ConfigKey(
        "log.flush.interval.ms", LONG, None, HIGH,
        "Longest time in milliseconds that written records stay unsynced.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", INT, "60000", HIGH,
        "How often recovery points are written to disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", HIGH,
        "How often log start offsets are written to disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.preallocate", BOOLEAN, "false", MEDIUM,
        "Whether the space of a new segment is reserved on disk when it is created.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "auto.create.topics.enable", BOOLEAN, "true", HIGH,
        "Whether a topic is created when a client that allows it first asks for it.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", HIGH,
        "How many replicas must have a write before acks=all is answered; with fewer in sync, "
        "producers get NOT_ENOUGH_REPLICAS.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.type", STRING, "CreateTime", MEDIUM,
        "Which time a record carries: CreateTime as the producer set it, or LogAppendTime as the "
        "broker wrote it.",
        check=one_of("CreateTime", "LogAppendTime"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.difference.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Superseded by log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms; "
        "bounds both when they are not set.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM,
        "How far in the past a record's timestamp may lie, in milliseconds before the broker's clock.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms", LONG, "9223372036854775807", MEDIUM,
        "How far in the future a record's timestamp may lie, in milliseconds after the broker's "
        "clock.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.downconversion.enable", BOOLEAN, "true", LOW,
        "Whether batches are converted for consumers too old for the stored format; otherwise they "
        "get UNSUPPORTED_VERSION.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.state.log.min.isr", INT, "2", HIGH,
        "min.insync.replicas of __transaction_state.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", SHORT, "3", HIGH,
        "Replication factor of __transaction_state; fewer when there are fewer brokers.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.num.partitions", INT, "50", HIGH,
        "Partitions of __transaction_state; must not change once it exists.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, "104857600", HIGH,
        "Segment size of __transaction_state.",
        check=at_least(1),
    ),
    ConfigKey(
        "producer.id.expiration.ms", INT, "86400000", LOW,
        "How long the state of an idle producer id is kept.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms", INT, "600000", LOW,
        "How often idle producer ids are looked for.",
        check=at_least(1), internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms", INT, "604800000", HIGH,
        "How long an idle transactional id is kept.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms", INT, "900000", HIGH,
        "Longest transaction timeout a producer may ask for.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable", BOOLEAN, "true", LOW,
        "Whether the coordinator is asked before a transactional batch opens a transaction in a partition (KIP-890).",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", LOW,
        "How often timed-out transactions are looked for.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", LOW,
        "How often transactional ids that nobody has used for transactional.id.expiration.ms are looked for.",
        check=at_least(1),
    ),
)
