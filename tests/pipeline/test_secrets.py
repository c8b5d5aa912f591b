"""Spark's own output has no secrets: plans, errors, UI, event log, checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..harness.process import die_with_parent
from ..harness.registry import Door, SchemaRegistry
from . import revealing_job
from .jobs.avros import FIRST
from .topics import send

pytestmark = [pytest.mark.live, pytest.mark.needs("java", "schema-registry"), pytest.mark.timeout(600)]

SECONDS = 540


def test_spark_output_has_no_secrets(broker: Any, registry: SchemaRegistry, tmp_path: Path) -> None:
    """Secrets of inline PEM, JAAS and a registry's user. The topic's name in the output proves that it was searched."""
    topic = create_topic(broker)
    send(broker, topic, range(3))
    registry.register(f"{topic}-value", FIRST)
    with Door(registry, revealing_job.USER) as door:
        command = [sys.executable, "-m", revealing_job.__name__, broker.bootstrap, topic, str(tmp_path), door.url]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, preexec_fn=die_with_parent)
        assert any(path.startswith("/subjects/") for path in door.asked)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    (tmp_path / "said").mkdir()
    (tmp_path / "said/stdout").write_bytes(done.stdout)
    (tmp_path / "said/stderr").write_bytes(done.stderr)
    looked_at = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    revealing = {
        (str(path.relative_to(tmp_path)), secret)
        for path, text in looked_at.items()
        for secret in revealing_job.SECRETS
        if secret.encode() in text
    }
    assert revealing == set()
    seen = {path.relative_to(tmp_path).parts[0] for path, text in looked_at.items() if text}
    assert seen >= {"events", "plans", "pages", "checkpoint", "said", "archive"}
    assert b"Decoding" in looked_at[tmp_path / "plans/archive"]
    events = b"".join(text for path, text in looked_at.items() if path.name.startswith("events_"))
    assert json.loads(events.splitlines()[0])["Event"]
    assert b"odradek" in events
