"""The examples of pipeline/README.md that no other test runs: a file of stages, and a producer with audit counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import odradek.pipeline
from odradek.pipeline.auditing import Message

from ...clients.admin import create_topic
from ..written import written
from .stages import job_settings
from .test_stages import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def example(language: str, word: str) -> str:
    """The only code block in this language that contains this word."""
    text = Path(odradek.pipeline.__path__[0], "README.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if word in block]
    return str(found)


def test_stages_example_is_valid(spark: SparkSession, tmp_path: Path) -> None:
    """--check also analyses its SQL."""
    file = tmp_path / "orders.toml"
    file.write_text(example("toml", "[[stage]]"))
    with job_settings(spark):
        result = run(file, "--check")
    assert (result.exit_code, result.stdout) == (0, f"{file}: 2 stages, no errors\n")


def test_audit_producer_example_counts_its_records(broker: Any) -> None:
    """The audit message has each acknowledged record."""
    topic, report = create_topic(broker), create_topic(broker)
    code = example("python", "on_delivery")
    for name, ours in (("localhost:9092", broker.bootstrap), ('"orders"', repr(topic)), ('"audit"', repr(report))):
        assert name in code
        code = code.replace(name, ours)
    exec(code, {})
    assert [record.value for record in written(broker, topic)] == [b"order 3"]
    [told] = [Message.decoded(record.value or b"") for record in written(broker, report)]
    assert (told.producer, told.closed) == ("web-1", True)
    assert [(name, count) for (name, *_), count in told.records().items()] == [(topic, 1)]
