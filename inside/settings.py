"""The settings of a broker that one program or one test uses, and the file that the broker reads them from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.protocol import properties

ANY_PORT = "PLAINTEXT://127.0.0.1:0"

# Defaults are for data centres: three replicas, a new group waits 3 s for its members, 64 MiB are kept for a full disk,
# 4 MiB of shared memory for the first partitions.
DEFAULTS: Mapping[str, Any] = {
    "broker.id": 0,
    "group.initial.rebalance.delay.ms": 0,
    "listeners": ANY_PORT,
    "odradek.disk.reserve.bytes": 0,
    "odradek.partition.slots": 1024,
    "odradek.workers": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}


def write(file: Path, settings: Mapping[str, Any]) -> None:
    """Write `settings` as server.properties, readable for this user alone; None leaves a setting out."""
    file.touch(mode=0o600)
    text = properties.text_of({key: _text(value) for key, value in settings.items() if value is not None})
    file.write_text(text, encoding="utf-8")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
