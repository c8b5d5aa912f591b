"""Broker configs of our own, all under `odradek.`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

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


def _host_and_port(value: Any) -> str | None:
    host, _, port = value.rpartition(":")
    if not value or (host and port.isdecimal() and int(port) <= 65535):
        return None
    return "must be host:port, for example 127.0.0.1:9404"


def _listener_name(value: Any) -> str | None:
    return None if value.replace("_", "").isalnum() else "must be the name of a listener, for example EXPORTER"


def _user_info(value: Any) -> str | None:
    user, colon, _ = value.partition(":")
    return None if not value or (user and colon and value.isprintable()) else "must be USER:PASSWORD"


def _registry(value: Any) -> str | None:
    if not value:
        return None
    try:
        parts = urlsplit(value)
        host = parts.hostname if parts.port != 0 and not (parts.query or parts.fragment) else None
    except ValueError:
        host = None
    if not host:
        return "must be the URL of a schema registry, for example http://127.0.0.1:8081"
    if "@" in value:
        return "must not contain a user: settings are shown"
    if parts.scheme != "https" and not (parts.scheme == "http" and admitted.is_loopback(host)):
        return "must begin with https://, or with http:// and a loopback address"
    return None


# fmt: off
OWN_CONFIGS = (
    ConfigKey(
        "odradek.workers", INT, "0", HIGH,
        "Number of worker processes; each worker serves all partitions. 0: one worker per CPU.",
        check=between(0, 64),
    ),
    ConfigKey(
        "odradek.run.dir", STRING, None, MEDIUM,
        "Private directory for sockets and locks. Unset: a directory of this user in the temporary directory.",
    ),
    ConfigKey(
        "odradek.zookeeper.auth", PASSWORD, None, MEDIUM,
        "Credentials for ZooKeeper as scheme:credential, for example digest:user:password. Unset: none.",
    ),
    ConfigKey(
        "odradek.zookeeper.login.config", STRING, None, MEDIUM,
        "JAAS file, as java.security.auth.login.config of Kafka: its section Client has user and password for "
        "ZooKeeper (org.apache.zookeeper.server.auth.DigestLoginModule, SASL by DIGEST-MD5). Unset: none.",
    ),
    ConfigKey(
        admitted.ALLOWED, STRING, None, MEDIUM,
        "Addresses and networks (10.0.0.0/8, or * for any) that may send inter-broker requests, in addition to the "
        "advertised addresses of registered brokers. Needed if a broker connects from an address that it does not "
        "advertise.",
        check=_networks,
    ),
    ConfigKey(
        "odradek.partition.slots", INT, "4096", MEDIUM,
        "Initial number of partition slots in shared memory, 1 KiB each. The table grows on demand.",
        check=between(16, 1048576),
    ),
    ConfigKey(
        "odradek.lock.stall.ms", LONG, "10000", MEDIUM,
        "The broker kills a process that holds the lock of one partition for longer than this; the other processes "
        "continue.",
        check=at_least(100),
    ),
    ConfigKey(
        "odradek.stopped.kill.ms", LONG, "500", LOW,
        "The broker kills and restarts one of its processes that has been stopped (SIGSTOP) for this long. -1: never.",
        check=at_least(-1),
    ),
    ConfigKey(
        "odradek.worker.spin.us", INT, "80", LOW,
        "Microseconds for which an idle worker polls for the next request, if requests arrive at such intervals. "
        "Raises the throughput of clients that wait for each response, for about the same CPU. 0: no polling.",
        check=between(0, 1000),
    ),
    ConfigKey(
        "odradek.authentication.timeout.ms", INT, "30000", MEDIUM,
        "Time that a client has for its TLS handshake and its SASL exchange; then the broker closes its connection.",
        check=at_least(100),
    ),
    ConfigKey(
        "odradek.delegation.tokens.max.bytes", INT, "16777216", LOW,
        "Maximum size of all delegation tokens that one principal has requested, each of about 300 bytes plus its "
        "renewers; it gets no more beyond it. Kafka has no such limit, and all brokers and workers keep all tokens.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.visible.after.flush", BOOLEAN, "false", MEDIUM,
        "Whether consumers see a record only after it is synced to disk. Topics can override it.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "odradek.producers.max", INT, "100000", LOW,
        "Maximum number of producer ids whose state a partition keeps, up to 1 KB of /dev/shm each. Beyond it, the "
        "partition drops the ids that have been idle longest, but none with an open transaction. A retry of a dropped "
        "producer can be stored twice. Topics can override it.",
        mode=CLUSTER_WIDE, check=at_least(100),
    ),
    ConfigKey(
        "odradek.producers.trusted", BOOLEAN, "false", MEDIUM,
        "Whether a leader validates only the header and the checksum of produced batches, not their records. This "
        "saves the decompression, nearly half of the CPU cost of an lz4 batch, but a faulty client can then store a "
        "batch that consumers cannot read and that blocks them. Topics can override it.",
        mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "odradek.recovery.on.corruption", STRING, "refuse", MEDIUM,
        "What recovery does with a log that is damaged before its end: refuse takes the partition offline and logs the "
        "position; cut truncates the log at the damage and keeps the rest in .corrupt files. Damage to records that "
        "were not yet synced when the machine crashed is always cut.",
        check=one_of("refuse", "cut"),
    ),
    ConfigKey(
        "odradek.disk.reserve.bytes", LONG, "67108864", MEDIUM,
        "Bytes reserved in each log directory, at most a tenth of the disk, so that the broker can start and delete "
        "topics when the disk is full. 0: no reserve.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.retention.free.bytes", LONG, "0", MEDIUM,
        "Bytes to keep free on the disk of each log directory. With less free space, the broker immediately deletes "
        "the oldest segments of topics with cleanup.policy=delete, regardless of their retention. Set it higher than "
        "the bytes written to that disk per second. 0: disabled.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.drain.timeout.ms", LONG, "30000", LOW,
        "How long a stopping or removed worker waits until its connections have received their last responses.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.metrics.listener", STRING, "", MEDIUM,
        "Address at which the exporter process serves metrics, as host:port, for example 127.0.0.1:9404. Whoever can "
        "connect can read them, unless odradek.metrics.security.protocol=SASL_SSL. Empty: no exporter.",
        check=_host_and_port,
    ),
    ConfigKey(
        "odradek.metrics.security.protocol", STRING, "PLAINTEXT", MEDIUM,
        "SASL_SSL: metrics are served by https, to users of the broker (HTTP Basic) with Describe on the cluster; "
        "/healthz and /ready need no user. PLAINTEXT: by http, to everyone.",
        check=one_of("PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "odradek.console.listener", STRING, "", MEDIUM,
        "Address at which the exporter process serves the console, a page for browsers, as host:port, for example "
        "127.0.0.1:9405, which every program of this machine can read. At an address that is not loopback it asks for "
        "a user of the broker, by https. Empty: no console.",
        check=_host_and_port,
    ),
    ConfigKey(
        "odradek.console.security.protocol", STRING, "", MEDIUM,
        "SASL_SSL: the console is served by https, to users of the broker (HTTP Basic), and shows what their ACLs "
        "allow. PLAINTEXT: by http, to everyone; only at a loopback address. Empty: PLAINTEXT at a loopback address, "
        "else SASL_SSL.",
        check=one_of("", "PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "odradek.exporter.listener.name", STRING, "EXPORTER", LOW,
        "Name of a listener whose settings the exporter uses for SASL_SSL: listener.name.exporter.ssl.keystore."
        "location before ssl.keystore.location, and so on. The name of one of the broker's listeners shares its "
        "certificate and its users. Of sasl.enabled.mechanisms it uses PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.",
        check=_listener_name,
    ),
    ConfigKey(
        "odradek.console.command.config", STRING, "", MEDIUM,
        "Properties file of a client, as for --command-config: the console reads messages as the user that it names, "
        "for readers whose own ACLs allow Read. With PLAINTEXT every program of this machine can then read what that "
        "user may read. Empty: as an anonymous client, and not at all if authorizer.class.name is set.",
    ),
    ConfigKey(
        "odradek.console.schema.registry.url", STRING, "", LOW,
        "URL of a schema registry with Confluent's REST interface: the console shows keys and values in Confluent's "
        "wire format as Avro, by schemas that it fetches from there. https, or http to a loopback address; for example "
        "http://127.0.0.1:8081. Empty: no Avro, and no connection.",
        check=_registry,
    ),
    ConfigKey(
        "odradek.console.schema.registry.basic.auth.user.info", PASSWORD, "", LOW,
        "USER:PASSWORD for the schema registry, as basic.auth.user.info of Confluent's clients with "
        "basic.auth.credentials.source=USER_INFO. Empty: no user.",
        check=_user_info,
    ),
    ConfigKey(
        "odradek.console.schema.registry.ssl.truststore.location", STRING, None, LOW,
        "File with the certificates that the console trusts when it connects to a schema registry by https. Unset: "
        "those that the system trusts.",
    ),
    ConfigKey(
        "odradek.console.schema.registry.ssl.truststore.type", STRING, "JKS", LOW,
        "Type of that file: JKS, PKCS12 or PEM.",
    ),
    ConfigKey(
        "odradek.console.schema.registry.ssl.truststore.password", PASSWORD, None, LOW,
        "Password of that file; PEM has none.",
    ),
    ConfigKey(
        "odradek.api.versions.like", STRING, "", LOW,
        "Version of Apache Kafka, 3.9 or 4.1: clients are offered only the APIs and versions that it offers too. "
        "Empty: all that this broker has.",
        check=one_of("", "3.9", "4.1"),
    ),
    ConfigKey(
        "odradek.faults.file", STRING, "", LOW,
        "File by which a program that started the broker for tests makes it fail: errors, delays, a full disk, another "
        "clock (docs/testing.md). It must belong to the broker's user alone. Not for production. Empty: no faults.",
    ),
    ConfigKey(
        "odradek.log.file", STRING, None, LOW,
        "File for the broker's own log, rotated by size. Unset: standard error.",
    ),
    ConfigKey(
        "odradek.log.file.max.bytes", LONG, "67108864", LOW,
        "Size at which the broker's own log file is rotated.",
        check=at_least(4096),
    ),
    ConfigKey(
        "odradek.log.file.backups", INT, "5", LOW,
        "Number of rotated log files to keep.",
        check=at_least(0),
    ),
    ConfigKey(
        "odradek.log.level", STRING, "INFO", LOW,
        "Level of the broker's own log, for all modules.",
        check=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    ),
    ConfigKey(
        "odradek.log.levels", STRING, "", LOW,
        "Log levels of single modules, as module=LEVEL pairs: storage=DEBUG,workers.net.connection=WARNING.",
    ),
)
