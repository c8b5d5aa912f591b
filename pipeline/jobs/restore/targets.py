"""Target topics of a restore: create them so that they accept and keep the archived records, and warn of differences.

A target gets the settings that the archive has of its topic, except for those in `_DIFFERENT`: otherwise records of
last year, or of next year, would be refused or deleted at once. Settings that depend on the source cluster, not on the
records, are left to the target cluster, and settings that it does not know are left out. A warning lists those not set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.pipeline.jobs import topics
from odradek.pipeline.options import KAFKA
from odradek.protocol.wire import INT64_MAX

log = logging.getLogger(__name__)

_EVER = str(INT64_MAX)  # ms
_TIMES = {f"message.timestamp.{which}.max.ms": _EVER for which in ("before", "after", "difference")}
_DIFFERENT = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime", **_TIMES}
_CLUSTERS = (
    "confluent.",
    "follower.replication.",
    "leader.replication.",
    "local.retention.",
    "message.format.version",
    "min.insync.replicas",  # may exceed the number of replicas
    "remote.",
)
_LIMIT = "max.message.bytes"
_BATCH = 1_000_000  # bytes, librdkafka's default
_LARGEST = 128 << 20  # bytes of a record; a broker's default limit for one request (socket.request.max.bytes) is lower


def make(kafka: Mapping[str, str], topic: str, partitions: int, archived: Mapping[str, str]) -> None:
    """Create a topic for records archived from one with these settings. PipelineError."""
    kept = {name: value for name, value in archived.items() if not name.startswith(_CLUSTERS)}
    wanted = topics.accepted(kafka, topic, {**kept, **_DIFFERENT})
    topics.create(kafka, {topic: partitions}, wanted)
    left = [f"{name}={value}" for name, value in sorted(archived.items()) if wanted.get(name) != value]
    if left:
        log.warning("%s is made without what the archived topic is set to: %s", topic, ", ".join(left))


def writing(kafka: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """A writer's options for a topic of this configuration: no record is too large, no batch above the limit."""
    wanted = {"max.request.size": _LARGEST, "buffer.memory": _LARGEST}
    if (limit := int(config.get(_LIMIT, _BATCH))) < _BATCH:
        wanted["batch.size"] = limit
    return {f"{KAFKA}{name}": str(value) for name, value in wanted.items() if name not in kafka}


def warn(topic: str, config: Mapping[str, str], archived: Mapping[str, str]) -> None:
    """Warn of an existing topic that may lose or refuse records."""
    if config.get("message.timestamp.type") == "LogAppendTime":
        log.warning("%s has message.timestamp.type=LogAppendTime: records get the time of writing", topic)
    elif "delete" in config.get("cleanup.policy", "") and config.get("retention.ms") != "-1":
        log.warning("%s deletes what is older than retention.ms=%s, if just restored", topic, config["retention.ms"])
    if int(config.get(_LIMIT, _EVER)) < int(archived.get(_LIMIT, 0)):
        text = "%s has max.message.bytes=%s, and the archived topic %s: it may refuse records"
        log.warning(text, topic, config[_LIMIT], archived[_LIMIT])
