"""Broker configs that this broker reads, alone or in a cluster, with Kafka 3.9's defaults.

One default differs from Kafka's: `listeners` is loopback only, because it needs no authentication.
"""

from __future__ import annotations

import re

from odradek.cluster.configs.authorizer_configs import known_authorizer
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
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigKey,
    at_least,
    between,
    list_of,
    not_empty,
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
        "authorizer.class.name", STRING, "", LOW,
        "Class of Kafka's authorizer, for example kafka.security.authorizer.AclAuthorizer: the broker then checks each "
        "request against the ACLs. Empty: every client may do everything.",
        check=known_authorizer,
    ),
    ConfigKey(
        "zookeeper.connect", STRING, None, HIGH,
        "ZooKeeper servers as host:port,host:port/chroot. Without it, the broker keeps the metadata in a file in the "
        "first log directory.",
        check=_servers,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms", INT, "18000", HIGH,
        "Time without contact after which ZooKeeper expires this broker's session.",
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms", INT, None, HIGH,
        "Longest wait for the first connection to ZooKeeper. Unset: zookeeper.session.timeout.ms.",
    ),
    ConfigKey(
        "zookeeper.set.acl", BOOLEAN, "false", HIGH,
        "Whether the znodes that brokers create get an ACL that lets only brokers change them. Needs "
        "odradek.zookeeper.login.config, odradek.zookeeper.auth or zookeeper.ssl.keystore.location, and znodes "
        "that no other client may change.",
    ),
    ConfigKey(
        "zookeeper.ssl.client.enable", BOOLEAN, "false", MEDIUM,
        "Whether the broker connects to ZooKeeper over TLS.",
    ),
    ConfigKey(
        "zookeeper.clientCnxnSocket", STRING, None, MEDIUM,
        "What Kafka needs for zookeeper.ssl.client.enable: org.apache.zookeeper.ClientCnxnSocketNetty. This "
        "broker does not need it.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location", STRING, None, MEDIUM,
        "Key and certificates that the broker shows to ZooKeeper: a PEM or PKCS12 file.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM,
        "Password of zookeeper.ssl.keystore.location; of its key, if it is a PEM file.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.type", STRING, None, MEDIUM,
        "PEM or PKCS12. Unset: by the ending of the file, .pem or .p12.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location", STRING, None, MEDIUM,
        "Certificates of the issuers that ZooKeeper's certificate may have: a PEM or PKCS12 file. Unset: those of the "
        "system.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM,
        "Password of zookeeper.ssl.truststore.location, if it is a PKCS12 file.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.type", STRING, None, MEDIUM,
        "PEM or PKCS12. Unset: by the ending of the file, .pem or .p12.",
    ),
    ConfigKey(
        "zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW,
        "Version of TLS with ZooKeeper, if zookeeper.ssl.enabled.protocols is not set.",
    ),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None, LOW, "Versions of TLS with ZooKeeper."),
    ConfigKey(
        "zookeeper.ssl.cipher.suites", LIST, None, LOW,
        "Cipher suites with ZooKeeper, by Java's names. Unset: those of OpenSSL.",
    ),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW,
        "HTTPS: ZooKeeper's certificate must have the host name in zookeeper.connect. Empty: any name.",
    ),
    ConfigKey(
        "zookeeper.ssl.crl.enable", BOOLEAN, "false", LOW,
        "Refused if true: revoked certificates cannot be recognized.",
    ),
    ConfigKey(
        "zookeeper.ssl.ocsp.enable", BOOLEAN, "false", LOW,
        "Refused if true: revoked certificates cannot be recognized.",
    ),
    ConfigKey(
        "broker.id.generation.enable", BOOLEAN, "true", MEDIUM,
        "Whether a broker without broker.id gets a generated id above reserved.broker.max.id.",
    ),
    ConfigKey(
        "reserved.broker.max.id", INT, "1000", MEDIUM,
        "Largest value of broker.id; generated ids are above it.",
        check=at_least(0),
    ),
    ConfigKey("broker.id", INT, "-1", HIGH, "Id of this broker in the cluster. -1: generate an id."),
    ConfigKey(
        "message.max.bytes", INT, "1048588", HIGH,
        "Largest record batch accepted, in bytes after compression. Topics override it with "
        "max.message.bytes.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "broker.rack", STRING, None, MEDIUM,
        "Rack of this broker, sent to clients and used to spread replicas.",
    ),
    ConfigKey(
        "controlled.shutdown.enable", BOOLEAN, "true", MEDIUM,
        "Whether a broker moves its leadership to other brokers before it stops.",
    ),
    ConfigKey(
        "controlled.shutdown.max.retries", INT, "3", MEDIUM,
        "How often a stopping broker retries the controlled shutdown.",
    ),
    ConfigKey(
        "controlled.shutdown.retry.backoff.ms", LONG, "5000", MEDIUM,
        "Pause before each retry of the controlled shutdown.",
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", HIGH, "Whether topics can be deleted."),
    ConfigKey(
        "compression.type", STRING, "producer", HIGH,
        "Codec of stored batches: gzip, snappy, lz4, zstd, uncompressed, or producer to keep the producer's codec.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level", INT, "-1", MEDIUM,
        "Level for gzip when compression.type is gzip: 1 to 9, or -1 for gzip's default.",
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
        "Maximum number of incremental fetch sessions.",
        check=at_least(0),
    ),
    ConfigKey(
        "fetch.max.bytes", INT, "57671680", MEDIUM,
        "Largest response to a fetch request, in bytes.",
        check=at_least(1024),
    ),
    ConfigKey(
        "max.request.partition.size.limit", INT, "2000", MEDIUM,
        "Largest number of partitions in a DescribeTopicPartitions response.",
        check=at_least(1),
    ),
    ConfigKey(
        "metadata.log.dir", STRING, None, HIGH,
        "Directory of KRaft's metadata log, for taking over the log.dirs of an Apache Kafka broker. Unset: one of "
        "log.dirs.",
    ),
    ConfigKey("node.id", INT, "-1", HIGH, "Synonym of broker.id."),
    ConfigKey(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092", HIGH,
        "Listeners as NAME://host:port, comma-separated. 0.0.0.0 or an empty host means all interfaces. Unlike "
        "Kafka's, the default is loopback only: it needs no authentication.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "advertised.listeners", STRING, None, HIGH,
        "Addresses that clients connect to, if they differ from listeners.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW,
        "Security protocol of each listener name, as NAME:PROTOCOL pairs.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "password.encoder.secret", PASSWORD, None, MEDIUM,
        "Secret that encrypts passwords among the dynamic configs of this broker. Without it they cannot be changed "
        "while the broker runs.",
        check=not_empty,
    ),
    ConfigKey(
        "password.encoder.old.secret", PASSWORD, None, MEDIUM,
        "The secret before a change: at its start the broker encrypts with the new one what this one decrypts.",
        check=not_empty,
    ),
    ConfigKey(
        "password.encoder.keyfactory.algorithm", STRING, None, LOW,
        "Derives the key from the secret: PBKDF2WithHmacSHA1, -SHA224, -SHA256, -SHA384 or -SHA512. Unset: the last "
        "one.",
    ),
    ConfigKey(
        "password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW,
        "Encrypts passwords: AES/CBC/PKCS5Padding or AES/GCM/NoPadding.",
    ),
    ConfigKey(
        "password.encoder.key.length", INT, "128", LOW,
        "Bits of the key: 128, 192 or 256.",
        check=at_least(8),
    ),
    ConfigKey(
        "password.encoder.iterations", INT, "4096", LOW,
        "Iterations that derive the key from the secret.",
        check=at_least(1024),
    ),
    ConfigKey(
        "controller.listener.names", STRING, None, HIGH,
        "Listeners of Kafka's KRaft controllers; this broker ignores them.",
    ),
    ConfigKey(
        "socket.send.buffer.bytes", INT, "102400", HIGH,
        "SO_SNDBUF of client sockets; -1 uses the kernel's default.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes", INT, "102400", HIGH,
        "SO_RCVBUF of client sockets; -1 uses the kernel's default.",
    ),
    ConfigKey(
        "socket.request.max.bytes", INT, "104857600", HIGH,
        "Largest request in bytes; the broker closes a connection that sends a larger one.",
        check=at_least(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size", INT, "50", MEDIUM,
        "Largest number of connections that wait to be accepted. If it is not set, the broker uses the limit of Linux "
        "(4096).",
        check=at_least(1),
    ),
    ConfigKey(
        "max.connections.per.ip", INT, "2147483647", MEDIUM,
        "Largest number of connections from one IP address.",
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
        "Largest number of new connections per second.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "connections.max.idle.ms", LONG, "600000", MEDIUM,
        "The broker closes connections that are idle for longer than this.",
    ),
    ConfigKey(
        "controller.socket.timeout.ms", INT, "30000", MEDIUM,
        "Timeout of requests from the controller to brokers.",
    ),
    ConfigKey(
        "default.replication.factor", INT, "1", MEDIUM,
        "Replication factor of topics that are created automatically or with replication factor -1.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms", LONG, "30000", HIGH,
        "A follower that has not caught up with the leader for this long leaves the ISR.",
    ),
    ConfigKey(
        "replica.socket.timeout.ms", INT, "30000", HIGH,
        "Network timeout of a follower's fetch request.",
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes", INT, "65536", HIGH,
        "SO_RCVBUF of a follower's connections. -1 or unset: the kernel chooses, which is faster.",
    ),
    ConfigKey(
        "replica.fetch.max.bytes", INT, "1048576", MEDIUM,
        "Bytes that a follower fetches per partition.",
        check=at_least(0),
    ),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", HIGH, "Longest time that a follower's fetch waits for data."),
    ConfigKey(
        "replica.fetch.backoff.ms", INT, "1000", MEDIUM,
        "Pause of a follower after a failed fetch.",
        check=at_least(0),
    ),
    ConfigKey(
        "replica.selector.class", STRING, None, MEDIUM,
        "With Kafka's RackAwareReplicaSelector, consumers read from a replica in their own rack (KIP-392).",
    ),
    ConfigKey("replica.fetch.min.bytes", INT, "1", HIGH, "Minimum number of bytes for which a follower's fetch waits."),
    ConfigKey(
        "replica.fetch.response.max.bytes", INT, "10485760", MEDIUM,
        "Bytes that a follower fetches in one request.",
        check=at_least(0),
    ),
    ConfigKey(
        "num.replica.fetchers", INT, "1", HIGH,
        "Number of connections over which a follower fetches from each leader.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "leader.replication.throttled.rate", LONG, "9223372036854775807", MEDIUM,
        "Limit in bytes per second at which this broker sends the replicas in topics' "
        "leader.replication.throttled.replicas. Set it dynamically.",
        check=at_least(0), mode=CLUSTER_WIDE, internal=True,
    ),
    ConfigKey(
        "follower.replication.throttled.rate", LONG, "9223372036854775807", MEDIUM,
        "Limit in bytes per second at which this broker fetches the replicas in topics' "
        "follower.replication.throttled.replicas. Set it dynamically.",
        check=at_least(0), mode=CLUSTER_WIDE, internal=True,
    ),
    ConfigKey(
        "replication.quota.window.num", INT, "11", LOW,
        "Number of samples over which the rate of throttled replication is measured.",
        check=at_least(1),
    ),
    ConfigKey(
        "replication.quota.window.size.seconds", INT, "1", LOW,
        "Length of each sample of replication.quota.window.num.",
        check=at_least(1),
    ),
    ConfigKey(
        "quota.window.num", INT, "11", LOW,
        "Number of samples over which the rates of client quotas are measured.",
        check=at_least(1),
    ),
    ConfigKey(
        "quota.window.size.seconds", INT, "1", LOW,
        "Length of each sample of quota.window.num.",
        check=at_least(1),
    ),
    ConfigKey(
        "controller.quota.window.num", INT, "11", LOW,
        "Number of samples over which the rates of controller mutation quotas are measured.",
        check=at_least(1),
    ),
    ConfigKey(
        "controller.quota.window.size.seconds", INT, "1", LOW,
        "Length of each sample of controller.quota.window.num.",
        check=at_least(1),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", LONG, "5000", HIGH,
        "How often the broker writes high watermarks to disk.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable", BOOLEAN, "true", HIGH,
        "Whether the controller automatically moves leadership back to preferred replicas.",
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage", INT, "10", HIGH,
        "Percentage of a broker's partitions without their preferred leader above which the controller rebalances "
        "leadership.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", LONG, "300", HIGH,
        "How often the controller checks the leadership balance.",
        check=at_least(1),
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", HIGH,
        "Whether an out-of-sync replica can become leader if no in-sync replica is available, which can lose records.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey("inter.broker.listener.name", STRING, None, MEDIUM, "Listener used between brokers."),
    ConfigKey(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM,
        "Security protocol of the inter-broker listener, if inter.broker.listener.name is not set.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "group.min.session.timeout.ms", INT, "6000", MEDIUM,
        "Shortest session timeout that a group member may request.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms", INT, "1800000", MEDIUM,
        "Longest session timeout that a group member may request.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms", INT, "3000", MEDIUM,
        "How long an empty group waits for more members before it completes its first rebalance.",
    ),
    ConfigKey(
        "group.max.size", INT, "2147483647", MEDIUM,
        "Largest number of members of a group.",
        check=at_least(1),
    ),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", HIGH, "Largest metadata of an offset commit, in bytes."),
    ConfigKey(
        "offsets.topic.replication.factor", SHORT, "3", HIGH,
        "Replication factor of __consumer_offsets; lower if the cluster has fewer brokers.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.topic.num.partitions", INT, "50", HIGH,
        "Number of partitions of __consumer_offsets; must not change after the topic is created.",
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
        "How long the broker keeps the offsets of an empty group, or of a topic to which the group no longer "
        "subscribes.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms", LONG, "600000", HIGH,
        "How often the coordinator checks for expired offsets.",
        check=at_least(1),
    ),
    ConfigKey(
        "offsets.commit.timeout.ms", INT, "5000", HIGH,
        "Longest time that an offset commit waits for its replicas.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.cleaner.threads", INT, "1", MEDIUM,
        "Number of logs that are compacted at the same time.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", MEDIUM,
        "Limit in bytes per second for the reads and writes of compaction.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size", LONG, "134217728", MEDIUM,
        "Memory of the log cleaner's offset map, in bytes.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size", INT, "524288", MEDIUM,
        "Memory of the log cleaner's I/O buffers in bytes; half of it limits a read. The cleaner uses at least 4 MiB "
        "per log.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", MEDIUM,
        "Maximum fill ratio of the log cleaner's offset map.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms", LONG, "15000", MEDIUM,
        "Pause of the log cleaner when there is no log to clean.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", MEDIUM,
        "Minimum ratio of the uncompacted part to the whole log at which the log cleaner compacts it, between 0 and 1.",
        check=between(0, 1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.enable", BOOLEAN, "true", MEDIUM,
        "Whether the log cleaner runs; without it, compacted topics are not compacted.",
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms", LONG, "86400000", MEDIUM,
        "How long a compacted topic keeps tombstones, in milliseconds, so that a consumer that reads from the start "
        "still sees them.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms", LONG, "0", MEDIUM,
        "Minimum time in milliseconds for which a record of a compacted topic stays uncompacted.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM,
        "Maximum time in milliseconds for which a record of a compacted topic stays uncompacted.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.partitions", INT, "1", MEDIUM,
        "Number of partitions of topics that are created automatically or with partition count -1.",
        check=at_least(1),
    ),
    ConfigKey("log.dir", STRING, "/tmp/kafka-logs", HIGH, "Log directory, if log.dirs is not set."),
    ConfigKey(
        "log.dirs", STRING, None, HIGH,
        "Log directories, comma-separated; the broker spreads partitions over them.",
    ),
    ConfigKey(
        "log.segment.bytes", INT, "1073741824", HIGH,
        "Size in bytes at which the log rolls the active segment. Retention and compaction process only rolled "
        "segments.",
        check=at_least(14), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms", LONG, None, HIGH,
        "Age in milliseconds at which the log rolls the active segment even if it is not full, so that old records can "
        "expire.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.hours", INT, "168", HIGH,
        "As log.roll.ms, in hours; log.roll.ms takes precedence.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.roll.jitter.ms", LONG, None, HIGH,
        "Largest random time subtracted from log.roll.ms, so that partitions do not all roll at once.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.jitter.hours", INT, "0", HIGH,
        "As log.roll.jitter.ms, in hours; log.roll.jitter.ms takes precedence.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.retention.ms", LONG, None, HIGH,
        "How long the log keeps records under the cleanup policy delete, in milliseconds; -1 keeps them forever.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.minutes", INT, None, HIGH,
        "As log.retention.ms, in minutes; log.retention.ms takes precedence.",
    ),
    ConfigKey(
        "log.retention.hours", INT, "168", HIGH,
        "As log.retention.ms, in hours; log.retention.ms and log.retention.minutes take precedence.",
    ),
    ConfigKey(
        "log.retention.bytes", LONG, "-1", HIGH,
        "Size of a partition above which the broker deletes its oldest segments; -1 is no limit.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.check.interval.ms", LONG, "300000", MEDIUM,
        "How often the broker checks for segments to delete.",
        check=at_least(1),
    ),
    ConfigKey(
        "log.cleanup.policy", LIST, "delete", MEDIUM,
        "What happens to old segments: delete removes them by age and size, compact keeps the last record of each key; "
        "or both.",
        check=list_of("compact", "delete"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.size.max.bytes", INT, "10485760", MEDIUM,
        "Largest size of a segment's offset index in bytes; the log rolls the segment when its index is full.",
        check=at_least(4), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes", INT, "4096", MEDIUM,
        "Bytes of log between two entries of the offset index. A smaller interval makes lookups more precise and "
        "indexes larger.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.interval.messages", LONG, "9223372036854775807", HIGH,
        "Number of records after which the log is synced to disk; the append that reaches it waits for the sync. 1 "
        "syncs every append.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms", LONG, "60000", HIGH,
        "Milliseconds before a file that is marked as deleted is removed from disk.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms", LONG, "9223372036854775807", HIGH,
        "How often the broker checks for logs to sync; also the value of log.flush.interval.ms if that is not set.",
    ),
    ConfigKey(
        "log.flush.interval.ms", LONG, None, HIGH,
        "Longest time in milliseconds for which records stay unsynced.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", INT, "60000", HIGH,
        "How often the broker writes recovery points to disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", HIGH,
        "How often the broker writes log start offsets to disk.",
        check=at_least(0),
    ),
    ConfigKey(
        "log.preallocate", BOOLEAN, "false", MEDIUM,
        "Whether the broker preallocates the disk space of a new segment.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "auto.create.topics.enable", BOOLEAN, "true", HIGH,
        "Whether the broker creates a missing topic when a client requests its metadata and allows its creation.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", HIGH,
        "Minimum number of in-sync replicas for a produce request with acks=all; with fewer, producers get "
        "NOT_ENOUGH_REPLICAS.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.type", STRING, "CreateTime", MEDIUM,
        "Timestamp of a record: CreateTime, which the producer sets, or LogAppendTime, the time of the append.",
        check=one_of("CreateTime", "LogAppendTime"), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.difference.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Superseded by log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms; the limit for both "
        "if they are not set.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Largest difference in milliseconds by which a record's timestamp may be before the broker's clock.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms", LONG, "9223372036854775807", MEDIUM,
        "Largest difference in milliseconds by which a record's timestamp may be after the broker's clock.",
        check=at_least(0), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.downconversion.enable", BOOLEAN, "true", LOW,
        "Whether the broker converts batches for consumers that do not support the stored format; otherwise they get "
        "UNSUPPORTED_VERSION.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.state.log.min.isr", INT, "2", HIGH,
        "min.insync.replicas of __transaction_state.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", SHORT, "3", HIGH,
        "Replication factor of __transaction_state; lower if the cluster has fewer brokers.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.num.partitions", INT, "50", HIGH,
        "Number of partitions of __transaction_state; must not change after the topic is created.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, "104857600", HIGH,
        "Segment size of __transaction_state.",
        check=at_least(1),
    ),
    ConfigKey(
        "producer.id.expiration.ms", INT, "86400000", LOW,
        "How long a partition keeps the state of an idle producer id.",
        check=at_least(1), mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms", INT, "600000", LOW,
        "How often the broker checks for expired producer ids.",
        check=at_least(1), internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms", INT, "604800000", HIGH,
        "How long the coordinator keeps an idle transactional id.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms", INT, "900000", HIGH,
        "Longest transaction timeout that a producer may request.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable", BOOLEAN, "true", LOW,
        "Whether the leader verifies with the transaction coordinator that a partition is part of a transaction before "
        "it appends the first transactional batch (KIP-890).",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", LOW,
        "How often the coordinator checks for timed-out transactions.",
        check=at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", LOW,
        "How often the coordinator checks for transactional ids that have been idle for "
        "transactional.id.expiration.ms.",
        check=at_least(1),
    ),
    ConfigKey(
        "delegation.token.master.key", PASSWORD, None, MEDIUM,
        "Former name of delegation.token.secret.key.",
    ),
    ConfigKey(
        "delegation.token.secret.key", PASSWORD, None, MEDIUM,
        "Key that makes the secrets of delegation tokens; the same on all brokers. Without it there are no tokens.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms", LONG, "604800000", MEDIUM,
        "Longest lifetime of a delegation token; it cannot be renewed beyond it.",
        check=at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms", LONG, "86400000", MEDIUM,
        "How long a delegation token is valid before it must be renewed.",
        check=at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms", LONG, "3600000", LOW,
        "How often the controller deletes expired delegation tokens.",
        check=at_least(1),
    ),
)
