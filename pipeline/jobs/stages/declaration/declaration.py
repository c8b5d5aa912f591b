"""The declarations in a file of stages, checked: all mistakes are reported at once, one line each."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.stages.declaration import json_schema, order
from odradek.pipeline.jobs.stages.declaration.avro_declared import AVRO, Write, registered, write
from odradek.pipeline.jobs.stages.declaration.mistakes import Mistakes
from odradek.pipeline.jobs.stages.declaration.sql import RECORD
from odradek.pipeline.jobs.stages.declaration.tables import SPAN, TOPIC, Table
from odradek.pipeline.registry import settings
from odradek.pipeline.registry.settings import Registry

FORMATS = ("json", "csv", "string", AVRO)
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True)
class Parse:
    """How bytes become columns. `schema` is DDL, empty for strings, which fill the one column `column`.

    For Avro it is JSON: the latest of `subject` in the registry, empty until the registry was asked.
    """

    format: str
    schema: str
    column: str = "value"
    csv: tuple[tuple[str, str], ...] = ()  # Spark's options
    registry: Registry | None = None
    subject: str = ""


@dataclass(frozen=True)
class Enrich:
    """The latest value of each key of `topic`, as the struct `column`, where the key equals `on`."""

    topic: str
    on: str
    column: str
    inner: bool
    broadcast: bool
    parse: Parse


@dataclass(frozen=True)
class Aggregate:
    """Time windows, one row for each window and value of `by`. The spans are Spark's."""

    window: str
    slide: str | None
    offset: str | None
    by: dict[str, str]
    values: dict[str, str]


@dataclass(frozen=True)
class Stage:
    """One streaming query. None means not given; all dictionaries map a name to a SQL expression."""

    name: str
    sources: tuple[str, ...]
    to: str
    dead_letters: str
    partitions: int | None  # of topics that do not exist yet
    starting_offsets: str
    fail_on_data_loss: bool
    max_offsets: int | None  # per trigger
    parse: Parse | None  # None: the columns of the stage that writes the only source
    validate: dict[str, str]
    normalise: dict[str, str]
    drop: tuple[str, ...]
    key: str | None
    timestamp: str | None
    event_time: str
    watermark: str | None
    ahead: str  # how far in the future a time may be
    deduplicate: tuple[str, ...]  # columns
    enrich: tuple[Enrich, ...]
    aggregate: Aggregate | None
    write: Write | None  # None: JSON

    @property
    def stateful(self) -> bool:
        """Whether Spark keeps state between batches."""
        return bool(self.deduplicate or self.aggregate)

    @property
    def writes(self) -> tuple[str, ...]:
        """All topics that it writes."""
        return self.to, self.dead_letters

    @property
    def reads(self) -> tuple[str, ...]:
        """All topics that it reads, including those of `enrich`."""
        return self.sources + tuple(one.topic for one in self.enrich)


@dataclass(frozen=True)
class Pipeline:
    """A file's content. A stage comes after those whose topics it reads."""

    kafka: dict[str, str] = field(repr=False)  # without the prefix; may have passwords
    checkpoint: str
    stages: tuple[Stage, ...]


def load(path: Path) -> Pipeline:
    """Parse the file at `path`. Raises Mistakes; OptionError where it is no TOML."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not TOML
        raise OptionError(f"{path}: {error}") from None
    return declared(values, path.parent)


def declared(values: dict[str, Any], folder: Path) -> Pipeline:
    """The same for the values of a file in `folder`, to which its paths are relative."""
    mistakes: list[str] = []
    top = Table("", values, mistakes)
    kafka, client = _kafka(top)
    pipeline = Pipeline(
        kafka=kafka,
        checkpoint=top.text("checkpoint", "the folder or URI for the checkpoints of the queries", True) or "",
        stages=_stages(top, _File(folder, client)),
    )
    top.left()
    mistakes += _together(pipeline.stages)
    Mistakes.check(mistakes)
    return Pipeline(pipeline.kafka, pipeline.checkpoint, order.ordered(pipeline.stages))


class _File(NamedTuple):
    """What all stages of a file share."""

    folder: Path
    client: settings.Settings  # of registries


def _kafka(top: Table) -> tuple[dict[str, str], settings.Settings]:
    """The settings of Kafka's clients, and those of the registry's client among them."""
    given = top.flat("kafka", "a table of settings, with bootstrap.servers")
    if "kafka" in top and not given.get("bootstrap.servers", "").strip():
        top.wrong("kafka.bootstrap.servers", "is missing: the bootstrap brokers, 'host:port, …'")
    try:
        return settings.split(given)
    except OptionError as error:
        top.wrong("kafka", str(error))
        return given, ()


def _stages(top: Table, file: _File) -> tuple[Stage, ...]:
    dead_letters, partitions = top.topic("dead_letters"), top.number("partitions")
    tables = top.stages("stage")
    if not tables and "stage" not in top:
        top.missing("stage", "at least one [[stage]]")
    return tuple(_stage(table, file, dead_letters, partitions) for table in tables)


def _stage(table: Table, file: _File, dead_letters: str | None, partitions: int | None) -> Stage:
    sources, to = table.topics("from"), table.topic("to", required=True) or ""
    stage = Stage(
        name=_name(table),
        sources=sources,
        to=to,
        dead_letters=table.topic("dead_letters", _DEAD_LETTERS, required=not dead_letters) or dead_letters or "",
        partitions=table.number("partitions") or partitions,
        starting_offsets=table.one_of("starting_offsets", ("earliest", "latest")) or "",
        fail_on_data_loss=table.flag("fail_on_data_loss", True),
        max_offsets=table.number("max_offsets_per_trigger"),
        parse=_parse(table.table("parse"), file, sources),
        validate=table.expressions("validate"),
        normalise=table.expressions("normalise"),
        drop=table.texts("drop", "a list of columns"),
        key=table.text("key", "an expression"),
        timestamp=table.text("timestamp", "an expression"),
        event_time=table.text("event_time", "an expression") or f"{RECORD}.timestamp",
        watermark=table.span("watermark"),
        ahead=table.span("ahead") or "1 hour",  # what Kafka 4 accepts (message.timestamp.after.max.ms)
        deduplicate=_deduplicate(table.table("deduplicate")),
        enrich=tuple(_enrich(each, file) for each in table.tables("enrich")),
        aggregate=_aggregate(table.table("aggregate")),
        write=write(table.table("write"), to, file.client),
    )
    _check(stage, table)
    table.left()
    return stage


_OF_TIME = ("event_time", "watermark")
_DEAD_LETTERS = "the topic for records that cannot be parsed or break a rule"


def _name(table: Table) -> str:
    name = table.text("name", "a name for the query and its checkpoint", required=True) or ""
    if name and not (_NAME.fullmatch(name) and name.strip(".")):
        table.wrong("name", f"must have only letters, digits, '.', '_' and '-', and not only dots, not '{name}'")
    return name


def _check(stage: Stage, table: Table) -> None:
    if stage.to in stage.reads:
        table.wrong("to", f"is '{stage.to}', which the stage also reads")
    if stage.dead_letters and stage.dead_letters in (*stage.reads, stage.to):
        table.wrong("dead_letters", f"is '{stage.dead_letters}', which the stage also reads or writes")
    if ("deduplicate" in table or "aggregate" in table) and "watermark" not in table:
        table.missing("watermark", f"{SPAN}: how late a record may come (for deduplicate and aggregate)")
    for name in _OF_TIME:
        if name in table and not ("deduplicate" in table or "aggregate" in table):
            table.wrong(name, "has no effect: it is for deduplicate and aggregate, and the stage has neither")
    for name in (RECORD, *(name for name in stage.normalise if name.startswith("__"))):
        if name in stage.normalise:
            table.wrong(f"normalise.{name}", "is a reserved name")


def _parse(table: Table | None, file: _File, topics: tuple[str, ...]) -> Parse | None:
    if table is None:
        return None
    kind = table.one_of("format", FORMATS, required=True) or ""
    if kind == AVRO:
        registry, subject = registered(table, topics, file.client)
        parse = Parse(kind, "", registry=registry, subject=subject)
    else:
        parse = Parse(kind, _schema(table, file.folder, kind), *_details(table, kind))
    table.left()
    return parse


def _details(table: Table, kind: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    if kind == "csv":
        options = {"sep": table.separator("separator"), "quote": table.quote("quote")}
        return "", tuple((name, value) for name, value in options.items() if value is not None)
    return (table.text("column") or "value" if kind == "string" else ""), ()


def _schema(table: Table, folder: Path, kind: str) -> str:
    if kind == "string":
        return ""
    file = table.text("schema_file", "a path")
    schema = table.text("schema", "columns and types, 'id BIGINT, name STRING'", required=bool(kind) and not file)
    if file and schema:
        table.wrong("schema_file", "cannot be given together with schema")
    return _of_file(table, folder / file) if file else schema or ""


def _of_file(table: Table, path: Path) -> str:
    try:
        return json_schema.ddl(json.loads(path.read_text()))
    except OSError as error:
        table.wrong("schema_file", f"cannot read {path}: {error.strerror}")
    except (ValueError, json_schema.SchemaError) as error:
        table.wrong("schema_file", f"{path} is not a usable JSON Schema: {error}")
    return ""


def _deduplicate(table: Table | None) -> tuple[str, ...]:
    if table is None:
        return ()
    by = table.texts("by", "a list of columns", required=True)
    table.left()
    return by


def _enrich(table: Table, file: _File) -> Enrich:
    topic = table.topic("with", f"{TOPIC}, a compacted topic", required=True) or ""
    parse = _parse(table.table("parse"), file, (topic,) if topic else ())
    if "parse" not in table:
        table.missing("parse", "the format and schema of its values")
    found = Enrich(
        topic=topic,
        on=table.text("on", "an expression to compare with the topic's keys", required=True) or "",
        column=table.text("as", "the new column", required=True) or "",
        inner=table.one_of("type", ("left", "inner")) == "inner",
        broadcast=table.flag("broadcast", True),
        parse=parse or Parse("string", ""),
    )
    table.left()
    return found


def _aggregate(table: Table | None) -> Aggregate | None:
    if table is None:
        return None
    window = table.span("window")
    if "window" not in table:
        table.missing("window", SPAN)
    found = Aggregate(
        window=window or "",
        slide=table.span("slide"),
        offset=table.span("offset"),
        by=table.named("by", "a list of columns, or a table of expressions"),
        values=table.expressions("values", required=True),
    )
    table.left()
    return found


def _together(stages: tuple[Stage, ...]) -> Iterable[str]:
    """Mistakes between stages."""
    for name, count in Counter(stage.name for stage in stages if stage.name).items():
        if count > 1:
            yield f"stage {name}: name: {count} stages have this name"
    for stage in stages:
        if stage.parse is None and stage.sources and not _known(stage, stages):
            yield f"stage {stage.name}: parse: is missing: the format of the values of {', '.join(stage.sources)}"
    circle = order.circle(stages)
    if circle:
        yield f"stage {circle[0]}: from: the stages {' -> '.join(circle)} form a cycle"


def _known(stage: Stage, stages: Iterable[Stage]) -> bool:
    """Whether the values that it reads are one stage's results, and nothing else."""
    written = [topic for other in stages for topic in other.writes if topic in stage.sources]
    return len(stage.sources) == len(written) == 1 and written[0] in {other.to for other in stages}
