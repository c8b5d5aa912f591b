"""The options of reading: names, defaults and refusals of Spark's Kafka source, and ours (`odradek.…`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from odradek.pipeline.errors import OptionError
from odradek.pipeline.options import BYTES_STAY, kafka_settings, lowered, named
from odradek.pipeline.parsing import INT, LONG, duration, flag, one_of, positive, size, timestamp
from odradek.pipeline.reading import offsets, subscription
from odradek.pipeline.reading.offsets import All, Exactly, Since, Spec
from odradek.pipeline.reading.subscription import Subscription
from odradek.pipeline.types import EARLIEST, LATEST, Target

READ_OPTIONS = (
    "odradek.local",
    "odradek.commit.group",
    "odradek.compacted",
    "odradek.columns",
    "odradek.pushdown",
    "odradek.split.bytes",
    "odradek.parquet",
    "odradek.parquet.hourly",
)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
REFUSED_READING = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": BYTES_STAY,
    "value.deserializer": BYTES_STAY,
    "enable.auto.commit": "progress is kept in the checkpoint; odradek.commit.group commits it as well",
    "interceptor.classes": "interceptors could change the data",
}
_COMPACTED = {"auto": None, "true": True, "false": False}
_BATCH_ONLY = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")
_STREAM_ONLY = {
    "maxoffsetspertrigger": "maxOffsetsPerTrigger",
    "minoffsetspertrigger": "minOffsetsPerTrigger",
    "maxtriggerdelay": "maxTriggerDelay",
}


@dataclass(frozen=True)
class ReadOptions:
    """How topics are read. None means not given; `notes` are warnings, one line each."""

    subscription: Subscription
    start: Spec
    end: Spec
    kafka: dict[str, str] = field(repr=False)  # without the prefix, as given: passwords among them
    fail_on_data_loss: bool
    columns: tuple[str, ...]  # in their order
    pushdown: bool  # whether filters narrow what is read
    max_offsets: int | None  # per trigger
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None  # per partition of Spark's
    attempts: int  # to list offsets, `retry_ms` apart
    retry_ms: int
    local: str  # auto, off or only: reading the files of a broker on the same machine
    compacted: bool | None  # whether offsets may be in no batch; None: as the topic's cleanup.policy says
    commit_group: str | None
    split_bytes: int
    parquet: Target | None  # tasks write files there and return rows about the files instead of records
    notes: tuple[str, ...]

    @property
    def committed(self) -> bool:
        """Whether the reader skips records of open and aborted transactions."""
        return self.kafka.get("isolation.level") == "read_committed"

    @classmethod
    def parse(cls, options: Mapping[str, str], streaming: bool) -> ReadOptions:
        """Checks everything that needs no broker; raises OptionError."""
        given = lowered(options, READ_OPTIONS)
        kafka = kafka_settings(options, REFUSED_READING)
        _check_isolation(kafka)
        start, end = _specs(given, streaming)
        limits = {name: _optional(given, name) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")}
        _check_limits(limits)
        return cls(
            subscription=subscription.parse(given),
            start=start,
            end=end,
            kafka=kafka,
            fail_on_data_loss=flag("failOnDataLoss", given.get("failondataloss", "true")),
            columns=columns(options),
            pushdown=_pushdown(given, streaming),
            max_offsets=limits["maxOffsetsPerTrigger"],
            min_offsets=limits["minOffsetsPerTrigger"],
            max_delay_ms=duration("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
            min_partitions=_optional(given, "minPartitions", INT),
            max_records=_optional(given, "maxRecordsPerPartition"),
            attempts=positive("fetchOffset.numRetries", given.get("fetchoffset.numretries", "3"), INT),
            retry_ms=duration("fetchOffset.retryIntervalMs", given.get("fetchoffset.retryintervalms", "1000")),
            local=one_of("odradek.local", given.get("odradek.local", "auto"), ("auto", "off", "only")),
            compacted=_COMPACTED[
                one_of("odradek.compacted", given.get("odradek.compacted", "auto"), tuple(_COMPACTED))
            ],
            commit_group=named(given, "odradek.commit.group"),
            split_bytes=size("odradek.split.bytes", given.get("odradek.split.bytes", _split(given))),
            parquet=_target(given),
            notes=tuple(_notes(given, kafka, streaming)),
        )


def _check_isolation(kafka: Mapping[str, str]) -> None:
    levels = ("read_uncommitted", "read_committed")
    if kafka.get("isolation.level", levels[0]) not in levels:
        raise OptionError(f"kafka.isolation.level must be {' or '.join(levels)}, not '{kafka['isolation.level']}'")


def _check_limits(limits: Mapping[str, int | None]) -> None:
    most, least = limits["maxOffsetsPerTrigger"], limits["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")


def _specs(given: Mapping[str, str], streaming: bool) -> tuple[Spec, Spec]:
    ends = [name for name in _BATCH_ONLY if name in given]
    if streaming and ends:
        raise OptionError(f"a stream has no end: the option {ends[0]} is for batch queries")
    start = _spec(given, "starting", LATEST if streaming else EARLIEST)
    end = _spec(given, "ending", LATEST)
    if not streaming:
        _check_batch(start, "startingOffsets", LATEST, "latest")
        _check_batch(end, "endingOffsets", EARLIEST, "earliest")
        _check_order(start, end)
    return start, end


def _spec(given: Mapping[str, str], which: str, default: int) -> Spec:
    """One timestamp for all wins over one for each partition, and those win over offsets, as in Spark."""
    words = ("error", "latest")
    name = "startingOffsetsByTimestampStrategy"
    or_latest = one_of(name, given.get(name.lower(), "error"), words) == "latest"
    if (time := given.get(f"{which}timestamp")) is not None:
        return Since(timestamp(f"{which}Timestamp", time), or_latest)
    if (times := given.get(f"{which}offsetsbytimestamp")) is not None:
        return Since(offsets.parse(f"{which}OffsetsByTimestamp", times, least=0), or_latest)
    if (text := given.get(f"{which}offsets")) is None:
        return All(default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return All(EARLIEST if word == "earliest" else LATEST)
    return Exactly(offsets.parse(f"{which}Offsets", text, least=EARLIEST))


def _check_batch(spec: Spec, option: str, wrong: int, word: str) -> None:
    if spec == All(wrong):
        raise OptionError(f"{option} cannot be {word} in a batch query: there would be nothing to read")
    if isinstance(spec, Exactly) and (found := [key for key, at in spec.offsets.items() if at == wrong]):
        raise OptionError(f"{option} of {offsets.names(found)} cannot be {word} ({wrong}) in a batch query")


def _check_order(start: Spec, end: Spec) -> None:
    """Reject a start after the end where this needs no broker."""
    if isinstance(start, Exactly) and isinstance(end, Exactly):
        _check_each(start.offsets, end.offsets, "offset")
    elif isinstance(start, Since) and isinstance(end, Since):
        if isinstance(start.times, dict) and isinstance(end.times, dict):
            _check_each(start.times, end.times, "timestamp")
        elif isinstance(start.times, int) and isinstance(end.times, int) and start.times > end.times:
            raise OptionError(f"the starting timestamp {start.times} is after the ending timestamp {end.times}")


def _check_each(start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int], what: str) -> None:
    if differing := start.keys() ^ end.keys():
        raise OptionError(f"each partition needs a start and an end: {offsets.names(differing)} has only one of them")
    for key, first in start.items():
        if 0 <= end[key] < first:
            raise OptionError(f"{offsets.names([key])}: the starting {what} {first} is after the ending one {end[key]}")


def _optional(given: Mapping[str, str], name: str, most: int = LONG) -> int | None:
    text = given.get(name.lower())
    return None if text is None else positive(name, text, most)


def columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of Spark's Kafka source, or those that `odradek.columns` selects. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    with_headers = flag("includeHeaders", given.get("includeheaders", "false"))
    if (text := given.get("odradek.columns")) is None:
        return COLUMNS if with_headers else COLUMNS[:-1]
    if "odradek.parquet" in given:
        raise OptionError("odradek.columns has no effect with odradek.parquet, whose files have all columns")
    chosen = tuple(name.strip() for name in text.split(","))
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(COLUMNS):
        raise OptionError(
            f"odradek.columns must be a list of columns out of {', '.join(COLUMNS)}, each once, not '{text}'"
        )
    return chosen


def _pushdown(given: Mapping[str, str], streaming: bool) -> bool:
    wanted = flag("odradek.pushdown", given.get("odradek.pushdown", "false"))
    if wanted and streaming:
        raise OptionError("odradek.pushdown is for batch queries: Spark pushes no filters into a stream")
    if wanted and "odradek.parquet" in given:
        raise OptionError("odradek.pushdown has no effect with odradek.parquet: filter by startingOffsets and assign")
    return wanted


def _split(given: Mapping[str, str]) -> str:
    """Tasks that write files get larger splits: a file should have some 100 MB."""
    return "256m" if "odradek.parquet" in given else "128m"


def _target(given: Mapping[str, str]) -> Target | None:
    folder = named(given, "odradek.parquet")
    hourly = flag("odradek.parquet.hourly", given.get("odradek.parquet.hourly", "false"))
    if folder is None:
        if hourly:
            raise OptionError("odradek.parquet.hourly has no effect without odradek.parquet")
        return None
    path = unquote(urlsplit(folder).path) if folder.startswith("file:") else folder
    if not path.startswith("/"):
        raise OptionError(f"odradek.parquet must be an absolute path or a file: URI, not '{folder}'")
    return Target(path, hourly)


def _notes(given: Mapping[str, str], kafka: Mapping[str, str], streaming: bool) -> list[str]:
    """Options that have no effect; Spark's source warns of the same ones."""
    notes = (
        []
        if streaming
        else [f"{name} has no effect in a batch query" for key, name in _STREAM_ONLY.items() if key in given]
    )
    groups = {"groupIdPrefix": "groupidprefix" in given, "kafka.group.id": "group.id" in kafka}
    why = "reading uses no group; odradek.commit.group names the group for committed offsets"
    return notes + [f"{name} has no effect: {why}" for name, is_given in groups.items() if is_given]
