"""Parsing and checking a file of stages, without Spark."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.stages.declaration.declaration import Aggregate, Enrich, Parse, declared, load
from odradek.pipeline.jobs.stages.declaration.json_schema import SchemaError, ddl
from odradek.pipeline.jobs.stages.declaration.mistakes import Mistakes

HEAD = """
checkpoint = "file:///var/stages"
dead_letters = "dead"
partitions = 3
[kafka]
bootstrap.servers = "localhost:9092"
acks = -1
"""
PARSE = """[stage.parse]
format = "json"
schema = "id BIGINT"
"""
CSV = """[stage.parse]
format = "csv"
schema = "id BIGINT"
"""
CLEANED = f"""
[[stage]]
name = "cleaned"
from = "raw"
to = "cleaned"
{PARSE}"""
HOURLY = """
[[stage]]
name = "hourly"
from = "cleaned"
to = "hourly"
watermark = "10 minutes"
[stage.aggregate]
window = "1 hour"
values = { orders = "count(*)" }
"""


def mistakes(text: str, folder: Path = Path()) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        declared(tomllib.loads(text), folder)
    return list(caught.value.lines)


def test_all_settings_are_parsed(tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text(HOURLY.join([HEAD, CLEANED]) + EVERYTHING)
    found = load(file)
    assert found.kafka == {"bootstrap.servers": "localhost:9092", "acks": "-1"}
    assert found.checkpoint == "file:///var/stages"
    assert [stage.name for stage in found.stages] == ["cleaned", "everything", "hourly"]
    cleaned, everything, hourly = found.stages
    assert (cleaned.sources, cleaned.to, cleaned.dead_letters, cleaned.partitions) == (("raw",), "cleaned", "dead", 3)
    assert cleaned.event_time == "record.timestamp"
    assert not cleaned.stateful
    assert hourly.parse is None
    assert hourly.aggregate == Aggregate("1 hour", None, None, {}, {"orders": "count(*)"})
    assert (everything.sources, everything.dead_letters, everything.partitions) == (("a", "b"), "worse", 7)
    assert everything.parse == Parse("csv", "id BIGINT, at TIMESTAMP", "", (("sep", ";"), ("quote", "'")))
    assert everything.validate == {"has an id": "id is not null"}
    assert everything.deduplicate == ("id",)
    assert everything.enrich == (
        Enrich("people", "id", "person", True, False, Parse("string", "", "value")),
        Enrich("places", "id", "place", False, True, Parse("string", "", "line")),
    )
    assert everything.reads == ("a", "b", "people", "places")
    assert everything.aggregate
    assert everything.aggregate.by == {"id": "`id`", "place": "place.line"}
    assert (everything.starting_offsets, everything.max_offsets) == ("latest", 100)


EVERYTHING = """
[[stage]]
name = "everything"
from = ["a", "b"]
to = "people-with-places"
dead_letters = "worse"
partitions = 7
starting_offsets = "latest"
max_offsets_per_trigger = 100
key = "id"
timestamp = "at"
event_time = "at"
watermark = "1 day"
drop = ["at"]
parse = { format = "csv", schema = "id BIGINT, at TIMESTAMP", separator = ";", quote = "'" }
validate = { "has an id" = "id is not null" }
normalise = { id = "id + 1" }
deduplicate = { by = ["id"] }
[[stage.enrich]]
with = "people"
on = "id"
as = "person"
type = "inner"
broadcast = false
parse = { format = "string" }
[[stage.enrich]]
with = "places"
on = "id"
as = "place"
parse = { format = "string", column = "line" }
[stage.aggregate]
window = "1 hour"
slide = "10 minutes"
offset = "5 minutes"
by = { id = "`id`", place = "place.line" }
values = { orders = "count(*)" }
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["kafka: is missing", "checkpoint: is missing", "stage: is missing: at least one [[stage]]"]),
        (HEAD.replace("partitions", "partitons") + CLEANED, ["partitons: unknown key; did you mean partiti"]),
        (HEAD.replace("bootstrap.servers", "servers") + CLEANED, ["kafka.bootstrap.servers: is missing"]),
        (HEAD + "[stage]\nname = 'a'", ["stage: must be an array of tables, [[stage]], not {"]),
        (HEAD + CLEANED.replace("from", "form"), ["stage cleaned: form: unknown key; did you mean from?"]),
        (
            HEAD + CLEANED.replace('"raw"', '["raw", 3]'),
            ["stage cleaned: from: must be a topic or a list of topics, not ["],
        ),
        (
            HEAD + CLEANED.replace('"raw"', '"r/w"'),
            ["stage cleaned: from: must be a topic or a list of topics, not 'r/w'"],
        ),
        (HEAD + CLEANED.replace('name = "cleaned"', ""), ["stage 1: name: is missing: a name"]),
        (HEAD + CLEANED.replace('"cleaned"', '"a b"', 1), ["stage a b: name: must have only letters"]),
        (HEAD + CLEANED.replace('"cleaned"', '".."', 1), ["stage ..: name: must have only letters"]),
        (
            HEAD + CLEANED.replace(PARSE, CSV) + 'separator = ""',
            ["stage cleaned: parse.separator: must be a text, not ''"],
        ),
        (
            HEAD + CLEANED.replace(PARSE, CSV) + 'quote = "##"',
            ["stage cleaned: parse.quote: must be one character, or '' for none, not"],
        ),
        (
            HEAD + CLEANED.replace("[stage.p", 'event_time = "at"\nwatermark = "1 day"\n[stage.p'),
            [f"stage cleaned: {key}: has no effect: it is for dedup" for key in ("event_time", "watermark")],
        ),
        (
            HEAD + CLEANED.replace("[stage.p", 'ahead = "soon"\n[stage.p'),
            ["stage cleaned: ahead: must be a span such as"],
        ),
        (
            HEAD + CLEANED.replace("json", "jsn"),
            ["stage cleaned: parse.format: must be json, csv, string or avro, not 'jsn'"],
        ),
        (HEAD + CLEANED.replace("schema", "shema"), ["stage cleaned: parse.shema: unknown key; did you mean"]),
        (HEAD + CLEANED + 'sep = ";"', ["stage cleaned: parse.sep: unknown key; the keys are"]),
        (HEAD + CLEANED.replace(PARSE, ""), ["stage cleaned: parse: is missing: the format of the values of raw"]),
        (HEAD.replace("dead_letters", "#") + CLEANED, ["stage cleaned: dead_letters: is missing: the topic for"]),
        (
            HEAD.replace('"dead"', '"raw"') + CLEANED,
            ["stage cleaned: dead_letters: is 'raw', which the stage also reads"],
        ),
        (HEAD + CLEANED.replace('"raw"', '"cleaned"'), ["stage cleaned: to: is 'cleaned', which the stage also reads"]),
        (HEAD + CLEANED * 2, ["stage cleaned: name: 2 stages have this name"]),
        (HEAD + CLEANED + "[stage.validate]\na = 3", ["stage cleaned: validate.a: must be an expression, not 3"]),
        (HEAD + CLEANED + "[stage.normalise]\nrecord = '3'", ["stage cleaned: normalise.record: is a reserved name"]),
        (
            HEAD + CLEANED + HOURLY.replace("10 min", "10 mn"),
            ["stage hourly: watermark: must be a span such as '10 minute"],
        ),
        (HEAD + CLEANED + HOURLY.replace("watermark", "#"), ["stage hourly: watermark: is missing: a span"]),
        (HEAD + CLEANED + HOURLY.replace("window", "windw"), ["stage hourly: aggregate.windw: unknown key"]),
        (HEAD + CLEANED + HOURLY.replace('"1 hour"', "1"), ["stage hourly: aggregate.window: must be a span such as"]),
        (HEAD + CLEANED + HOURLY.replace("values", "by"), ["stage hourly: aggregate.values: is missing"]),
        (
            HEAD + CLEANED + "[stage.deduplicate]",
            ["stage cleaned: watermark: is missing", "deduplicate.by: is missing"],
        ),
        (HEAD + CLEANED + "[stage.enrich]", [f"stage cleaned: enrich.{key}: is m" for key in ("with", "on", "as")]),
        (HEAD.replace("3", "0") + CLEANED, ["partitions: must be a whole number above 0, not 0"]),
        (HEAD + CLEANED.replace("schema", "schema_file"), ["cannot read id BIGINT: No such file"]),
    ],
)
def test_invalid_file_is_reported_in_one_line_for_each_error(text: str, expected: list[str]) -> None:
    """Each error has its own line."""
    found = mistakes(text)
    for words in expected:
        assert any(words in line for line in found), (words, found)
    assert all("\n" not in line for line in found)


def test_all_errors_are_reported_at_once() -> None:
    text = HEAD.replace("checkpoint", "chekpoint") + CLEANED.replace("to =", "too =") + HOURLY.replace('"1 hour"', '""')
    assert mistakes(text) == [
        "stage cleaned: too: unknown key; did you mean to?",
        "stage hourly: aggregate.window: must be a span such as '10 minutes', not ''",
        "chekpoint: unknown key; did you mean checkpoint?",
        "stage hourly: parse: is missing: the format of the values of cleaned",
    ]


def test_csv_with_tabs_and_without_quotes() -> None:
    """A tab as separator, and an empty quote."""
    text = HEAD + CLEANED.replace(PARSE, CSV) + 'separator = "\\t"\nquote = ""'
    [stage] = declared(tomllib.loads(text), Path()).stages
    assert stage.parse
    assert stage.parse.csv == (("sep", "\t"), ("quote", ""))


def again(of: str, to: str) -> str:
    """A stage that reads the dead letters of another stage."""
    return (
        CLEANED.replace('"cleaned"', '"again"', 1).replace('"raw"', f'"{of}"').replace('to = "cleaned"', f'to = "{to}"')
    )


def test_reader_of_dead_letters_runs_after_their_writer() -> None:
    """The reader must also declare their format."""
    text = (
        HEAD.replace('"dead"', '"else"')
        + again("dead", "saved")
        + CLEANED.replace("to =", 'dead_letters = "dead"\nto =')
    )
    assert [stage.name for stage in declared(tomllib.loads(text), Path()).stages] == ["cleaned", "again"]
    assert mistakes(text.replace(PARSE, "", 1)) == ["stage again: parse: is missing: the format of the values of dead"]


def test_cycle_through_dead_letters_is_refused() -> None:
    text = HEAD + CLEANED + again("dead", "raw").replace("to =", 'dead_letters = "worse"\nto =')
    assert mistakes(text) == ["stage cleaned: from: the stages cleaned -> again -> cleaned form a cycle"]


def test_cycle_of_stages_is_refused() -> None:
    there = CLEANED.replace('"raw"', '"hourly"')
    assert mistakes(HEAD + there + HOURLY) == [
        "stage cleaned: from: the stages cleaned -> hourly -> cleaned form a cycle"
    ]


def test_unreadable_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    for text, words in ((b"a = ", "Invalid value"), (b"\xff", "can't decode"), (None, "cannot read")):
        file = tmp_path / "stages.toml"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_bytes(text)
        with pytest.raises(OptionError, match=words) as caught:
            load(file)
        assert str(file) in str(caught.value)


# -- JSON Schema

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "a `name`": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "prices": {"type": "array", "items": {"type": "number"}},
        "where": {"type": "object", "properties": {"x": {"type": "boolean"}}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["id"],
}


def test_json_schema_becomes_ddl(tmp_path: Path) -> None:
    expected = (
        "`id` BIGINT, `a ``name``` STRING, `at` TIMESTAMP, `day` DATE, `prices` ARRAY<DOUBLE>, "
        "`where` STRUCT<`x`: BOOLEAN>, `tags` MAP<STRING, STRING>"
    )
    assert ddl(SCHEMA) == expected
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    text = HEAD + CLEANED.replace('schema = "id BIGINT"', 'schema_file = "orders.json"')
    parse = declared(tomllib.loads(text), tmp_path).stages[0].parse
    assert parse
    assert parse.schema == expected


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([], "not an object with properties"),
        ({"type": "array"}, "not an object with properties"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "a: there must be one type"),
        (
            {"type": "object", "properties": {"a": {"type": "object"}}},
            "a: the type of the elements of this object is missing",
        ),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}, r"a\[\]: there must be one type"),
    ],
)
def test_json_schemas_without_spark_types_are_refused(schema: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        ddl(schema)
