"""Valid and invalid config values, for requests to both brokers."""

from __future__ import annotations

WHOLE = ("0", "1", "-1", "1000", "-2", "x", "", "1.5", " 7 ", "99999999999999999999", "2147483648")
FLAG = ("true", "false", "TRUE", "1", "", "yes")
REPLICAS = ("*", "0:0", "0:0,1:0", "none", "", "x", "0:")

OF_TOPICS: dict[str, tuple[str, ...]] = {
    "retention.ms": ("60000000", *WHOLE), "retention.bytes": ("1000000000", *WHOLE),
    "segment.bytes": ("14", "1048576", "13", *WHOLE),
    "segment.ms": ("1000", *WHOLE), "segment.jitter.ms": WHOLE, "segment.index.bytes": ("4", "3", "1024", *WHOLE),
    "max.message.bytes": ("100", "1048588", *WHOLE), "min.insync.replicas": ("1", "2", *WHOLE),
    "flush.messages": ("1", *WHOLE), "flush.ms": WHOLE, "index.interval.bytes": WHOLE, "file.delete.delay.ms": WHOLE,
    "delete.retention.ms": WHOLE, "min.compaction.lag.ms": WHOLE, "max.compaction.lag.ms": WHOLE,
    "min.cleanable.dirty.ratio": ("0.5", "0", "1", "1.1", "-0.1", "x", ""),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete, compact", "delete,delete", "", "Delete", "x"),
    "compression.type": ("producer", "gzip", "snappy", "lz4", "zstd", "uncompressed", "none", "GZIP", ""),
    "compression.gzip.level": ("-1", "1", "9", "0", "10", "x"), "compression.lz4.level": ("1", "17", "0", "18"),
    "compression.zstd.level": ("3", "22", "23", "-131072", "-131073"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", "", "x"),
    "message.timestamp.before.max.ms": ("1000", *WHOLE), "message.timestamp.after.max.ms": ("1000", *WHOLE),
    "message.timestamp.difference.max.ms": ("1000", *WHOLE),
    "message.format.version": ("3.0-IV1", "2.8", "0.9.0", "0.10.0", "9.9", "x"),
    "message.downconversion.enable": FLAG, "preallocate": FLAG, "unclean.leader.election.enable": FLAG,
    "remote.storage.enable": ("false", "true", "x"), "local.retention.ms": WHOLE, "local.retention.bytes": WHOLE,
    "leader.replication.throttled.replicas": REPLICAS, "follower.replication.throttled.replicas": REPLICAS,
    "no.such.config": ("1",), "": ("1",),
}  # fmt: skip

OF_BROKERS: dict[str, tuple[str, ...]] = {
    "log.roll.ms": ("1", *WHOLE), "log.roll.jitter.ms": WHOLE, "log.retention.ms": WHOLE, "log.retention.bytes": WHOLE,
    "log.segment.bytes": ("14", "13", *WHOLE), "log.cleaner.threads": ("1", "2", "3", *WHOLE),
    "num.io.threads": ("8", "16", "4", "17", "3", *WHOLE),
    "num.network.threads": ("3", "6", "7", "2", "1", "0"), "num.recovery.threads.per.data.dir": ("1", "2", "3", "0"),
    "num.replica.fetchers": ("1", "2", "3", "0"), "background.threads": ("5", "10", "20", "21", "4"),
    "message.max.bytes": WHOLE,
    "log.cleanup.policy": OF_TOPICS["cleanup.policy"], "compression.type": OF_TOPICS["compression.type"],
    "log.message.timestamp.type": OF_TOPICS["message.timestamp.type"], "min.insync.replicas": WHOLE,
    "unclean.leader.election.enable": FLAG, "log.preallocate": FLAG, "log.flush.interval.messages": WHOLE,
    "log.flush.interval.ms": WHOLE, "log.index.size.max.bytes": WHOLE, "log.index.interval.bytes": WHOLE,
    "log.cleaner.backoff.ms": WHOLE, "log.cleaner.dedupe.buffer.size": ("134217728", "1048576", "1048575", "0", "x"),
    "log.cleaner.io.buffer.load.factor": ("0.9", "0", "x", "2"), "log.cleaner.io.buffer.size": WHOLE,
    "log.cleaner.io.max.bytes.per.second": ("1000000", "0", "-1", "x"),
    "log.cleaner.min.cleanable.ratio": ("0.5", "1.1", "x"),
    "log.cleaner.delete.retention.ms": WHOLE, "log.cleaner.min.compaction.lag.ms": WHOLE,
    "log.cleaner.max.compaction.lag.ms": WHOLE, "max.connections": WHOLE, "max.connections.per.ip": WHOLE,
    "max.connections.per.ip.overrides": ("127.0.0.1:5", "x", "1:2:3", ""), "max.connection.creation.rate": WHOLE,
    "leader.replication.throttled.rate": WHOLE, "follower.replication.throttled.rate": WHOLE,
    "replica.alter.log.dirs.io.max.bytes.per.second": WHOLE, "log.retention.hours": ("1",), "log.dirs": ("/tmp/x",),
    "broker.id": ("7",),
    "num.partitions": ("3",), "zookeeper.connect": ("x",), "producer.id.expiration.ms": WHOLE, "no.such.config": ("1",),
    "transaction.partition.verification.enable": FLAG, "log.message.timestamp.after.max.ms": WHOLE,
    "auto.create.topics.enable": FLAG, "listeners": ("PLAINTEXT://:1", "x"), 
    "metric.reporters": ("",),
}  # fmt: skip

VALUES = {**OF_BROKERS, **OF_TOPICS}
