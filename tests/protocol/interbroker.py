"""Frames of requests between brokers as Apache Kafka 3.9.1 writes them, kept in golden/interbroker.txt.

`python -m tests.protocol.interbroker` rewrites that file (java/InterBrokerFrames.java describes its content).
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.harness import java

SOURCE = Path(__file__).with_name("java") / "InterBrokerFrames.java"
GOLDEN = Path(__file__).with_name("golden") / "interbroker.txt"
CORRELATION = 0x01020304


class Sample(NamedTuple):
    """One message: `frame` with its length, and its fields in Kafka's JSON."""

    name: str
    version: int
    kind: str
    sample: str
    frame: bytes
    json: dict[str, Any]

    @property
    def client_id(self) -> str | None:
        return None if self.sample in ("unset", "empty") else "me"

    def __str__(self) -> str:
        return f"{self.name}{self.kind}-v{self.version}-{self.sample}"


def written_by_kafka() -> str:
    """The text of the file, as Kafka's classes write it."""
    return java.run("3.9.1", str(SOURCE)).stdout.decode()


def samples() -> list[Sample]:
    return [_sample(*line.split(" ", 5)) for line in GOLDEN.read_text("utf-8").splitlines()]


def _sample(name: str, version: str, kind: str, sample: str, frame: str, text: str) -> Sample:
    return Sample(name, int(version), kind, sample, bytes.fromhex(frame), json.loads(text))


def told(message: Any, version: int) -> dict[str, Any]:
    """The fields of `message` as in Kafka's JSON: tagged ones only when they differ from their defaults."""
    fields = [field for field in message._struct._fields if field.for_version_q(version)]
    values = [(field, getattr(message, field.name)) for field in fields]
    return {
        kafka_name(field.name): _told(field, value, version)
        for field, value in values
        if not field.tagged_field_q(version) or value != field.default
    }


def _told(field: Any, value: Any, version: int) -> Any:
    if field.is_struct_array():
        return [told(item, version) for item in value]
    if field.type_str == "uuid":
        return base64.urlsafe_b64encode(value.bytes if value else bytes(16)).decode().rstrip("=")
    return value


def made(message_class: Any, values: dict[str, Any]) -> Any:
    """A message, or a struct of one, with the fields of Kafka's JSON."""
    return message_class(**fields_of(message_class, values))


def fields_of(message_class: Any, values: dict[str, Any]) -> dict[str, Any]:
    fields = {kafka_name(field.name): field for field in message_class._struct._fields}
    return {fields[name].name: _made(fields[name], message_class, value) for name, value in values.items()}


def _made(field: Any, message_class: Any, value: Any) -> Any:
    if field.is_struct_array():
        return [made(getattr(message_class, field.type_str), item) for item in value]
    if field.type_str == "uuid":
        return UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    return value


def kafka_name(name: str) -> str:
    if name == "is_kraft_controller":
        return "isKRaftController"
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


if __name__ == "__main__":
    GOLDEN.write_text(written_by_kafka(), "utf-8")
