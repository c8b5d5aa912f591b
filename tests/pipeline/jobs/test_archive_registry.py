"""Registry Avro in an archive: changing schemas, broken values, restore, failing registries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.command import archive as command
from odradek.pipeline.jobs.archive.formats.formats import REGISTRY, Format, Formats, parse
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.causes import cause
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.restore import restore
from odradek.pipeline.jobs.restore.restoring import RestorePlan
from odradek.pipeline.registry.settings import Registry

from ...clients.admin import create_topic
from ...harness.registry import Door, SchemaRegistry
from ..written import committed
from .archives import archive, live, source
from .avros import FIRST, NARROWER, WIDER, message, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("schema-registry"), pytest.mark.timeout(1200)]

QUICK = (("max.retries", "0"),)
USER = "ann:pass Word1"


def job(broker: Any, topic: str, url: str) -> Job:
    formats = Formats({}, {"": Format("avro-registry", registry=Registry(url, QUICK))})
    return Job(source=source(broker, topic), columns=Columns(formats))


def rows(spark: SparkSession, folder: Path, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(f"{folder}/topic={topic}").orderBy("offset").selectExpr(*columns).collect()
    return [tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) for row in found]


def test_records_of_changing_schemas_lose_no_byte(
    spark: SparkSession, broker: Any, registry: SchemaRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic keeps the schema of its first run; another folder gets the latest schema."""
    topic = create_topic(broker, "orders")
    subject = f"{topic}-value"
    first = registry.register(subject, FIRST)
    values: list[bytes | None] = [message(first, FIRST, {"id": 1, "name": "a"})]
    send(broker, topic, values)
    archive(spark, tmp_path / "old", job(broker, topic, registry.url))
    wider, narrower = registry.register(subject, WIDER), registry.register(subject, NARROWER)
    values += [
        message(first, FIRST, {"id": 2, "name": "b"}),
        message(wider, WIDER, {"id": 3, "name": "c", "note": "new"}),
        message(narrower, NARROWER, {"id": 4, "note": None}),
        message(99_999, FIRST, {"id": 5, "name": "e"}),
        message(first, FIRST, {"id": 6, "name": "f"})[:7],
        b"\0\xff\xff\xff\xff\x02",
        b"garbage",
        b"",
        None,
    ]
    send(broker, topic, values[1:])
    archive(spark, tmp_path / "old", job(broker, topic, registry.url))
    assert f"{subject}: records are archived by an older schema; another folder gets the latest one" in caplog.messages
    archive(spark, tmp_path / "new", job(broker, topic, registry.url))

    columns = ("value.*", "value_raw", "value_schema_id")
    old, new = (rows(spark, tmp_path / folder, topic, *columns) for folder in ("old", "new"))
    assert old[:4] == [
        (1, "a", None, first),
        (2, "b", None, first),
        (3, "c", values[2], wider),
        (4, "?", values[3], narrower),
    ]
    assert new[:4] == [
        (1, None, values[0], first),
        (2, None, values[1], first),
        (3, "new", values[2], wider),
        (4, None, None, narrower),
    ]
    broken = [(None, None, value) for value in values[4:]]
    assert [row[:3] for row in old[4:]] == [row[:3] for row in new[4:]] == broken
    for folder in ("old", "new"):
        restored_unchanged(spark, broker, tmp_path / folder, topic, f"{folder}-", values)


def restored_unchanged(
    spark: SparkSession, broker: Any, folder: Path, topic: str, prefix: str, values: list[bytes | None]
) -> None:
    """Verify and restore return the same bytes, without a registry."""
    kafka = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.schema.registry.basic.auth.user.info": USER}
    report = verify(spark, Files(spark, str(folder)), kafka, [topic], True)
    assert (report.records, report.differences) == (len(values), [])
    restore.run(spark, Files(spark, str(folder)), kafka, RestorePlan((topic,), prefix))
    assert [record.value for record in committed(broker, prefix + topic)] == values


def test_keys_of_a_registry_with_authentication(
    spark: SparkSession, broker: Any, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Keys have their own subject; the user is a property, which only the registry gets."""
    topic = create_topic(broker, "orders")
    number = registry.register(f"{topic}-key", FIRST)
    send(broker, topic, [b"v"], message(number, FIRST, {"id": 1, "name": "a"}))
    with Door(registry, USER) as door:
        words = ["--bootstrap-server", broker.bootstrap, "--topics", topic, "--to", str(tmp_path / "archive")]
        words += ["--key-format", f"{topic}=avro-registry:{door.url}"]
        with pytest.raises(PipelineError, match=f"^the schema registry {door.url} returned 401: Unauthorized; see"):
            CliRunner().invoke(command, words, catch_exceptions=False)
        words += ["--property", f"schema.registry.basic.auth.user.info={USER}"]
        assert CliRunner().invoke(command, words, catch_exceptions=False).exit_code == 0
    columns = ("key.id", "key_raw", "key_schema_id", "value")
    assert rows(spark, tmp_path / "archive", topic, *columns) == [(1, None, number, b"v")]


def test_failing_registry_archives_nothing(
    spark: SparkSession, broker: Any, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Records do not count as broken: the error names the registry, and the next run archives all of them."""
    topic = create_topic(broker, "orders")
    number = registry.register(f"{topic}-value", FIRST)
    send(broker, topic, [message(number, FIRST, {"id": at, "name": "a"}) for at in range(3)])
    with Door(registry) as door:
        door.closed_for = "/schemas/ids"
        with pytest.raises(Exception, match="registry") as caught:
            archive(spark, tmp_path, job(broker, topic, door.url))
        assert cause(caught.value).startswith(f"the schema registry {door.url} does not respond: ")
        assert live(spark, tmp_path).files == {}
        door.closed_for = "nothing"
        archive(spark, tmp_path, job(broker, topic, door.url))
    with pytest.raises(PipelineError, match=f"^the schema registry {door.url} does not respond: "):
        archive(spark, tmp_path, job(broker, topic, door.url))
    assert rows(spark, tmp_path, topic, "value.id", "value_raw") == [(0, None), (1, None), (2, None)]


@pytest.mark.long
def test_topics_of_a_pattern_have_their_own_subjects(
    spark: SparkSession, broker: Any, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """A topic without a subject stops the run, with its name."""
    topics = [create_topic(broker, "several") for _ in range(2)]
    formats = Formats({}, {"": Format("avro-registry", registry=Registry(registry.url))})
    which = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"^({'|'.join(topics)})$"}
    numbers = [registry.register(f"{topics[0]}-value", FIRST)]
    with pytest.raises(OptionError, match=f"has no subject {topics[1]}-value: register"):
        archive(spark, tmp_path, Job(which, Columns(formats)))
    numbers.append(registry.register(f"{topics[1]}-value", NARROWER))
    send(broker, topics[0], [message(numbers[0], FIRST, {"id": 1, "name": "a"})])
    send(broker, topics[1], [message(numbers[1], NARROWER, {"id": 2, "note": "b"})])
    archive(spark, tmp_path, Job(which, Columns(formats)))
    assert rows(spark, tmp_path, topics[0], "value.*", "value_raw") == [(1, "a", None)]
    assert rows(spark, tmp_path, topics[1], "value.*", "value_raw") == [(2, "b", None)]


def test_missing_or_unusable_subject_is_refused(
    spark: SparkSession, broker: Any, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = create_topic(broker, "orders")
    subject = f"{topic}-value"
    send(broker, topic, [b"v"])
    for schema, words in (
        (None, f"^the schema registry {registry.url} has no subject {subject}: register its schema first$"),
        ('{"type": "record", "name": "r", "fields": []}', f"^{subject} of {registry.url}: the record r has no fields"),
    ):
        if schema:
            registry.register(subject, schema)
        with pytest.raises(OptionError, match=words):
            archive(spark, tmp_path, job(broker, topic, registry.url))
    registry.register(subject, FIRST)
    archive(spark, tmp_path, job(broker, topic, registry.url))
    with pytest.raises(OptionError, match=f"{topic} was archived to .* with other formats"):
        archive(spark, tmp_path, Job(source=source(broker, topic)))


def test_registry_url_with_a_password_is_refused() -> None:
    for text in ("http://ann:Word1@host:8081", "host:8081"):
        with pytest.raises(OptionError, match=r"^--value-format avro-registry: the registry's URL") as caught:
            parse("--value-format", [f"orders=avro-registry:{text}"])
        assert "Word1" not in str(caught.value)
    with pytest.raises(OptionError, match="not 'avro-registry:'"):
        parse("--value-format", ["avro-registry:"])
    assert parse("", ["avro-registry:https://h:1/path"])[""].kind == REGISTRY
