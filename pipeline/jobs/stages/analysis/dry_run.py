"""Try the expressions and columns of one stage on rows, and note mistakes, one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.row_by_row import keeps_rows
from odradek.pipeline.jobs.stages.declaration.avro_declared import AVRO
from odradek.pipeline.jobs.stages.declaration.declaration import Parse
from odradek.pipeline.jobs.stages.declaration.sql import HIDDEN
from odradek.pipeline.jobs.stages.steps.parse import Reading

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ORNAMENTS = re.compile(r"^\[[A-Z_.0-9]+\] | SQLSTATE: .*$")


class Wrong(Exception):
    """There are mistakes, and they are noted."""


class DryRun:
    """The dry run of the stage `name`."""

    def __init__(self, name: str, mistakes: list[str]) -> None:
        self._name, self._mistakes, self._before = name, mistakes, len(mistakes)

    def note(self, key: str, what: str) -> None:
        """Note a mistake of `key`."""
        self._mistakes.append(": ".join(filter(None, (f"stage {self._name}", key, what))))

    def sound(self) -> None:
        """Raises Wrong where a mistake was noted."""
        if len(self._mistakes) > self._before:
            raise Wrong

    def made(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` returns; Wrong, with a note, where Spark rejects it."""
        try:
            return make()
        except (PySparkException, OptionError) as error:
            self.note(key, _said(error))
            raise Wrong from None

    def reading(self, key: str, how: Parse) -> Reading:
        """The reading for a schema in DDL, or in a registry."""
        where = f"{key}.registry" if how.format == AVRO else f"{key}.schema"
        found: Reading = self.made(where, lambda: Reading.of(how))
        return found

    def names(self, key: str, names: Iterable[str]) -> None:
        """Check the names of new columns."""
        for name in names:
            if name in HIDDEN:
                self.note(key, f"'{name}' is a reserved name")

    def columns(self, rows: DataFrame, key: str, names: Iterable[str]) -> None:
        """Check that columns exist."""
        there = [name for name in rows.columns if name not in HIDDEN]
        for name in names:
            if name.lower() not in map(str.lower, there):
                near = difflib.get_close_matches(name, there, 1)
                hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(there)}"
                self.note(key, f"unknown column '{name}'; {hint}")

    def expressions(self, rows: DataFrame, key: str, given: Mapping[str, str], kinds: tuple[str, ...] = ()) -> None:
        """Check the expressions by name under `key`."""
        for name, expression in given.items():
            self.expression(rows, f"{key}.{name}", expression, kinds)

    def expression(self, rows: DataFrame, key: str, expression: str | None, kinds: tuple[str, ...] = ()) -> None:
        """Check an expression of one value for each row; its type must be one of `kinds`, if there are any."""
        if expression is not None:
            self._tried(key, lambda column: self._selected(key, rows, column, expression), expression, kinds)

    def _selected(self, key: str, rows: DataFrame, column: Column, expression: str) -> StructType:
        found = rows.select(column)
        if not keeps_rows(rows, found):
            self.note(key, f"must have one value for each record: {expression}")
        return found.schema

    def aggregates(self, rows: DataFrame, key: str, given: Mapping[str, str]) -> None:
        """Check aggregate expressions."""
        for name, expression in given.items():
            self._tried(f"{key}.{name}", lambda column: rows.groupBy().agg(column).schema, expression, ())

    def _tried(self, key: str, make: Callable[[Column], StructType], expression: str, kinds: tuple[str, ...]) -> None:
        try:
            kind = make(F.expr(expression)).fields[-1].dataType.simpleString()
        except PySparkException as error:
            self.note(key, _said(error))
        else:
            if kinds and kind not in kinds:
                self.note(key, f"is {kind} but must be {' or '.join(kinds)}: {expression}")


def _said(error: Exception) -> str:
    """The line of Spark's error that gives the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _ORNAMENTS.sub("", lines[0]) if lines else type(error).__name__
