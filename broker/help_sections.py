"""The commands by what one wants to do, in the order in which `odradek --help` lists them."""

from __future__ import annotations

SECTIONS = {
    "Run a broker": (
        "start", "stop", "status", "top", "scale", "upgrade", "log-level", "systemd", "run",
        "zookeeper-server-start", "zookeeper-server-stop",
    ),
    "Topics and messages": (
        "topics", "console-producer", "console-consumer", "get-offsets", "delete-records", "simple-consumer-shell",
        "replay-log-producer",
    ),
    "Consumer groups": ("consumer-groups", "groups", "consumer-offset-checker"),
    "Cluster": (
        "cluster", "configs", "broker-api-versions", "leader-election", "reassign-partitions", "log-dirs",
        "replica-verification", "zookeeper-shell",
    ),
    "Security": ("tls", "users", "acls", "delegation-tokens"),
    "Files of a broker": ("check", "dump-log", "adopt", "backup"),
    "Jobs on Spark": ("pipeline",),
    "Load and verification": (
        "producer-perf-test", "consumer-perf-test", "verifiable-producer", "verifiable-consumer",
    ),
    "The command line": ("completion", "run-class"),
}  # fmt: skip
