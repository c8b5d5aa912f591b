"""Spark's errors in a file of stages are reported in one line each, before any query runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.stages.analysis.analysis import analysed

from .stages import job_settings, pipeline, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

ENRICH = {"with": "people", "on": "id", "as": "person", "parse": {"format": "json", "schema": "name STRING"}}
WINDOW = {"window": "1 hour", "values": {"n": "count(*)"}}


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with job_settings(spark):
        yield


def mistakes(spark: SparkSession, *stages: dict[str, Any]) -> list[str]:
    return analysed(spark, pipeline(*stages))[1]


def test_columns_are_passed_from_stage_to_stage(spark: SparkSession) -> None:
    first = stage(json="id BIGINT, name STRING", normalise={"at": "record.timestamp"}, enrich=ENRICH)
    windows = {**WINDOW, "by": {"who": "person.name"}}
    then = stage(name="two", from_="out", to="end", watermark="1 minute", aggregate=windows)
    found, wrong = analysed(spark, pipeline(first, then))
    assert wrong == []
    assert found["one"].columns.simpleString() == (
        "struct<id:bigint,name:string,at:timestamp,person:struct<name:string>>"
    )
    assert found["two"].reading.columns == found["one"].columns
    assert found["two"].columns.simpleString() == (
        "struct<window_start:timestamp,window_end:timestamp,who:string,n:bigint>"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"json": "id BIGNT"}, "parse.schema: Unsupported data type"),
        ({"json": "INT"}, "parse.schema: must be columns and types such as 'id BIGINT, name STRING', not 'INT'"),
        ({"json": "record INT"}, "parse.schema: 'record' is a reserved name"),
        ({"validate": {"a": "di > 0"}}, "validate.a: A column, variable, or function parameter with name `di` cannot"),
        ({"validate": {"a": "id >"}}, "validate.a: Syntax error at or near end of input."),
        ({"validate": {"a": "id + 1"}}, "validate.a: is bigint but must be boolean: id + 1"),
        ({"normalise": {"a": "lowr(name)"}}, "normalise.a: Cannot resolve routine `lowr`"),
        (
            {"normalise": {"a": "window(timestamp_seconds(id), '1 day').start"}},
            "normalise.a: must have one value for each record: window(",
        ),
        ({"normalise": {"a": "explode(split(name, ','))"}}, "normalise.a: must have one value for each record"),
        ({"validate": {"a": "max(id) > 1"}}, "validate.a: must have one value for each record"),
        ({"drop": ["nme"]}, "drop: unknown column 'nme'; did you mean name?"),
        ({"key": "nme"}, "key: A column, variable, or function parameter with name `nme` cannot be resolved."),
        ({"timestamp": "id"}, "timestamp: is bigint but must be timestamp or timestamp_ntz or date: id"),
        (
            {"watermark": "1 day", "deduplicate": {"by": ["x"]}},
            "deduplicate.by: unknown column 'x'; the columns are id,",
        ),
        (
            {"watermark": "1 day", "event_time": "name", "aggregate": WINDOW},
            "event_time: is string but must be timestamp",
        ),
        (
            {"watermark": "1 day", "aggregate": {**WINDOW, "by": ["i"]}},
            "aggregate.by.i: A column, variable, or function parameter with name `i` cannot",
        ),
        ({"watermark": "1 day", "aggregate": {**WINDOW, "values": {"n": "id"}}}, "aggregate.values.n: "),
        ({"watermark": "1 day", "aggregate": {**WINDOW, "slide": "2 hours"}}, "aggregate: "),
        (
            {"watermark": "1 day", "aggregate": {**WINDOW, "values": {"n": "count(DISTINCT id)"}}},
            "Distinct aggregations are not supported on streaming",
        ),
        ({"enrich": {**ENRICH, "on": "i"}}, "enrich.person.on: A column, variable, or function parameter with name"),
        ({"enrich": {**ENRICH, "as": "name"}}, "enrich.name.as: a column with this name exists"),
        (
            {"enrich": {**ENRICH, "parse": {"format": "json", "schema": "?"}}},
            "enrich.person.parse.schema: Syntax error",
        ),
    ],
)
def test_invalid_stage_is_reported_in_one_line(spark: SparkSession, given: dict[str, Any], expected: str) -> None:
    found = mistakes(spark, stage(**{"json": "id BIGINT, name STRING", **given}))
    assert len(found) == 1, found
    assert found[0].startswith(f"stage one: {expected}"), found
    assert "\n" not in found[0]


def test_all_errors_of_a_step_are_reported_at_once(spark: SparkSession) -> None:
    """Errors of other stages are included, except for stages whose columns are unknown."""
    rules = {"validate": {"a": "x > 1", "b": "id"}, "normalise": {"c": "y"}}
    wrong = stage(json="id BIGINT", **rules)
    unknown = stage(name="two", from_="out", to="end", key="x")
    other = stage(name="three", to="other", json="id BIGINT", key="x")
    found = mistakes(spark, wrong, unknown, other)
    keys = [line.split(": ")[:2] for line in found]
    assert keys == [
        ["stage one", "validate.a"],
        ["stage one", "validate.b"],
        ["stage one", "normalise.c"],
        ["stage three", "key"],
    ]
