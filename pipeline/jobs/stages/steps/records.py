"""Records as read, and as written: results to the stage's topic, bad ones to its dead letters.

A result is the JSON, or the Avro, of all its columns. A bad record stays unchanged, and headers give the reason.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.declaration.declaration import Stage
from odradek.pipeline.jobs.stages.declaration.sql import HIDDEN, REASON, RECORD, TIMESTAMP, literal, quoted, whole
from odradek.pipeline.jobs.stages.steps import avro_results
from odradek.pipeline.jobs.stages.steps.avro_results import Output

HEADERS = "array<struct<key: string, value: binary>>"
READ = f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {HEADERS}"
WRITTEN = ("topic", "key", "value", "timestamp", "headers")
_OURS = "odradek."
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
_THEIR_HEADERS = f"filter({RECORD}.headers, h -> NOT startswith(h.key, '{_OURS}'))"


def received(rows: DataFrame) -> DataFrame:
    """The source's rows as one column `record`."""
    return rows.select(F.struct("key", "value", "topic", "partition", "offset", "timestamp", "headers").alias(RECORD))


def results(rows: DataFrame, stage: Stage, output: Output | None = None) -> DataFrame:
    """The results of good rows; JSON, unless there is an `output`."""
    if output is None:
        return _written(rows, _result(rows, stage))
    return _as_avro(rows, _result(rows, stage), "TRUE", output)


def dead_letters(rows: DataFrame, stage: Stage) -> DataFrame:
    """The dead letters of bad rows."""
    return _written(rows, _dead_letter(stage))


def both(rows: DataFrame, stage: Stage, output: Output | None = None) -> DataFrame:
    """The records of good and bad rows; good ones as `results`."""
    good, bad = _result(rows, stage), _dead_letter(stage)
    if output is not None:
        good["value"] = "CAST(NULL AS BINARY)"
    columns = {name: f"if({REASON} IS NULL, {good[name]}, {bad[name]})" for name in WRITTEN}
    return _written(rows, columns) if output is None else _as_avro(rows, columns, f"{REASON} IS NULL", output)


def _as_avro(rows: DataFrame, columns: dict[str, str], good: str, output: Output) -> DataFrame:
    """`columns`, with another value where a row is `good`."""
    struct = f"struct({', '.join(map(quoted, visible(rows)))})"
    made = {**columns, avro_results.FIELDS: f"CASE WHEN {good} THEN {struct} END"}
    return avro_results.encoded(rows.select(*(F.expr(made[name]).alias(name) for name in made)), output)


def _written(rows: DataFrame, columns: dict[str, str]) -> DataFrame:
    return rows.select(*(F.expr(columns[name]).alias(name) for name in WRITTEN))


def visible(rows: DataFrame) -> list[str]:
    """The columns that a result has."""
    return [name for name in rows.columns if name not in HIDDEN]


def _result(rows: DataFrame, stage: Stage) -> dict[str, str]:
    options = ", ".join(literal(word) for pair in _JSON.items() for word in pair)
    columns = ", ".join(map(quoted, visible(rows)))
    return {
        "topic": literal(stage.to),
        "key": _bytes(rows, stage.key or _key(stage)),
        "value": f"binary(to_json(struct({columns}), map({options})))",
        "timestamp": f"timestamp{whole(stage.timestamp or (TIMESTAMP if stage.aggregate else f'{RECORD}.timestamp'))}",
        "headers": f"CAST(NULL AS {HEADERS})" if stage.aggregate else _THEIR_HEADERS,
    }


def _bytes(rows: DataFrame, expression: str) -> str:
    [(_, kind)] = rows.select(F.expr(expression).alias("key")).dtypes
    return whole(expression) if kind == "binary" else f"binary(string{whole(expression)})"


def _key(stage: Stage) -> str:
    """Where the file names no key: the record's key, or an aggregate's `by`."""
    if stage.aggregate is None:
        return f"{RECORD}.key"
    names = [quoted(name) for name in stage.aggregate.by]
    if len(names) < 2:
        return "".join(names) or "NULL"
    return f"to_json(array({', '.join(f'string({name})' for name in names)}))"


def _dead_letter(stage: Stage) -> dict[str, str]:
    told = {
        "reason": REASON,
        "stage": literal(stage.name),
        **{name: f"string({RECORD}.{name})" for name in ("topic", "partition", "offset")},
    }
    headers = ", ".join(f"named_struct('key', '{_OURS}{name}', 'value', binary({text}))" for name, text in told.items())
    return {
        "topic": literal(stage.dead_letters),
        "key": f"{RECORD}.key",
        "value": f"{RECORD}.value",
        "timestamp": f"{RECORD}.timestamp",
        "headers": f"concat(coalesce({_THEIR_HEADERS}, array()), array({headers}))",
    }
