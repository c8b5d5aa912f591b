"""Options: Spark's names and defaults, and a one-line error for each invalid value."""

from __future__ import annotations

import pytest

from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading.offsets import All, Exactly, Since
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.subscription import Subscription
from odradek.pipeline.source import OdradekDataSource
from odradek.pipeline.types import EARLIEST, LATEST
from odradek.pipeline.writing.write_options import WriteOptions

LEAST = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}


def read(streaming: bool = False, /, **more: str) -> ReadOptions:
    """Options of a read; `__` stands for a dot in a name."""
    return ReadOptions.parse(LEAST | {name.replace("__", "."): value for name, value in more.items()}, streaming)


def without(name: str) -> dict[str, str]:
    """The required options without one of them."""
    return {key: value for key, value in LEAST.items() if key != name}


def test_defaults_of_a_batch() -> None:
    assert ReadOptions.parse(LEAST, streaming=False) == ReadOptions(
        subscription=Subscription(topics=("t",)),
        start=All(EARLIEST),
        end=All(LATEST),
        kafka={"bootstrap.servers": "h:9092"},
        fail_on_data_loss=True,
        columns=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        pushdown=False,
        max_offsets=None,
        min_offsets=None,
        max_delay_ms=15 * 60_000,
        min_partitions=None,
        max_records=None,
        attempts=3,
        retry_ms=1000,
        local="auto",
        compacted=None,
        commit_group=None,
        split_bytes=128 * 1024 * 1024,
        parquet=None,
        notes=(),
    )


def test_stream_starts_at_the_end() -> None:
    options = read(True)
    assert options.start == All(LATEST)


def test_option_names_ignore_case() -> None:
    assert read(MAXRECORDSPERPARTITION="7", minpartitions="9").max_records == 7
    kafka = ReadOptions.parse({"KAFKA.bootstrap.servers": "h:1", "SubscribePattern": "a.*"}, False).kafka
    assert kafka == {"bootstrap.servers": "h:1"}


def test_read_committed_is_set_as_in_kafka() -> None:
    assert not read().committed
    assert not read(kafka__isolation__level="read_uncommitted").committed
    assert read(kafka__isolation__level="read_committed").committed


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"startingOffsets": " Earliest "}, All(EARLIEST)),
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}'}, Exactly({("t", 0): 5, ("t", 1): EARLIEST})),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, Since({("t", 0): 5})),
        ({"startingTimestamp": " 17 "}, Since(17)),
        ({"startingTimestamp": "17", "startingOffsetsByTimestampStrategy": "LATEST"}, Since(17, or_latest=True)),
        ({"startingTimestamp": "17", "startingOffsetsByTimestamp": "{", "startingOffsets": "{"}, Since(17)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "{"}, Since({("t", 0): 5})),
    ],
)
def test_starting_offsets_and_timestamps(given: dict[str, str], meant: object) -> None:
    assert read(**given).start == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"endingOffsets": "LATEST"}, All(LATEST)),
        ({"endingOffsets": '{"t":{"0":5,"1":-1}}'}, Exactly({("t", 0): 5, ("t", 1): LATEST})),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsets": "{"}, Since({("t", 0): 5})),
        ({"endingTimestamp": "17", "endingOffsetsByTimestamp": "{"}, Since(17)),
    ],
)
def test_ending_offsets_and_timestamps(given: dict[str, str], meant: object) -> None:
    assert read(**given).end == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"subscribe": " a, b,,a "}, Subscription(topics=("a", "b"))),
        ({"subscribePattern": " a.* "}, Subscription(pattern="a.*")),
        ({"assign": '{"b":[1,0],"a":[2]}'}, Subscription(assigned=(("a", 2), ("b", 0), ("b", 1)))),
    ],
)
def test_subscriptions(given: dict[str, str], meant: Subscription) -> None:
    assert ReadOptions.parse(without("subscribe") | given, streaming=False).subscription == meant


@pytest.mark.parametrize(
    "given",
    [
        {"maxRecordsPerPartition": str(2**63 - 1), "minPartitions": "0002147483647"},
        {"startingTimestamp": str(2**63 - 1)},
        {"startingOffsets": f'{{"t":{{"0":{2**63 - 1}}}}}'},
        {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5"},
        {"startingTimestamp": "5", "endingTimestamp": "5"},
        {"startingOffsets": '{"t":{"0":5,"1":7}}', "endingOffsets": '{"t":{"0":5,"1":-1}}'},
    ],
)
def test_extreme_values_are_accepted(given: dict[str, str]) -> None:
    read(**given)


def test_own_options_are_parsed() -> None:
    options = read(odradek__local="ONLY", odradek__commit__group=" g ", odradek__split__bytes="64mb")
    assert (options.local, options.commit_group, options.split_bytes) == ("only", "g", 64 << 20)
    assert read(odradek__parquet="/files").split_bytes == 256 << 20
    assert [read(odradek__compacted=word).compacted for word in ("auto", "true", "false")] == [None, True, False]


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("2h", 7_200_000), ("500", 500), ("1min", 60_000)])
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert read(True, maxTriggerDelay=text).max_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribePattern": "x"}, "subscribe and subscribepattern"),
        ({"subscribe": " , "}, "must be topic names"),
        ({"kafka.bootstrap.servers": " "}, "bootstrap.servers must be given"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "cast the columns"),
        ({"kafka.value.deserializer": "x"}, "cast the columns"),
        ({"kafka.enable.auto.commit": "true"}, "odradek.commit.group"),
        ({"kafka.interceptor.classes": "x"}, "interceptors"),
        ({"kafka.isolation.level": "committed"}, "read_uncommitted or read_committed"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number above 0"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger (6) is higher"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
        ({"includeHeaders": "1"}, "includeHeaders must be true or false"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"t":{"0":1,"1":-1}}'}, "startingOffsets of t-1 cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets of t-0 cannot be earliest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets must have the form"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets must have the form"),
        ({"startingOffsets": '{"t":{"x":1}}'}, "startingOffsets must have the form"),
        ({"startingOffsets": '["t"]'}, "startingOffsets must have the form"),
        ({"startingOffsets": "first"}, "startingOffsets must have the form"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp must have the form"),
        ({"startingTimestamp": "today"}, "startingTimestamp must be milliseconds"),
        ({"startingTimestamp": "-1"}, "startingTimestamp must be milliseconds"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp must be milliseconds"),
        ({"startingTimestamp": "9" * 5000}, "startingTimestamp must be milliseconds"),
        ({"startingOffsets": f'{{"t":{{"0":{2**63}}}}}'}, "startingOffsets must have the form"),
        ({"startingOffsetsByTimestamp": f'{{"t":{{"0":{2**63}}}}}'}, "startingOffsetsByTimestamp must have the form"),
        ({"minPartitions": "1000000000000"}, "minPartitions must be at most 2147483647"),
        ({"fetchOffset.numRetries": str(2**31)}, "fetchOffset.numRetries must be at most 2147483647"),
        ({"maxRecordsPerPartition": str(2**63)}, "maxRecordsPerPartition must be at most 9223372036854775807"),
        ({"odradek.split.bytes": "9" * 5000}, "odradek.split.bytes must be a size"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "the starting timestamp 5 is after"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "t-0: the starting offset 5"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":6}}'}, "t-0, t-1 has only one"),
        ({"odradek.local": "yes"}, "auto, off or only"),
        ({"odradek.commit.group": " "}, "odradek.commit.group is empty"),
        ({"odradek.split.bytes": "0m"}, "above 0"),
        ({"odradek.split.bytes": "2 bags"}, "odradek.split.bytes must be a size"),
        ({"odradek.compacted": "no"}, "odradek.compacted must be auto, true or false"),
        ({"odradek.locale": "auto"}, "unknown option odradek.locale; the options are odradek.local,"),
    ],
)
def test_invalid_read_options_are_refused_in_one_line(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadOptions.parse(LEAST | given, streaming=False)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "one of the options subscribe"),
        ({"assign": "t-0"}, "assign must be partitions"),
        ({"assign": "{}"}, "assign must be partitions"),
        ({"assign": '{"t":["0"]}'}, "assign must be partitions"),
        ({"assign": '{"t":[-1]}'}, "assign must be partitions"),
        ({"assign": '{"t":0}'}, "assign must be partitions"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribePattern": "a["}, "not a regular expression"),
    ],
)
def test_missing_or_invalid_subscription_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        ReadOptions.parse(without("subscribe") | given, streaming=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_stream_has_no_ending_offsets(name: str) -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        read(True, **{name: "latest"})


def test_option_without_effect_is_logged() -> None:
    assert read(True, maxOffsetsPerTrigger="5").notes == ()
    assert read(maxOffsetsPerTrigger="5").notes == ("maxOffsetsPerTrigger has no effect in a batch query",)
    notes = read(kafka__group__id="g", groupIdPrefix="p").notes
    assert [note.partition(" has no effect")[0] for note in notes] == ["groupIdPrefix", "kafka.group.id"]


def test_defaults_of_a_write() -> None:
    least = {"kafka.bootstrap.servers": "h:9092"}
    assert WriteOptions.parse(least, streaming=True) == WriteOptions(
        topic=None,
        kafka={"bootstrap.servers": "h:9092"},
        headers=True,
        stamp=True,
        timestamps=False,
        transactional=False,
        name=None,
        by=None,
        batch=0,
    )
    assert not WriteOptions.parse(least, streaming=False).stamp
    assert WriteOptions.parse(least | {"odradek.stamp": "true"}, streaming=False).stamp
    assert WriteOptions.parse(least | {"topic": " t "}, streaming=False).topic == "t"


def test_passwords_are_not_shown() -> None:
    secret = LEAST | {"kafka.sasl.jaas.config": "PlainLoginModule required password=hush;"}
    for options in (ReadOptions.parse(secret, False), WriteOptions.parse(secret, False)):
        assert "hush" not in repr(options)


@pytest.mark.parametrize(("text", "columns"), [(" TRUE ", 8), ("false", 7), (None, 7)])
def test_header_column_is_optional(text: str | None, columns: int) -> None:
    """The schema has as many columns as the batches: both read the option by `flag`."""
    given = {} if text is None else {"includeHeaders": text}
    assert OdradekDataSource(given).schema().names == list(read(**given).columns)
    assert len(read(**given).columns) == columns


def test_chosen_columns_keep_their_order() -> None:
    given = {"odradek.columns": "headers, offset,key"}
    assert OdradekDataSource(given).schema().names == ["headers", "offset", "key"] == list(read(**given).columns)


def test_transactional_writes_need_no_stamp_header() -> None:
    given = {"kafka.bootstrap.servers": "h:9092", "odradek.transactional": "true"}
    assert not WriteOptions.parse(given, streaming=True).stamp
    named = given | {"odradek.transactional.id": " n ", "odradek.transactional.by": "unit"}
    parsed = WriteOptions.parse(named | {"odradek.transactional.batch": "7"}, streaming=False)
    assert (parsed.transactional, parsed.name, parsed.by, parsed.batch) == (True, "n", "unit", 7)
    assert WriteOptions.parse(named, streaming=False).batch == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            {"id": "n", "by": "c", "": "false"},
            "odradek.transactional.id has no effect without odradek.transactional=true",
        ),
        ({"by": "c"}, "odradek.transactional.by has no effect without odradek.transactional.id"),
        ({"batch": "1"}, "odradek.transactional.batch has no effect without odradek.transactional.id"),
        ({"id": "n"}, "odradek.transactional.id needs odradek.transactional.by"),
        ({"id": "n", "by": " "}, "odradek.transactional.by is empty"),
        ({"id": "n", "by": "c", "batch": "-1"}, "odradek.transactional.batch must be a whole number from 0"),
    ],
)
def test_transactional_options_without_their_counterparts_are_refused(words: dict[str, str], told: str) -> None:
    """Without the column, another number of cores or adaptive execution would split a repeated batch in another way."""
    given = {"kafka.bootstrap.servers": "h:9092", "odradek.transactional": "true"}
    given |= {f"odradek.transactional.{word}".rstrip("."): value for word, value in words.items()}
    with pytest.raises(OptionError, match=told):
        WriteOptions.parse(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.key.serializer": "x"}, "cast the columns"),
        ({"kafka.value.serializer": "x"}, "cast the columns"),
        ({"kafka.bootstrap.servers": ""}, "must be given"),
        ({"topic": " "}, "topic is empty"),
        ({"odradek.stamp": "maybe"}, "odradek.stamp must be true or false"),
        (
            {"odradek.transactional": "true", "odradek.transactional.id": "n"},
            "a stream is identified by its checkpoint",
        ),
        ({"kafka.transactional.id": "x"}, "gives each task its own"),
        ({"odradek.local": "auto"}, "unknown option odradek.local"),
    ],
)
def test_invalid_write_options_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        WriteOptions.parse({"kafka.bootstrap.servers": "h:9092"} | given, streaming=True)


TOPICS = {"a": 2, "ab": 1, "b": 1, "__consumer_offsets": 50}


@pytest.mark.parametrize(
    ("subscription", "found", "missing"),
    [
        (Subscription(topics=("b", "a")), [("a", 0), ("a", 1), ("b", 0)], []),
        (Subscription(topics=("b", "c")), [("b", 0)], ["c"]),
        (Subscription(pattern="b"), [("ab", 0), ("b", 0)], []),
        (Subscription(pattern="c$"), [], []),
        (Subscription(pattern="offsets"), [], []),
        (Subscription(assigned=(("a", 1), ("a", 2), ("c", 0))), [("a", 1)], ["c", "a-2"]),
    ],
)
def test_partitions_of_a_subscription(
    subscription: Subscription, found: list[tuple[str, int]], missing: list[str]
) -> None:
    assert subscription.partitions(TOPICS) == found
    assert subscription.missing(TOPICS) == missing


def test_internal_topic_is_read_if_it_is_named() -> None:
    assert len(Subscription(topics=("__consumer_offsets",)).partitions(TOPICS)) == 50
