"""Broker configs of our own, all under `odradek.`."""

from __future__ import annotations

from typing import Any

from odradek.cluster.configs import admitted
from odradek.cluster.configs.configtypes import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    ConfigKey,
    at_least,
    between,
    one_of,
)


def _networks(value: Any) -> str | None:
    try:
        admitted.parse_allowed(value)
    except ValueError as error:
        return str(error)
    return None


# fmt: off
OWN_CONFIGS = (
    ConfigKey(
        "odradek.workers", INT, "0", HIGH,
        "Worker processes; each serves any partition. 0 is one for each CPU.",
        check=between(0, 64),
    ),
    ConfigKey(
        "odradek.run.dir", STRING, None, MEDIUM,
        "Private directory for sockets and locks; unset: a directory of this user under the temporary directory.",
    ),
    ConfigKey(
        "odradek.zookeeper.auth", PASSWORD, None, MEDIUM,
        "Credentials for ZooKeeper as scheme:credential, such as digest:user:password; unset: none.",
    ),
    ConfigKey(
        admitted.ALLOWED, STRING, None, MEDIUM,
        "Addresses and networks (10.0.0.0/8, or * for any) from which brokers reach this one, besides the addresses of "
        "the hosts that registered brokers advertise. Needed where a broker's connections come from another address.",
        check=_networks,
    ),
    ConfigKey(
        "odradek.partition.slots", INT, "4096", MEDIUM,
        "Places for partitions in shared memory at the start, 1 KiB each; the table grows.",
        check=between(16, 1048576),
    ),
    ConfigKey(
        "odradek.lock.stall.ms", LONG, "10000", MEDIUM,
        "A process that holds one partition's lock for longer is taken for hung and killed; others go on.",
        check=at_least(100),
    ),
    ConfigKey(
        "odradek.stopped.kill.ms", LONG, "500", LOW,
        "A process of the broker that has been stopped (SIGSTOP) for so long is killed and started again. -1: never.",
        check=at_least(-1),
    ),
    ConfigKey(
        "odradek.worker.spin.us", INT, "80", LOW,
        "Microseconds for which a worker stays awake for the next request while requests come as quickly as that: "
        "more messages a second from clients that wait for each answer, for about the same CPU. 0: it always sleeps.",
        check=between(0, 1000),
    ),
    ConfigKey(
        "odradek.visible.after.flush", BOOLEAN, "false", MEDIUM,
        "Whether consumers see a record only after it has been synced to disk. Topics override it.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "odradek.producers.max", INT, "100000", LOW,
        "Producer ids that a partition remembers, up to 1 KB of /dev/shm each; those that wrote last are kept, and "
        "those with an open transaction. A forgotten producer's retry is not known as one. Topics override it.",
        mode=CLUSTER_WIDE, check=at_least(100),
    ),
    ConfigKey(
        "odradek.producers.trusted", BOOLEAN, "false", MEDIUM,
        "Whether a leader stores producers' batches by their headers and checksums alone. It saves unpacking them, "
        "nearly half of the CPU that an lz4 batch takes; but a batch of a broken client that no consumer can read is "
        "stored, and stops its consumers. Topics override it.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "odradek.recovery.on.corruption", STRING, "refuse", MEDIUM,
        "What to do with a log that is damaged in the middle: refuse takes the partition offline and says where, "
        "cut keeps what lies before the damage and puts the rest aside in .corrupt files. Where the machine went down "
        "before records were synced, they may be missing in the middle too: that is always cut.",
        check=one_of("refuse", "cut"),
    ),
    ConfigKey(
        "odradek.disk.reserve.bytes", LONG, "67108864", MEDIUM,
        "Room kept back in each log directory, so that the broker can start and topics can be deleted when the disk "
        "is full; of a small disk a tenth at most. 0 keeps none.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.retention.free.bytes", LONG, "0", MEDIUM,
        "Room to keep free on the disk of each log directory: with less, the oldest segments of all topics with "
        "cleanup.policy=delete go at once, whatever their retention. Have it larger than what is written there in a "
        "second. 0 deletes nothing for room.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.drain.timeout.ms", LONG, "30000", LOW,
        "How long a worker that is stopped or retired waits for its connections' last answers.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.log.file", STRING, None, LOW,
        "File for the broker's own log, rotated by size; unset: standard error.",
    ),
    ConfigKey(
        "odradek.log.file.max.bytes", LONG, "67108864", LOW,
        "Size at which the broker's own log file is rotated.",
        check=at_least(4096),
    ),
    ConfigKey(
        "odradek.log.file.backups", INT, "5", LOW,
        "Rotated log files kept.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.log.level", STRING, "INFO", LOW,
        "Level of the broker's own log, for all modules.",
        check=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    ),
    ConfigKey(
        "odradek.log.levels", STRING, "", LOW,
        "Levels for single modules, as module=LEVEL pairs: storage=DEBUG,workers.connection=WARNING.",
    ),
)
