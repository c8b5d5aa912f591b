"""The options of writing: those of Spark's Kafka sink, and ours (`odradek.…`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.pipeline.errors import OptionError
from odradek.pipeline.options import BYTES_STAY, kafka_settings, lowered, named
from odradek.pipeline.parsing import LONG, flag, natural

_ID, _BY, _BATCH = (f"odradek.transactional.{word}" for word in ("id", "by", "batch"))
WRITE_OPTIONS = ("odradek.stamp", "odradek.timestamps", "odradek.transactional", _ID, _BY, _BATCH)
REFUSED_WRITING = {
    "key.serializer": BYTES_STAY,
    "value.serializer": BYTES_STAY,
    "transactional.id": "odradek.transactional=true gives each task its own",
}


@dataclass(frozen=True)
class WriteOptions:
    """How rows become records. Without `topic` each row names its own in the column `topic`."""

    topic: str | None
    kafka: dict[str, str] = field(repr=False)
    headers: bool  # whether the column `headers` is written where there is one
    stamp: bool  # whether each record gets an id that identifies duplicates
    timestamps: bool  # whether the column `timestamp` becomes the record's
    transactional: bool  # whether each row is written once, as readers with read_committed see it
    name: str | None  # of a transactional batch, which identifies it when it is written again
    by: str | None  # the column that cuts it into units, however Spark cuts it
    batch: int  # the number of this one where several have the name, ascending

    @classmethod
    def parse(cls, options: Mapping[str, str], streaming: bool) -> WriteOptions:
        """Raises OptionError."""
        given = lowered(options, WRITE_OPTIONS)
        transactional = flag("odradek.transactional", given.get("odradek.transactional", "false"))
        return cls(
            topic=named(given, "topic"),
            kafka=kafka_settings(options, REFUSED_WRITING),
            headers=flag("includeHeaders", given.get("includeheaders", "true")),
            stamp=flag("odradek.stamp", given.get("odradek.stamp", str(streaming and not transactional))),
            timestamps=flag("odradek.timestamps", given.get("odradek.timestamps", "false")),
            transactional=transactional,
            name=_name(given, streaming, transactional),
            by=named(given, _BY),
            batch=natural(_BATCH, given.get(_BATCH, "0"), LONG - 1),
        )


def _name(given: Mapping[str, str], streaming: bool, transactional: bool) -> str | None:
    """A named batch needs a column: other cores, or adaptive execution, would cut it differently the next time."""
    name = named(given, _ID)
    for option in (option for option in (_ID, _BY, _BATCH) if option in given):
        if streaming:
            raise OptionError(f"{option} is for batch queries: a stream is identified by its checkpoint")
        if not transactional:
            raise OptionError(f"{option} has no effect without odradek.transactional=true")
        if name is None:
            raise OptionError(f"{option} has no effect without {_ID}")
    if name and _BY not in given:
        raise OptionError(f"{_ID} needs {_BY}: an integer column by which the rows are repartitioned")
    return name
