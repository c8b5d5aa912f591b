"""The contents of an archive's Delta tables: read by hand, by deltalake, and compared with Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from odradek.pipeline.jobs.archive.store.delta import APP
from odradek.pipeline.jobs.archive.store.manifest import State

from .archives import Ids, live, read_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class Log:
    """A table by its log entries, read by hand (Delta's PROTOCOL.md: "Action Reconciliation")."""

    entries: list[list[dict[str, Any]]] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    number: int | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The types of its columns by name, as Delta writes them."""
        return {each["name"]: each["type"] for each in json.loads(self.metadata["schemaString"])["fields"]}

    def follow(self, entry: list[dict[str, Any]]) -> None:
        """Apply one entry. An entry names each file once; added files are new, removed ones exist."""
        self.entries.append(entry)
        for name in ("metaData", "protocol", "txn", "commitInfo"):
            assert len(said(entry, name)) <= 1
        for removed in said(entry, "remove"):
            assert removed["dataChange"] in (True, False)
            del self.files[unquote(removed["path"])]
        for added in said(entry, "add"):
            assert unquote(added["path"]) not in self.files
            self.files[unquote(added["path"])] = added
        self.metadata = [self.metadata, *said(entry, "metaData")][-1]
        self.protocol = [self.protocol, *said(entry, "protocol")][-1]
        self.number = [self.number, *(each["version"] for each in said(entry, "txn") if each["appId"] == APP)][-1]


def said(entry: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The actions of that name in an entry."""
    return [action[name] for action in entry if name in action]


def log(folder: Path, topic: str) -> Log:
    """The topic's table, from all of its entries."""
    found = Log()
    entries = sorted((folder / f"topic={topic}/_delta_log").glob("*.json"))
    assert [path.name for path in entries] == [f"{at:020}.json" for at in range(len(entries))]
    for path in entries:
        found.follow([json.loads(line) for line in path.read_text().splitlines()])
    return found


def assert_files(folder: Path, topic: str, state: State) -> Log:
    """The newest entry names the manifest's files, with their size, partition values and statistics."""
    found = log(folder, topic)
    assert set(found.files) == {file.path.partition("/")[2] for file in state.of(topic)}
    assert found.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert found.metadata["partitionColumns"] == ["date", "hour"]
    assert found.number is not None
    assert found.number <= state.number
    for path, added in found.files.items():
        whole = folder / f"topic={topic}" / path
        assert added["size"] == whole.stat().st_size
        assert added["partitionValues"] == values(path)
        _assert_statistics(json.loads(added["stats"]), read_ids([whole]))
    return found


def values(path: str) -> dict[str, str | None]:
    """The values of the partition columns, as Delta writes them."""
    date, hour = (part.partition("=")[2] for part in path.split("/")[:2])
    return {"date": None if date == NULL else date, "hour": None if hour == NULL else hour.removeprefix("0") or "0"}


def _assert_statistics(told: dict[str, Any], ids: Ids) -> None:
    partitions, offsets = zip(*ids, strict=True)
    assert told == {
        "numRecords": len(ids),
        "minValues": {"partition": min(partitions), "offset": min(offsets)},
        "maxValues": {"partition": max(partitions), "offset": max(offsets)},
        "nullCount": {"partition": 0, "offset": 0},
    }


def tabled(folder: Path, topic: str) -> Ids:
    """The records that deltalake reads in the table."""
    if not DeltaTable.is_deltatable(str(folder / f"topic={topic}")):
        return []
    table = DeltaTable(folder / f"topic={topic}").to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def assert_same(spark: SparkSession, folder: Path, topic: str) -> Log:
    """Both of deltalake's readers return the rows that Spark reads in the topic's folder."""
    found = assert_files(folder, topic, live(spark, folder))
    table = DeltaTable(folder / f"topic={topic}")
    expected = spark.read.parquet(str(folder / f"topic={topic}")).toArrow()
    for rows in (table.to_pyarrow_table(), pa.table(table.scan())):
        assert rows.column_names == expected.column_names
        assert in_order(rows) == in_order(expected)
    return found


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by partition and offset."""
    return sorted(rows.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def foreign(folder: Path, topic: str, name: str = "theirs.parquet") -> Path:
    """A file next to the archive's, with a record that the archive does not have."""
    path = folder / f"topic={topic}/date=2026-11-23/hour=01/{name}"
    pq.write_table(pa.table({"partition": pa.array([9], pa.int32()), "offset": pa.array([99], pa.int64())}), path)
    return path
