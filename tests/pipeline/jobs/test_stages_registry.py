"""Stages that read and write Avro with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import types as T

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.stages.command import command
from odradek.pipeline.jobs.stages.declaration.mistakes import Mistakes
from odradek.pipeline.jobs.stages.steps import avro_results
from odradek.pipeline.jobs.stages.steps.avro_results import Encoding, Output

from ...clients.admin import create_topic, unique
from ...clients.transactions import await_stable
from ...harness.process import free_port
from ...harness.registry import Door, SchemaRegistry
from ..written import Written, written
from .avros import FIRST, NARROWER, WIDER, message, send
from .stages import job_settings, pipeline, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("schema-registry"), pytest.mark.timeout(1200)]

USER = "ann:pass Word1"
TOML = """
checkpoint = "file:{folder}/checkpoint"
dead_letters = "{stem}.dead"
partitions = 1
kafka = {{ bootstrap.servers = "{bootstrap}", schema.registry.basic.auth.user.info = "{user}" }}

[[stage]]
name = "cleaned"
from = "{topic}"
to = "{stem}.cleaned"
parse = {{ format = "avro", registry = "{url}" }}
validate = {{ "there is an id" = "id > 0" }}
normalise = {{ {normalise} }}
write = {{ format = "avro", registry = "{url}", name = "shop.Cleaned" }}

[[stage]]
name = "shown"
from = "{stem}.cleaned"
to = "{stem}.shown"
"""


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with job_settings(spark):
        yield


def run(file: Path, *words: str) -> Result:
    words = (str(file), "--conf", "spark.sql.shuffle.partitions=2", *words)
    return CliRunner().invoke(command, words, catch_exceptions=False)


def records(broker: Any, topic: str) -> list[Written]:
    await_stable(broker, topic)
    return written(broker, topic, "read_committed")


def decoded(registry: SchemaRegistry, value: bytes | None) -> Any:
    """The value as any other client decodes it: by the registry's schema for its id."""
    assert value is not None and value[0] == 0
    schema = registry.call("GET", f"/schemas/ids/{int.from_bytes(value[1:5], 'big')}")["schema"]
    source = BytesIO(value[5:])
    found = fastavro.schemaless_reader(source, json.loads(schema), None)
    assert not source.read()
    return found


@pytest.mark.long
def test_stages_convert_avro_to_avro_and_json(broker: Any, registry: SchemaRegistry, tmp_path: Path) -> None:
    """Columns are those of the latest schema; unreadable values become dead letters with the reason."""
    topic, stem = create_topic(broker, "orders"), unique("stages")
    ids = [registry.register(f"{topic}-value", schema) for schema in (FIRST, NARROWER, WIDER)]
    registry.call("PUT", f"/config/{stem}.cleaned-value", {"compatibility": "BACKWARD"})
    good = [
        message(ids[0], FIRST, {"id": 1, "name": "a"}),
        message(ids[1], NARROWER, {"id": 2, "note": "n"}),
        message(ids[2], WIDER, {"id": 3, "name": "c", "note": None}),
    ]
    bad: dict[bytes | None, str] = {
        message(ids[2], WIDER, {"id": 0, "name": "c", "note": None}): "broken rule: there is an id (id > 0)",
        message(99_999, FIRST, {"id": 5, "name": "e"}): "the registry has no Avro schema 99999",
        good[0][:-1]: f"the value is not Avro of schema {ids[0]}, or cannot be read by that of {topic}-value",
        good[2] + b"x": f"the value is not Avro of schema {ids[2]}, or cannot be read by that of {topic}-value",
        b'{"id": 1}': "the value does not begin with 0 and the id of a schema",
        None: "the value is null",
    }
    send(broker, topic, [*good, *bad])
    with Door(registry, USER) as door:
        words = {"folder": tmp_path, "stem": stem, "bootstrap": broker.bootstrap, "user": USER, "topic": topic}
        file = tmp_path / "stages.toml"
        file.write_text(TOML.format(**words, url=door.url, normalise='at = "timestamp_millis(1500)"'))
        assert run(file, "--once").exit_code == 0

        at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
        cleaned = [decoded(registry, record.value) for record in records(broker, f"{stem}.cleaned")]
        names = [("a", None), ("?", "n"), ("c", None)]
        expected = [{"id": at_ + 1, "name": name, "note": note} for at_, (name, note) in enumerate(names)]
        assert cleaned == [each | {"at": at} for each in expected]
        shown = [json.loads(record.value or b"") for record in records(broker, f"{stem}.shown")]
        assert shown == [each | {"at": "1970-01-01T00:00:01.500000Z"} for each in expected]
        dead = {each.value: dict(each.headers)["odradek.reason"] for each in records(broker, f"{stem}.dead")}
        assert dead == {value: why.encode() for value, why in bad.items()}

        file.write_text(TOML.format(**words, url=door.url, normalise='id = "string(id)", at = "id"'))
        refused = run(file, "--once")
    assert refused.exit_code == 1
    line = f"{file}: stage cleaned: write: the subject {stem}.cleaned-value of {door.url} has a schema with which this"
    assert refused.output.splitlines()[-1].startswith(line)
    assert "Word1" not in refused.output


def test_all_errors_are_reported_at_once(broker: Any, registry: SchemaRegistry, tmp_path: Path) -> None:
    """--check also queries the registry, because only the registry has the columns."""
    topic = unique("orders")
    registry.register(f"{topic}-value", FIRST)
    url, none = registry.url, f"http://127.0.0.1:{free_port()}"
    avro = {"format": "avro", "registry": url}
    quick = {"schema.registry.max.retries": "0"}
    stages = [
        ("wrong", {"parse": avro, "validate": {"x": "nmae = 1"}}),
        ("unknown", {"parse": {**avro, "subject": "no-such"}}),
        ("silent", {"parse": {**avro, "registry": none}}),
        ("unnamed", {"parse": avro, "normalise": {"the id": "id"}, "write": avro}),
        ("untyped", {"parse": avro, "normalise": {"every": "INTERVAL '1' DAY"}, "write": avro}),
    ]
    text = f"checkpoint = 'x'\ndead_letters = 'dead'\nkafka = {json_toml({'bootstrap.servers': 'h:1', **quick})}\n"
    for name, more in stages:
        table = {"name": name, "from": topic, "to": f"to-{name}", **more}
        text += "[[stage]]\n" + "".join(f"{key} = {json_toml(value)}\n" for key, value in table.items())
    (tmp_path / "f.toml").write_text(text)
    said = run(tmp_path / "f.toml", "--check")
    lines = [line.removeprefix(f"{tmp_path}/f.toml: stage ") for line in said.output.splitlines() if "stage " in line]
    assert said.exit_code == 1
    for line, start in zip(
        lines,
        [
            "wrong: validate.x: ",
            f"unknown: parse.registry: {url} has no subject no-such",
            f"silent: parse.registry: the schema registry {none} does not respond: ",
            "unnamed: write: the column 'the id' has a name that Avro does not allow",
            "untyped: write: the column 'every' is interval day, for which Avro has no type",
        ],
        strict=True,
    ):
        assert line.startswith(start), line


def json_toml(value: Any) -> str:
    """An inline table or a string in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {json_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"parse": {"format": "avro"}}, "stage one: parse.registry: is missing: the URL of a schema registry"),
        (
            {"parse": {"format": "avro", "registry": "http://ann:Word1@h"}},
            "stage one: parse.registry: the registry's URL contains a user, which logs would show; give --property",
        ),
        (
            {"parse": {"format": "avro", "registry": "http://h"}, "from_": ["a", "b"]},
            "stage one: parse.subject: is missing: the subject of the reader schema",
        ),
        ({"write": {"format": "avro"}}, "stage one: write.registry: is missing: the URL of a schema registry"),
        ({"write": {"format": "xml"}}, "stage one: write.format: must be json or avro, not 'xml'"),
        (
            {"write": {"format": "avro", "registry": "http://h", "name": "a b"}},
            "stage one: write.name: is not an Avro record name: 'a b'",
        ),
        ({"write": {"format": "json", "registry": "http://h"}}, "stage one: write.registry: unknown key"),
    ],
)
def test_invalid_registry_settings_are_refused(changed: dict[str, Any], line: str) -> None:
    with pytest.raises(Mistakes) as caught:
        pipeline(stage(**({"json": "id INT"} if "parse" not in changed else {}), **changed))
    assert any(each.startswith(line) for each in caught.value.lines), caught.value.lines
    assert "Word1" not in str(caught.value)


def test_registry_settings_are_parsed() -> None:
    kafka = {"bootstrap.servers": "h:1", "schema.registry": {"max.retries": "1"}}
    avro = {"format": "avro", "registry": "http://h:8081/"}
    made = pipeline(stage(parse=avro, write=avro), kafka=kafka)
    assert made.kafka == {"bootstrap.servers": "h:1"}
    [one] = made.stages
    assert one.parse and one.write and one.parse.registry == one.write.registry
    assert one.write.registry.conf["max.retries"] == 1
    assert (one.parse.subject, one.write.subject, one.write.name) == ("raw-value", "out-value", "out")


# -- without Spark's tasks


COLUMNS = (
    "id BIGINT, n TINYINT, f FLOAT, at TIMESTAMP, day DATE, local TIMESTAMP_NTZ, sum DECIMAL(9, 2), raw BINARY, "
    "tags ARRAY<STRING>, more MAP<STRING, DATE>, in STRUCT<x: INT, y: STRUCT<at: TIMESTAMP>>, again STRUCT<x: INT>"
)


def _columns(text: str) -> T.StructType:
    columns = T.StructType.fromDDL(text)
    assert isinstance(columns, T.StructType)
    return columns


def test_columns_are_encoded_as_avro(spark: SparkSession) -> None:
    """All types, and timestamps out of Python's range."""
    from pyspark.sql.pandas.types import to_arrow_type

    kind = _columns(COLUMNS)
    schema = avro_results.schema(kind, "shop.Out")
    far, day = 2**62, 2**31 - 1
    row = {"id": 7, "n": 1, "f": 0.5, "at": far, "day": day, "local": -far, "sum": Decimal("-1.50"), "raw": b"\xff"}
    row |= {"tags": ["a", None], "more": [("k", day)], "in": {"x": 1, "y": {"at": far}}, "again": None}
    column = pa.array([row, dict.fromkeys(row), None], to_arrow_type(kind, timezone="UTC"))
    made = (
        Encoding(Output(schema, 258)).converted(column, pa.array([None, None, b"as it was"], pa.binary())).to_pylist()
    )
    assert made[0][:5] == made[1][:5] == b"\0\0\0\1\2"
    assert made[2] == b"as it was"
    assert fastavro.schemaless_reader(BytesIO(made[0][5:]), plain(json.loads(schema)), None) == row | {
        "more": {"k": day}
    }


def plain(part: Any) -> Any:
    """The schema without logical types of times."""
    if isinstance(part, list):
        return [plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    times = part.get("logicalType", "decimal") != "decimal"
    return part["type"] if times else {key: plain(each) for key, each in part.items()}


def test_columns_without_an_avro_type_are_refused(spark: SparkSession) -> None:
    for columns, words in (
        ("`a b` INT", "the column 'a b' has a name"),
        ("x STRUCT<`1`: INT>", "the column 'x.1' has a name"),
        ("x MAP<INT, INT>", "the column 'x' is map<int,int>, for which"),
        ("x ARRAY<INTERVAL DAY>", r"the column 'x\[\]' is interval day, for which"),
    ):
        with pytest.raises(OptionError, match=f"^{words}"):
            avro_results.schema(_columns(columns), "r")


def test_result_that_does_not_match_its_avro_schema_is_an_error() -> None:
    output = Output('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}')
    with pytest.raises(PipelineError, match="a result does not match its Avro schema"):
        Encoding(output).converted(
            pa.array([{"a": None}], pa.struct([("a", pa.int32())])), pa.array([None], pa.binary())
        )
