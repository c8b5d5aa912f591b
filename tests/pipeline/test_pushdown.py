"""Filters that Spark pushes into a batch query: the rows stay the same, fewer records are read."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import datasource

from odradek.pipeline.errors import DataLoss, OptionError
from odradek.pipeline.reading.batch import FilteredReader
from odradek.pipeline.reading.pushdown import bounds, since
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.source import OdradekDataSource
from odradek.pipeline.types import Range

from ..clients.admin import create_topic
from .frames import load, rows
from .topics import NOW, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

SWITCH = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark with pushdown of filters into Python data sources."""
    spark.conf.set(SWITCH, "true")
    yield spark
    spark.conf.unset(SWITCH)


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """Three partitions; record n has the timestamp of second n."""
    name = create_topic(broker, partitions=3)
    send(broker, name, range(90), 3)
    return name


def time(second: float) -> str:
    return f"timestamp_millis({NOW} + {int(second * 1000)})"


CONDITIONS = [
    "offset >= 7",
    "offset > 7 and offset <= 20",
    "offset in (3, 9) and partition in (0, 2, 7)",
    f"timestamp >= {time(80)}",
    f"timestamp > {time(80.5)} and partition <=> 1",
    f"timestamp = {time(12)}",
    f"timestamp < {time(12)}",
    f"timestamp >= {time(1000)}",
    "topic = 'other'",
    "offset > 25 or partition = 1",
    "value is not null and not (partition = 1)",
    "offset < 0",
    "partition is null",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pushed_filters_return_the_same_rows(pushing: SparkSession, broker: Any, topic: str, condition: str) -> None:
    everything = load(pushing.read, broker, "odradek", subscribe=topic)
    narrowed = load(pushing.read, broker, "odradek", subscribe=topic, odradek_pushdown="true")
    found = rows(narrowed.where(condition))
    assert found == rows(everything.where(condition))
    assert bool(found) == (condition not in {CONDITIONS[7], "topic = 'other'", "offset < 0", "partition is null"})


def test_pushed_filters_reduce_the_tasks(pushing: SparkSession, broker: Any, topic: str) -> None:
    """Each partition that is read has one task."""
    for condition, tasks in (("partition in (0, 2)", 2), (f"timestamp >= {time(89)}", 1), ("length(value) > 0", 3)):
        frame = load(pushing.read, broker, "odradek", subscribe=topic, odradek_pushdown="true")
        assert frame.where(condition).rdd.getNumPartitions() == tasks


def test_error_without_pushdown_in_spark_names_the_setting(spark: SparkSession, broker: Any, topic: str) -> None:
    with pytest.raises(PySparkException, match=SWITCH):
        load(spark.read, broker, "odradek", subscribe=topic, odradek_pushdown="true").count()


def test_lost_offsets_are_reported_only_if_filters_may_match_them(broker: Any) -> None:
    """Filters by partition and offset can exclude lost offsets; timestamps of lost records are unknown."""
    topic = create_topic(broker)
    send(broker, topic, range(10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result(30)
    late = datasource.GreaterThan(("timestamp",), at(8))
    enough: list[datasource.Filter] = [late, datasource.GreaterThanOrEqual(("offset",), 4)]
    for filters, lost in ((enough[:1], True), (enough, False)):
        with pytest.raises(DataLoss) if lost else nullcontext():
            assert spans(broker, topic, filters, startingOffsets=json.dumps({topic: {"0": 0}})) == [(0, 8, 10)]


def test_pushdown_is_refused_for_streams_and_parquet() -> None:
    for options, streaming in (({}, True), ({"odradek.parquet": "/tmp/files"}, False)):
        given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "odradek.pushdown": "true", **options}
        with pytest.raises(OptionError, match=r"^odradek\.pushdown "):
            ReadOptions.parse(given, streaming=streaming)


def test_pushdown_needs_a_recent_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 has no `pushFilters`."""
    monkeypatch.delattr(datasource.DataSourceReader, "pushFilters")
    asked = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "odradek.pushdown": "true"}
    source = OdradekDataSource(asked)
    with pytest.raises(OptionError, match=r"^odradek\.pushdown needs PySpark 4\.1 or later$"):
        source.reader(source.schema())


def at(second: float) -> datetime:
    return datetime.fromtimestamp(NOW / 1000 + second, UTC)


def spans(broker: Any, topic: str, filters: list[datasource.Filter], **options: str) -> list[tuple[int, int, int]]:
    """The ranges that the tasks of a query with these filters read: partition, first offset, end offset."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    reader = FilteredReader(ReadOptions.parse(given, streaming=False))
    assert reader.pushFilters(filters) == filters
    found = [one.value.span for one in reader.partitions()]
    return [(one.partition, one.start, one.end) for one in found]


def test_filters_narrow_the_ranges_that_are_read(broker: Any, topic: str) -> None:
    offset, partition, when = ("offset",), ("partition",), ("timestamp",)
    cases: list[tuple[list[datasource.Filter], list[tuple[int, int, int]]]] = [
        ([datasource.GreaterThan(offset, 7), datasource.LessThanOrEqual(offset, 20)], [(n, 8, 21) for n in range(3)]),
        ([datasource.In(offset, (3, 9)), datasource.EqualTo(partition, 2)], [(2, 3, 10)]),
        ([datasource.GreaterThan(when, at(80)), datasource.EqualNullSafe(partition, 1)], [(1, 27, 30)]),
        ([datasource.EqualTo(when, at(80.9994))], [(n, 27, 30) for n in (0, 1)] + [(2, 27, 30)]),
        ([datasource.LessThan(when, at(3))], [(n, 0, 30) for n in range(3)]),
        ([datasource.Not(datasource.EqualTo(partition, 1))], [(n, 0, 30) for n in range(3)]),
        ([datasource.EqualTo(("topic",), "other")], []),
        ([datasource.GreaterThan(offset, 1 << 62)], []),
    ]
    for filters, expected in cases:
        assert spans(broker, topic, filters) == expected


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int  # s


NUMBERS = {"partition": st.integers(0, 3), "offset": st.integers(-2, 12), "timestamp": st.integers(-3, 15)}
COMPARISONS = {
    datasource.EqualTo: operator.eq,
    datasource.EqualNullSafe: operator.eq,
    datasource.GreaterThan: operator.gt,
    datasource.GreaterThanOrEqual: operator.ge,
    datasource.LessThan: operator.lt,
    datasource.LessThanOrEqual: operator.le,
    datasource.In: lambda one, several: one in several,
}
COMPARED = st.one_of(
    *(
        st.tuples(st.just(name), st.sampled_from(list(COMPARISONS)), st.lists(of, min_size=1))
        for name, of in NUMBERS.items()
    ),
    st.tuples(
        st.just("topic"),
        st.sampled_from([datasource.EqualTo, datasource.In]),
        st.lists(st.sampled_from("ab"), min_size=1),
    ),
)
TIMES = st.lists(st.integers(-3, 15), max_size=10)


def value(name: str, number: Any) -> Any:
    return EPOCH + timedelta(seconds=number) if name == "timestamp" else number


@given(st.lists(COMPARED, max_size=5), st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), TIMES))
def test_filters_exclude_no_matching_row(compared: list[Any], logs: dict[tuple[str, int], list[int]]) -> None:
    filters = []
    for name, kind, values in compared:
        wanted = [value(name, one) for one in values]
        filters.append(kind((name,), tuple(wanted) if kind is datasource.In else wanted[0]))
    found = bounds(filters)
    begins = {key: next((n for n, s in enumerate(log) if s * 1000 >= found.since), None) for key, log in logs.items()}
    ranges = found.cut([Range(*key, 0, len(log)) for key, log in sorted(logs.items()) if log])
    if found.since:
        ranges = since(ranges, begins)
    read = {(*each.key, offset) for each in ranges for offset in range(each.start, each.end)}
    for key, log in logs.items():
        for offset, second in enumerate(log):
            row = Row(*key, offset, second)
            if all(matches(row, one) for one in filters):
                assert (*key, offset) in read


def matches(row: Row, one: Any) -> bool:
    (name,) = one.attribute
    return bool(COMPARISONS[type(one)](value(name, getattr(row, name)), one.value))
