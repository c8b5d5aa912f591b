"""Topics that a restore creates, and its warnings for existing ones, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.restore import targets

from ...clients.admin import unique

ARCHIVED = {
    "cleanup.policy": "compact,delete",
    "compression.type": "zstd",
    "max.message.bytes": "2000000",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "3",
    "of.another.program": "yes",
    "retention.ms": "86400000",
}


def client(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


@pytest.mark.live
def test_target_is_created_with_the_archived_configs(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Except for configs that would refuse or change records, and unknown ones; a log line names these."""
    topic = unique("t")
    targets.make(client(broker), topic, 2, ARCHIVED)
    found = topics.configs(client(broker), [topic])[topic]
    kept = {name: ARCHIVED[name] for name in ("cleanup.policy", "compression.type", "max.message.bytes")}
    ever = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    assert found.items() >= {**kept, **ever, "min.insync.replicas": "1"}.items()
    [told] = [record.getMessage() for record in caplog.records if record.name.startswith("odradek.")]
    assert told == (
        f"{topic} is made without what the archived topic is set to: message.timestamp.type=LogAppendTime, "
        "min.insync.replicas=3, of.another.program=yes, retention.ms=86400000"
    )


@pytest.mark.live
def test_invalid_target_name_is_an_error(broker: Any) -> None:
    with pytest.raises(PipelineError, match=r"^cannot create the topic not/a/name: "):
        targets.make(client(broker), "not/a/name", 1, {})


@pytest.mark.parametrize(
    ("kafka", "config", "expected"),
    [
        ({}, {"max.message.bytes": "1048588"}, {"max.request.size": "134217728", "buffer.memory": "134217728"}),
        ({"max.request.size": "5", "buffer.memory": "6"}, {"max.message.bytes": "100"}, {"batch.size": "100"}),
    ],
)
def test_producer_limits_allow_the_archived_records(
    kafka: dict[str, str], config: dict[str, str], expected: dict[str, str]
) -> None:
    found = targets.writing(kafka, config)
    assert found == {f"kafka.{name}": value for name, value in expected.items()}


def test_warnings_for_existing_targets(caplog: pytest.LogCaptureFixture) -> None:
    small = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    targets.warn("small", small, {"max.message.bytes": "2000"})
    targets.warn("large", small, {"max.message.bytes": "1000"})
    targets.warn("late", {"message.timestamp.type": "LogAppendTime"}, {})
    targets.warn("young", {"cleanup.policy": "delete", "retention.ms": "9"}, {})
    assert caplog.messages == [
        "small has max.message.bytes=1000, and the archived topic 2000: it may refuse records",
        "late has message.timestamp.type=LogAppendTime: records get the time of writing",
        "young deletes what is older than retention.ms=9, if just restored",
    ]
