"""Small files of an hour are compacted into one: the choice of files, and that records and columns stay the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.formats import Format, Shape
from odradek.pipeline.jobs.archive.sink import compaction, staging
from odradek.pipeline.jobs.archive.sink.columns import digest
from odradek.pipeline.jobs.archive.store.manifest import Commit, File, Span, State
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.files import Files

from .archives import assert_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live

TARGET = 100
FILES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["00", "01"]), st.sampled_from(["x", "y"]), st.integers(1, 150)),
    max_size=30,
)


@given(FILES, st.integers(2, 4))
def test_groups_have_files_of_one_hour_and_schema_up_to_the_target_size(
    made: list[tuple[str, str, str, int]], least: int
) -> None:
    """A group has at least `least` files; fewer small files stay alone."""
    files = [
        File(f"topic={topic}/date=2026-11-23/hour={hour}/{at}.parquet", topic, {}, size, at, schema)
        for at, (topic, hour, schema, size) in enumerate(made)
    ]
    found = compaction.groups(State(0, {file.path: file for file in files}), TARGET, least)
    chosen = [file for group in found for file in group]
    assert len(chosen) == len({file.path for file in chosen})
    for group in found:
        assert len(group) >= least
        assert len({(file.folder, file.schema) for file in group}) == 1
        assert all(file.size < TARGET / 2 for file in group)
        assert sum(file.size for file in group) <= TARGET
    left = Counter(
        (file.folder, file.schema) for file in files if file.size < TARGET / (2 * least) and file not in chosen
    )
    assert all(count < least for count in left.values())


@given(st.lists(st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 9), st.integers(0, 99)), max_size=3)))
def test_offset_spans_of_a_group_are_merged(made: list[dict[int, tuple[int, int]]]) -> None:
    files = [
        File(str(at), "t", {index: Span(rows, first, first + rows) for index, (rows, first) in each.items()}, 1)
        for at, each in enumerate(made)
    ]
    found = compaction.together(files)
    assert sum(span.rows for span in found.values()) == sum(file.rows for file in files)
    for index, span in found.items():
        mine = [file.partitions[index] for file in files if index in file.partitions]
        assert span[1:] == (min(each.first for each in mine), max(each.last for each in mine))


def put(spark: SparkSession, store: Store, frame: DataFrame, times: int) -> None:
    """Commit the frame's rows as files of topic t, in `times` batches."""
    for number in range(times):
        part = frame.where(f"offset % {times} = {number}").coalesce(1)
        [staged] = staging.write(store.files, part, f"{store.staging}/{number}", ("topic", "date", "hour"))
        path = f"{staged.folder}/{store.state.number + 1}.parquet"
        file = File(path, "t", staged.partitions, staged.size, staged.modified_ms, digest(part))
        store.commit([(staged.path, path)], Commit("s", number, {}, (file,)))


def test_compaction_keeps_rows_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Also column metadata, which marks a decoded value; files with other columns are compacted separately."""
    plain = spark.range(9).selectExpr(
        "encode(format_string('%d', id), 'utf-8') key", "CAST('x' AS binary) value", "0 partition", "id offset",
        "'t' topic", "DATE'2026-11-23' date", "CAST(null AS string) hour",
    )  # fmt: skip
    shaped = shapes.shape(plain, Shape(value=Format("string")))
    with Store(Files(spark, str(tmp_path))) as store:
        put(spark, store, plain.where("offset < 4"), 2)
        put(spark, store, shaped.where("offset >= 4"), 3)
        assert compaction.run(spark, store, 1 << 20) == 5
        state = store.state
    assert_whole(spark, tmp_path, "t", [(0, n) for n in range(9)])
    assert sorted(file.rows for file in state.files.values()) == [4, 5]
    for file in state.files.values():
        frame = spark.read.parquet(str(tmp_path / file.path))
        expected = shaped if file.rows == 5 else plain
        assert shapes.of(frame) == shapes.of(expected)
        assert frame.columns == expected.drop("topic", "date", "hour").columns
        wanted = expected.where("offset >= 4" if file.rows == 5 else "offset < 4").select(frame.columns).collect()
        assert frame.collect() == wanted


def test_file_with_a_missing_record_is_not_compacted(spark: SparkSession, tmp_path: Path) -> None:
    """The manifest has the expected records, so the files stay."""
    frame = spark.range(4).selectExpr("0 partition", "id offset", "'t' topic", "DATE'2026-11-23' date", "'01' hour")
    with Store(Files(spark, str(tmp_path))) as store:
        put(spark, store, frame, 2)
        path = sorted(tmp_path.glob("topic=t/*/*/*.parquet"))[0]
        frame.limit(1).select("partition", "offset").write.parquet(str(tmp_path / "other"))
        next((tmp_path / "other").glob("*.parquet")).rename(path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        before = store.state
        with pytest.raises(PipelineError, match=r"small files of topic=t/.* no file was changed"):
            compaction.run(spark, store, 1 << 20)
        assert store.state == before
    assert path.exists()
