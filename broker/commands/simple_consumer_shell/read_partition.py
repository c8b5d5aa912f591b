"""Implements `odradek simple-consumer-shell`; what it prints is what SimpleConsumerShell of Kafka 0.8.2 prints.

Except within a compressed batch: that tool prints the batch's first messages even if --offset is behind them.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from kafka.protocol.consumer import FetchRequest

from odradek.broker.commands._shared.client import Cluster, RequestFailed, check, explain
from odradek.broker.commands._shared.options import reader_left
from odradek.broker.commands.console_consumer.formatters import Format
from odradek.broker.commands.simple_consumer_shell import LEADER
from odradek.broker.errors import FAILED, OK, OdradekError
from odradek.protocol.batch import LOG_OVERHEAD, MAGIC_AT
from odradek.protocol.errors import OFFSET_OUT_OF_RANGE
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.record_times import first_entry

_DEBUGGING = -2  # as replica id: followers answer it too
_PAUSE = 0.1  # s before another fetch where a broker does not wait
_UNPRINTABLE = (ValueError, ArithmeticError, TypeError, struct.error)


class Message(NamedTuple):
    """A record with the attributes that formatters read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_type: int
    leader_epoch: int


def run(cluster: Cluster, options: Mapping[str, Any], show: Format) -> int:
    """Print messages until a limit of the options; returns the exit code. RequestFailed."""
    node = _broker(cluster, options)
    if node is None:
        return FAILED
    place = options["topic"], options["partition"]
    offset = options["offset"]
    if offset < 0:
        found, failed = cluster.offsets({place: offset})
        check(failed.get(place, 0))
        offset = found[place][0]
    try:
        _print_all(cluster, node, offset, options, show)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_left()
        return FAILED
    return OK


def _broker(cluster: Cluster, options: Mapping[str, Any]) -> int | None:
    """The id of the broker to read from; None, once the reason is printed, if there is none."""
    topic, index, replica = options["topic"], options["partition"], options["replica"]
    parts = {part.partition_index: part for one in cluster.metadata([topic]).topics for part in one.partitions}
    why = ""
    if index not in parts:
        why = f"partition {index} does not exist for topic {topic}"
    elif replica == LEADER and parts[index].leader_id < 0:
        why = f"partition ({topic}, {index}) has no leader yet"
    elif replica != LEADER and replica not in parts[index].replica_nodes:
        why = f"replica {replica} does not exist for partition ({topic}, {index})"
    if why:
        click.echo(f"Error: {why}", err=True)
        return None
    return int(parts[index].leader_id if replica == LEADER else replica)


def _print_all(cluster: Cluster, node: int, offset: int, options: Mapping[str, Any], show: Format) -> None:
    """Fetch and print from `offset` on."""
    left = options["max_messages"]
    while left > 0:
        messages, following = _fetch(cluster, node, offset, options)
        for message in messages[:left]:
            left -= _print(message, options, show)
        if following > offset:
            offset = following
        elif options["no_wait_at_logend"]:
            place = f"({options['topic']}, {options['partition']})"
            click.echo(f"Terminating. Reached the end of partition {place} at offset {offset}")
            return
        else:
            sys.stdout.flush()
            time.sleep(_PAUSE)


def _print(message: Message, options: Mapping[str, Any], show: Format) -> int:
    """Print a message; returns how many that were, 0 for one that is skipped. OdradekError."""
    if options["print_offsets"]:
        click.echo(f"next offset = {message.offset + 1}")
    try:
        sys.stdout.buffer.write(show([message]))
    except _UNPRINTABLE as error:
        text = f"the message at offset {message.offset}: {error}"
        if not options["skip_message_on_error"]:
            raise OdradekError(f"cannot print {text}") from None
        click.echo(f"ERROR skipped {text}", err=True)
        return 0
    sys.stdout.buffer.flush()
    return 1


def _fetch(cluster: Cluster, node: int, offset: int, options: Mapping[str, Any]) -> tuple[list[Message], int]:
    """The messages from `offset` on, and the offset behind them; none outside the log, as in 0.8. RequestFailed."""
    response = cluster.send(_request(offset, options), node)
    ((part,),) = (topic.partitions for topic in response.responses)
    if part.error_code and part.error_code != OFFSET_OUT_OF_RANGE:
        raise RequestFailed(part.error_code, f"broker {node}: {explain(part.error_code)}")
    messages: list[Message] = []
    for batch in _batches(bytes(part.records or b"")):
        some, following = _opened(batch, options)
        messages += (message for message in some if message.offset >= offset)
        offset = max(offset, following)
    return messages, offset


def _request(offset: int, options: Mapping[str, Any]) -> Any:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(
        partition=options["partition"], fetch_offset=offset, log_start_offset=-1,
        partition_max_bytes=options["fetchsize"],
    )  # fmt: skip
    return FetchRequest(
        replica_id=_DEBUGGING, max_wait_ms=options["max_wait_ms"], min_bytes=1, max_bytes=options["fetchsize"],
        topics=[topic(topic=options["topic"], partitions=[part])], forgotten_topics_data=[],
        min_version=4, max_version=12,  # from 13 on topics have ids instead of names
    )  # fmt: skip


def _batches(data: bytes) -> Iterator[bytes]:
    """Whole batches, or messages from before 0.11; the last one is often cut."""
    while batch := first_entry(data):
        yield batch
        data = data[len(batch) :]


def _opened(batch: bytes, options: Mapping[str, Any]) -> tuple[list[Message], int]:
    """The messages of a batch, none of a control batch, and the offset behind it."""
    if batch[MAGIC_AT] < 2:
        kind, epoch, rows = batch_v2.CREATE_TIME, -1, list(message_sets.iterate(batch))
        following = int.from_bytes(batch[:8]) + 1
    else:
        head = batch_v2.header(batch)
        kind, epoch, following = head.timestamp_type, head.leader_epoch, head.last_offset + 1
        rows = [] if head.is_control else list(batch_v2.iterate(batch))
    place = options["topic"], options["partition"]
    return [
        Message(*place, at, time_ms, key, value, [(name.decode(), text) for name, text in headers], kind, epoch)
        for at, time_ms, key, value, headers in rows
    ], following


def checksums(messages: Sequence[Message]) -> bytes:
    """ChecksumMessageFormatter: the CRC-32 that a message of format 0 would have."""
    sets = (message_sets.build([(0, -1, one.key, one.value, ())], magic=0) for one in messages)
    return b"".join(b"checksum:%d\n" % int.from_bytes(made[LOG_OVERHEAD : LOG_OVERHEAD + 4]) for made in sets)
