"""The actions of an entry in a topic's Delta table: files added or removed, with their hours, statistics, columns.

By Delta's PROTOCOL.md, "Add File and Remove File", "Partition Value Serialization" and "Per-file Statistics".
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.jobs.archive.store.manifest import File, now_ms

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

FOLDERS = ["date", "hour"]
"""Columns that are folders."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NULLABLE = ("nullable", "containsNull", "valueContainsNull")
_ROWS = ["path", "size_bytes", "num_records", "partition"]  # columns of deltalake's table of files


def between(table: DeltaTable, live: Mapping[str, File]) -> list[AddAction | RemoveAction]:
    """The actions after which the table consists of these files alone."""
    import pyarrow as pa

    had = {row["path"]: row for row in pa.table(table.get_add_actions()).select(_ROWS).to_pylist()}
    new = [file for path, file in live.items() if path not in had]
    gone = [row for path, row in had.items() if path not in live]
    gained = _gained(new, gone)
    added = [add(file, gained[_folder(inner(file))]) for file in new]
    return [*added, *(_remove(row, gained[_folder(row["path"])]) for row in gone)]


def _gained(new: Iterable[File], gone: Iterable[Mapping[str, Any]]) -> Mapping[str, bool]:
    """By folder: whether records come or go.

    A compaction moves the same records to other files, which readers of a table's changes skip. Replacing files have
    all records of the replaced ones, so equal numbers mean the same records.
    """
    more: dict[str, float] = defaultdict(float)
    for file in new:
        more[_folder(inner(file))] += file.rows
    for row in gone:
        rows = row["num_records"]
        more[_folder(row["path"])] -= math.nan if rows is None else rows
    return {folder: count != 0 for folder, count in more.items()}


def inner(file: File) -> str:
    """The path below the topic's folder."""
    return file.path.partition("/")[2]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def add(file: File, change: bool) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(inner(file), file.size, _values(file), file.modified_ms, change, json.dumps(_statistics(file)))


def _remove(row: Mapping[str, Any], change: bool) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    values = {name: None if value is None else str(value) for name, value in row["partition"].items()}
    return RemoveAction(row["path"], change, now_ms(), row["size_bytes"], values)


def _values(file: File) -> dict[str, str | None]:
    """Values of the columns that are folders: numbers have no leading zero."""
    found = dict(part.split("=", 1) for part in file.folder.split("/")[1:])
    date, hour = (None if found[name] == _NULL else found[name] for name in FOLDERS)
    return {"date": date, "hour": None if hour is None else str(int(hour))}


def _statistics(file: File) -> dict[str, Any]:
    """The manifest's facts on a file: readers skip files whose offsets they do not want."""
    indexes, spans = list(file.partitions), list(file.partitions.values())
    return {
        "numRecords": file.rows,
        "minValues": {"partition": min(indexes), "offset": min(span.first for span in spans)},
        "maxValues": {"partition": max(indexes), "offset": max(span.last for span in spans)},
        "nullCount": {"partition": 0, "offset": 0},
    }


def schema(path: Path) -> Schema:
    """The columns of a file, the same for all files of the topic, and those that are folders."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import Schema

    columns = pq.read_schema(path)
    for name, kind in zip(FOLDERS, (pa.date32(), pa.int32()), strict=True):
        columns = columns.append(pa.field(name, kind))
    return Schema.from_json(json.dumps(json.loads(Schema.from_arrow(columns).to_json(), object_hook=_nullable)))


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    """A part of Delta's schema without properties that some file writers promise and others do not."""
    changed: dict[str, Any] = {name: True for name in _NULLABLE if name in node}
    if "metadata" in node:
        changed["metadata"] = {}
    return {**node, **changed}
