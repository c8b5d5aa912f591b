"""Settings of Kafka's clients as arguments of Python, and errors of the pipeline in the words of this package."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.wire.connections import Connections
from odradek.pipeline.wire.settings import NUMBERS, Settings, as_settings

CLIENT_ID = "odradek-arrow"
READING = {*NUMBERS, "check.crcs", "client.id", "security.protocol"}
_OTHERS = {
    "auto.offset.reset": "use start=",
    "enable.auto.commit": "reading uses no group and commits nothing",
    "group.id": "reading uses no group and commits nothing",
    "isolation.level": "use isolation=",
}
_WORDS = (
    (" (with failOnDataLoss=false the query continues without them)", ""),
    (
        "odradek.compacted=true if it once was compacted; with failOnDataLoss=false the query continues without them",
        "compacted=True if it once was compacted",
    ),
    ("leave out odradek.local=only", "leave out local='only'"),
    ("startingOffsetsByTimestamp", "start"),
    ("endingOffsetsByTimestamp", "end"),
    ("startingOffsets", "start"),
    ("endingOffsets", "end"),
    (" (-1 is latest, -2 earliest)", ""),
    (", which the query does not read", ", which is not read"),
    ("kafka.*: ", ""),
    ("Spark has no type for that", "Arrow has no type for that"),
)
"""Of the Spark source, and of this package."""


def settings(servers: str | Sequence[str], given: Mapping[str, Any]) -> dict[str, str]:
    """Kafka's names and values, of arguments such as `security_protocol="SSL"`; OptionError without a server."""
    kafka = {"client.id": CLIENT_ID} | {name.replace("_", "."): _text(value) for name, value in given.items()}
    kafka["bootstrap.servers"] = servers if isinstance(servers, str) else ",".join(servers)
    Settings.of(kafka)
    return kafka


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_reading(names: Mapping[str, Any]) -> None:
    """OptionError for a setting that has no meaning for reading: a wrong name would seem to work."""
    for name in (name.replace("_", ".") for name in names):
        if name in _OTHERS:
            raise OptionError(f"{name} is not supported: {_OTHERS[name]}")
        if name not in READING and not name.startswith(("ssl.", "sasl.")):
            raise OptionError(
                f"unknown setting {name}; the settings are {', '.join(sorted(READING))}, ssl.… and sasl.…"
            )


def reach(brokers: Connections) -> None:
    """Connect to one of the servers. PipelineError where all refuse or have no address: a wrong address shows at once.

    A server that is slow, or cuts the connection off, is left to the retries of the next request.
    """
    refusals = []
    for address in brokers.settings.servers:
        try:
            brokers.at(address)
            return
        except (ConnectionRefusedError, socket.gaierror) as error:
            refusals.append(f"{address[0]}:{address[1]}: {error.strerror}")
        except OSError:
            return
    raise PipelineError(f"no broker responds: {', '.join(refusals)}")


@contextmanager
def own_words() -> Iterator[None]:
    """Errors of the pipeline name options of Spark: raise them again in the words of this package."""
    try:
        yield
    except PipelineError as error:
        raise type(error)(translated(str(error))) from error.__cause__


def translated(text: str) -> str:
    """The text of an error without words of Spark."""
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    return re.sub(r"\bodradek\.(?=local|compacted)", "", as_settings(text))
