"""Each step of a stage with a few rows, in Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.stages.declaration.declaration import Parse
from odradek.pipeline.jobs.stages.declaration.sql import HIDDEN, REASON
from odradek.pipeline.jobs.stages.steps import enrich, plan, records
from odradek.pipeline.jobs.stages.steps.aggregate import aggregated
from odradek.pipeline.jobs.stages.steps.parse import Reading, parsed
from odradek.pipeline.jobs.stages.steps.timing import timed

from .stages import job_settings, only, received

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with job_settings(spark):
        yield


def visible(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Each row's reason and columns, in the order of offsets."""
    names = [f"`{name}`" for name in frame.columns if name not in HIDDEN]
    return [tuple(row) for row in frame.orderBy("record.offset").select(REASON, *names).collect()]


OBJECT = "the value is not a JSON object of the schema"


def test_json_values_are_parsed_or_refused_with_a_reason(spark: SparkSession) -> None:
    schema = "id BIGINT, `the name` STRING, at TIMESTAMP, tags ARRAY<STRING>, in STRUCT<x: DOUBLE>"
    values: dict[str | bytes | None, Any] = {
        '{"id": 1, "the name": "a", "in": {"x": 1}, "other": 3}': (None, 1, "a", None, None, (1.0,)),
        ' {"id": null, "tags": ["a", "b"]}\n': (None, None, None, None, ["a", "b"], None),
        "{}": (None, None, None, None, None, None),
        '{"id": "1"}': "id is not bigint",
        '{"id": 1.5, "tags": 3}': "id is not bigint; tags is not array<string>",
        '{"id": 99999999999999999999}': "id is not bigint",
        '{"at": "yesterday"}': "at is not timestamp",
        '{"in": {"x": "y"}}': OBJECT,
        "null": OBJECT,
        "5": OBJECT,
        '[{"id": 1}, {"id": 2}]': OBJECT,
        '{"id": 1}{"id": 2}': "the value is not JSON",
        '{"id": 1} and more': "the value is not JSON",
        '{"id": 1}}': "the value is not JSON",
        '{"id": 1},"x": 2': "the value is not JSON",
        '{"id": 1}, "v": {"id": 2}': "the value is not JSON",
        '{"id": 1}, {"id": 2}': "the value is not JSON",
        '{"id": 1}]': "the value is not JSON",
        '{"id": 1, "the name": "}': "the value is not JSON",
        '5, "x": {"id": 1}': "the value is not JSON",
        '{"id": 1} ': (None, 1, None, None, None, None),
        '{"the name": "}"}': (None, None, "}", None, None, None),
        '{"id": 1}], "v": [{"id": 2}': "the value is not JSON",
        '{"id": 1}, "the next one"] and more': "the value is not JSON",
        '{"id": 1}, "__end": 1}': "the value is not JSON",
        '{"id": 1, "the name": "]}\\" \\u007d"}': (None, 1, ']}" }', None, None, None),
        '{"id": 1': "the value is not JSON",
        "": "the value is not JSON",
        "x": "the value is not JSON",
        b'{"the name": "\xff"}': "the value is not UTF-8",
        None: "the value is null",
    }
    rows = visible(parsed(received(spark, *values), Reading.of(Parse("json", schema))))
    assert [row if row[0] is None else row[0] for row in rows] == list(values.values())


def test_csv_and_text_values_are_parsed_or_refused_with_a_reason(spark: SparkSession) -> None:
    csv = Parse("csv", "id BIGINT, name STRING", "", (("sep", ";"), ("quote", "'")))
    bad = "the value is not CSV of the schema"
    values: dict[str | bytes | None, Any] = {
        "1;a": (None, 1, "a"),
        "2;'a;b'": (None, 2, "a;b"),
        ";": (None, None, None),
        "3;a\r\n": (None, 3, "a"),
        "4;'a\r\nb\n'\n": (None, 4, "a\r\nb\n"),
        "4;'it\\'s\na'": (None, 4, "it's\na"),
        "1;a\n2;b": bad,
        "1;a\nb": bad,
        "1;'a\n'\nb": bad,
        "\n1;a": bad,
        "1;a\r2;b": bad,
        "\n": bad,
        "x;a": bad,
        "1": bad,
        "1;2;3": bad,
        "": bad,
        None: "the value is null",
    }
    rows = visible(parsed(received(spark, *values), Reading.of(csv)))
    assert [row if row[0] is None else row[0] for row in rows] == list(values.values())
    one = Parse("csv", "name STRING", "", (("sep", "\t"), ("quote", "")))
    rows = visible(parsed(received(spark, "a\n", "a\nb", "'a\nb'", "'a\"", "a\tb"), Reading.of(one)))
    assert [row[0] or row[1] for row in rows] == ["a", bad, bad, "'a\"", bad]
    text = visible(parsed(received(spark, "a", "", b"\xff"), Reading.of(Parse("string", "", "the line"))))
    assert text == [(None, "a"), (None, ""), ("the value is not UTF-8", "\ufffd")]


CLEANING = {
    "json": "id BIGINT, name STRING, amount STRING",
    "validate": {"it has an id": "id IS NOT NULL", "it's odd": "id % 2 = 1"},
    "normalise": {"name": "lower(name)", "old": "name", "amount": "CAST(amount AS DOUBLE)", "from": "record.topic"},
    "drop": ["id"],
}


def cleaned(spark: SparkSession, declared: Any, *values: str) -> DataFrame:
    assert declared.parse
    return plan.cleaned(received(spark, *values), declared, Reading.of(declared.parse))


def test_validation_and_normalisation(spark: SparkSession) -> None:
    """Expressions use the parsed columns; a failed cast is null."""
    values = ['{"id": 1, "name": "A", "amount": "1.5"}', '{"id": 3, "amount": "x"}', '{"id": 2}', "{}", "x"]
    assert visible(cleaned(spark, only(**CLEANING), *values)) == [
        (None, "a", 1.5, "A", "raw"),
        (None, None, None, None, "raw"),
        ("broken rule: it's odd (id % 2 = 1)", None, None, None, "raw"),
        ("broken rule: it has an id (id IS NOT NULL); broken rule: it's odd (id % 2 = 1)", None, None, None, "raw"),
        ("the value is not JSON", None, None, None, "raw"),
    ]


def written(frame: DataFrame) -> list[Any]:
    """(topic, key, value, seconds, headers) of the rows to write."""
    rows = frame.selectExpr("topic", "key", "value", "unix_seconds(timestamp)", "headers").collect()
    return [(row[0], *map(as_bytes, row[1:3]), row[3], headers(row[4])) for row in rows]


def as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def headers(found: Any) -> Any:
    return None if found is None else [(key, as_bytes(value)) for key, value in found]


def test_results_and_dead_letters_are_written(spark: SparkSession) -> None:
    """Dead letters keep their bytes; headers of an earlier stage are removed."""
    declared = only(**CLEANING)
    values = ['{"id": 3}', '{"id": 1, "name": "A"}', "x", "y"]
    rows = plan.written(cleaned(spark, declared, *values), declared, [])
    told = {"reason": b"the value is not JSON", "stage": b"one", "topic": b"raw", "partition": b"3"}
    why = [(f"odradek.{name}", value) for name, value in told.items()]
    theirs = [("a", b"1"), ("none", None)]
    assert sorted(written(rows), key=lambda row: row[3]) == [
        ("out", b"k0", b'{"name":null,"amount":null,"old":null,"from":"raw"}', 0, None),
        ("out", b"k1", b'{"name":"a","amount":null,"old":"A","from":"raw"}', 1, theirs),
        ("dead", b"k2", b"x", 2, [*why, ("odradek.offset", b"2")]),
        ("dead", b"k3", b"y", 3, [*theirs, *why, ("odradek.offset", b"3")]),
    ]


KEYS = {"id": b"7", "record.key": b"k0", "unhex('ff')": b"\xff", "NULL": None, "array(id, 1)": b"[7, 1]"}


def test_key_expressions_become_bytes(spark: SparkSession) -> None:
    """As text, unless the key is binary."""
    rows = cleaned(spark, only(json="id BIGINT"), '{"id": 7}')
    frames = [records.results(rows, only(json="id BIGINT", key=key, timestamp="timestamp_seconds(id)")) for key in KEYS]
    found = written(reduce(lambda one, other: one.union(other), frames))
    assert [row[1:4] for row in found] == [(key, b'{"id":7}', 7) for key in KEYS.values()]


@pytest.mark.parametrize("comment", [" -- to be paid", " -- a path: C:\\\\", " /* why */"])
def test_expressions_may_end_in_a_comment(spark: SparkSession, comment: str) -> None:
    """The comment must not hide the SQL that is added after the expression."""
    columns = {"json": "id BIGINT", "key": f"id{comment}", "timestamp": f"timestamp_seconds(id){comment}"}
    declared = only(**columns, validate={"paid": f"id > 5{comment}"}, normalise={"twice": f"id * 2{comment}"})
    rows = plan.written(cleaned(spark, declared, '{"id": 7}', '{"id": 5}'), declared, [])
    good, bad = sorted(written(rows), key=lambda row: str(row[0]), reverse=True)
    assert good[:4] == ("out", b"7", b'{"id":7,"twice":14}', 7)
    assert bad[:3] == ("dead", b"k1", b'{"id": 5}')


def test_next_stage_reads_the_same_columns(spark: SparkSession) -> None:
    """The next stage gets the columns' types from the stage that wrote them."""
    columns = {
        "time": "timestamp'2024-01-31 10:00:00.123456'",
        "day": "date'2024-01-31'",
        "price": "CAST(1.50 AS DECIMAL(10, 2))",
        "share": "0.1D",
        "bytes": "unhex('00ff')",
        "none": "CAST(NULL AS STRING)",
        "nested": "named_struct('a', array(1, 2), 'b', map('x', timestamp'2024-01-31 10:00:00'))",
    }
    declared = only(json="id BIGINT", normalise=columns)
    rows = cleaned(spark, declared, '{"id": 7}')
    done = records.results(rows, declared).selectExpr(
        "'t' topic", "key", "value", "0 partition", "0L offset", "timestamp"
    )
    again = records.received(done.selectExpr("*", "NULL headers"))
    names = [name for name in rows.columns if name not in HIDDEN]
    reading = Reading(Parse("json", ""), rows.select(*names).schema)
    assert visible(parsed(again, reading)) == visible(rows)


def test_null_or_future_event_times_and_null_ids_are_refused(spark: SparkSession) -> None:
    declared = only(
        json="id BIGINT, at STRING", watermark="1 minute", event_time="to_timestamp(at)", deduplicate={"by": ["id"]}
    )
    good, far = '{"id": 1, "at": "2024-01-31"}', '{"id": 1, "at": "2099-01-31"}'
    rows = cleaned(spark, declared, good, '{"id": 1, "at": "soon"}', '{"at": "2024-01-31"}', "{}", far)
    when, id_ = "event_time is null (to_timestamp(at))", "id is null (deduplicate)"
    ahead = "event_time is more than 1 hour ahead (to_timestamp(at))"
    assert [row[0] for row in visible(timed(rows, declared))] == [None, when, id_, f"{when}; {id_}", ahead]


def test_timestamps_that_topics_refuse_become_dead_letters(spark: SparkSession) -> None:
    """Only timestamps of the file's expression. The writer replaces 0 and invalid timestamps of records by 1 ms."""
    declared = only(json="id BIGINT", timestamp="timestamp_millis(id)", ahead="2 hours")
    now = int(time.time() * 1000)
    times = [0, 1, 5, now + 3_600_000, now + 3 * 3_600_000, -1, -(10**9)]
    rows = plan.written(cleaned(spark, declared, *(f'{{"id": {at}}}' for at in times), "x"), declared, [])
    found = rows.selectExpr(
        "topic",
        "unix_millis(timestamp)",
        "string(element_at(filter(headers, h -> h.key = 'odradek.reason'), -1).value)",
    ).collect()
    before, ahead = (f"timestamp is {why} (timestamp_millis(id))" for why in ("before 1970", "more than 2 hours ahead"))
    expected: list[tuple[str, int, str | None]] = [("out", at, None) for at in (0, 1, 5, now + 3_600_000)]
    expected += [("dead", at * 1000, why) for at, why in ((4, ahead), (5, before), (6, before))]
    assert Counter(map(tuple, found)) == Counter([*expected, ("dead", 7000, "the value is not JSON")])


PEOPLE = {"with": "people", "on": "id", "as": "person", "parse": {"format": "json", "schema": "name STRING"}}


@pytest.mark.parametrize(("kind", "broadcast"), [("left", True), ("inner", False)])
def test_rows_are_enriched_by_the_latest_value_of_a_key(spark: SparkSession, kind: str, broadcast: bool) -> None:
    """Keys are compared as text; tombstones delete a key; refused rows pass unchanged."""
    declared = only(json="id BIGINT", enrich={**PEOPLE, "type": kind, "broadcast": broadcast})
    values = ['{"name": "old"}', None, "x", '{"name": "new"}', None]
    people = received(spark, *values).selectExpr(
        "named_struct('key', binary(string(element_at(array(1, 2, 3, 1, 4), int(record.offset) + 1))), "
        "'value', record.value, 'partition', 0, 'offset', record.offset, 'timestamp', record.timestamp) AS record"
    )
    one = declared.enrich[0]
    rows = cleaned(spark, declared, '{"id": 1}', '{"id": 2}', '{"id": 3}', "x", "{}")
    found = visible(enrich.enriched(rows, one, enrich.table(people, one, Reading.of(one.parse))))
    bad = ("the value is not JSON", None, None)
    everyone = [(None, 1, ("new",)), (None, 2, None), (None, 3, None), bad, (None, None, None)]
    assert found == (everyone if kind == "left" else [everyone[0], everyone[2], bad])


def test_latest_value_of_a_key_that_changed_partitions(spark: SparkSession) -> None:
    """The new partition has lower offsets. A tombstone there counts, too."""
    rows = [(1, 0, 1000, 1, "old"), (1, 5, 3, 2, "new"), (2, 0, 1001, 1, "old"), (2, 5, 4, 2, None),
            (3, 0, 10, 9, "older"), (3, 0, 11, 8, "newer")]  # fmt: skip
    frame = spark.createDataFrame(rows, "id INT, partition INT, offset BIGINT, at BIGINT, value STRING")
    people = frame.selectExpr(
        "named_struct('key', binary(string(id)), 'value', binary(value), 'partition', partition, 'offset', offset, "
        "'timestamp', timestamp_seconds(at)) AS record"
    )
    declared = only(json="id BIGINT", enrich={**PEOPLE, "parse": {"format": "string"}}).enrich[0]
    found = enrich.table(people, declared, Reading.of(declared.parse)).collect()
    assert sorted((row[0], row[1][0]) for row in found) == [("1", "new"), ("3", "newer")]


def test_windows_have_the_newest_timestamp_and_their_group_as_key(spark: SparkSession) -> None:
    """The newest record's time goes with a window, and its key is what it is by."""
    values = {"total": "sum(amount)", "n": "count(*)"}
    windows = {"window": "1 hour", "slide": "30 minutes", "by": ["who", "what"], "values": values}
    declared = only(json="who STRING, what STRING, amount BIGINT, at TIMESTAMP", watermark="1 hour", event_time="at",
                    aggregate=windows)  # fmt: skip
    rows = [("a", 1, "10:10"), ("a", 2, "10:40"), ("b", 4, "10:10")]
    given = [{"who": who, "what": "x", "amount": n, "at": f"2024-01-31T{at}:00Z"} for who, n, at in rows]
    frame = aggregated(timed(cleaned(spark, declared, *map(json.dumps, given)), declared), declared.aggregate)
    found = sorted(written(records.results(frame, declared)), key=lambda row: row[2])
    expected = [("09:30", "a", 1, 1, 0), ("09:30", "b", 4, 1, 2), ("10:00", "a", 3, 2, 1), ("10:00", "b", 4, 1, 2),
                ("10:30", "a", 2, 1, 1)]  # fmt: skip
    assert found == [window(*each) for each in expected]


def window(start: str, who: str, total: int, count: int, seconds: int) -> tuple[Any, ...]:
    hour = int(start[:2])
    ends = {"window_start": start, "window_end": f"{hour + 1:02}{start[2:]}"}
    times = {name: f"2024-01-31T{time}:00.000000Z" for name, time in ends.items()}
    value = {**times, "who": who, "what": "x", "total": total, "n": count}
    return "out", f'["{who}","x"]'.encode(), json.dumps(value, separators=(",", ":")).encode(), seconds, None
