"""Reads records of one partition as an ordinary client of the broker, with the rights of the console's user.

Bounds of one request: BYTES fetched (and one batch more, as a Fetch returns at least one), the records and the unpacked
bytes of `browsed_records`, SECONDS of `broker_client`, and those of `schema_requests`. Reads uncommitted records too,
as the console consumer does without options.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from odradek.broker.commands._shared.client import Cluster, RequestFailed, explain
from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import broker_client as client
from odradek.broker.exporter.console import decoding, paging
from odradek.broker.exporter.console.broker_client import COMMAND_CONFIG, SECONDS
from odradek.broker.exporter.console.browsed_records import Browsed
from odradek.broker.exporter.console.schema_registry import SchemaRegistry
from odradek.broker.exporter.console.schema_requests import URL, Page
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.protocol.errors import LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from odradek.protocol.wire import INT32_MAX

BYTES = 8 << 20
FETCH_BYTES = 1 << 20
WAIT_MS = 100
_NAMES_ONLY = 12  # later versions of Fetch want topic ids
_EARLIEST, _LATEST = -2, -1


class Wanted(NamedTuple):
    """What to read: from `offset`, or from the first record at or after `time_ms`; None for both: the newest."""

    topic: str
    partition: int
    offset: int | None = None
    time_ms: int | None = None
    limit: int = 50
    key: str = ""
    form: str = decoding.AUTO


def read(
    config: BrokerConfig, snapshot: Snapshot, wanted: Wanted, registry: SchemaRegistry | None = None
) -> dict[str, Any]:
    """The records, and where to go on. Raises Refused, with one line."""
    if registry is None and wanted.form == decoding.AVRO:
        raise Refused(400, f"format=avro: set {URL} to the address of a schema registry, and restart the broker")
    with client.connected(
        config, snapshot, "messages are not shown", f"read {wanted.topic}-{wanted.partition}"
    ) as cluster:
        return _read(cluster, wanted, registry)


# -- reading


def _read(cluster: Cluster, wanted: Wanted, registry: SchemaRegistry | None) -> dict[str, Any]:
    page = Page()
    schemas = None if registry is None else lambda number: registry.find(number, page)
    deadline = time.monotonic() + SECONDS
    where = wanted.topic, wanted.partition
    leader = _leader(cluster, where)
    first, end = (_offset(cluster, where, at) for at in (_EARLIEST, _LATEST))
    start = min(max(_start(cluster, wanted, end), first), end)
    browsed = Browsed(start, wanted.limit, wanted.key, wanted.form, schemas)
    fetched = 0
    while browsed.offset < end and not browsed.is_full and fetched < BYTES and time.monotonic() < deadline:
        data = _fetch(cluster, leader, where, browsed.offset)
        if not data:
            break
        fetched += len(data)
        browsed.feed(data)
    about = {"topic": wanted.topic, "partition": wanted.partition, "first": first, "end": end, "from": start}
    found = {"rows": browsed.rows, "skipped": browsed.skipped, "notes": page.notes}
    return {**about, **found, "next": browsed.offset, "bytes": fetched}


def _leader(cluster: Cluster, where: tuple[str, int]) -> int:
    topic = cluster.metadata([where[0]]).topics[0]
    if topic.error_code:
        raise _failure(where, topic.error_code)
    for part in topic.partitions:
        if part.partition_index == where[1] and part.leader_id >= 0:
            return int(part.leader_id)
        if part.partition_index == where[1]:
            raise _failure(where, part.error_code or LEADER_NOT_AVAILABLE)
    raise _failure(where, UNKNOWN_TOPIC_OR_PARTITION)


def _failure(where: tuple[str, int], code: int) -> Refused:
    if code == TOPIC_AUTHORIZATION_FAILED:
        return Refused(
            403,
            f"the console's user may not read {where[0]}: give it Read and Describe with odradek acls --add, or set "
            f"another user in {COMMAND_CONFIG}",
        )
    return Refused(502, f"cannot read {where[0]}-{where[1]}: {explain(code)}")


def _start(cluster: Cluster, wanted: Wanted, end: int) -> int:
    """Where to begin; the end where no record is so young."""
    if wanted.time_ms is not None:
        found = _offset(cluster, (wanted.topic, wanted.partition), wanted.time_ms)
        return end if found < 0 else found
    return end - wanted.limit if wanted.offset is None else wanted.offset


def _offset(cluster: Cluster, where: tuple[str, int], at: int) -> int:
    found, failed = cluster.offsets({where: at})
    if where in failed:
        raise _failure(where, failed[where])
    return found[where][0]


def _fetch(cluster: Cluster, leader: int, where: tuple[str, int], offset: int) -> bytes:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=where[1], fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, forgotten_topics_data=[],
        topics=[topic(topic=where[0], partitions=[part])], max_version=_NAMES_ONLY,
    )  # fmt: skip
    response = cluster.send(request, leader)
    if response.error_code:
        raise RequestFailed(response.error_code)
    found = response.responses[0].partitions[0]
    if found.error_code:
        raise _failure(where, found.error_code)
    return bytes(found.records or b"")


def wanted_of(parameters: Mapping[str, str]) -> Wanted:
    """What a request asks for. Raises Refused."""
    form = parameters.get("format", decoding.AUTO)
    if form not in decoding.FORMATS:
        raise Refused(400, f"format={form[:40]}: must be one of {', '.join(decoding.FORMATS)}")
    topic = paging.text(parameters, "topic")
    if not topic:
        raise Refused(400, "topic: name the topic to read")

    def optional(name: str) -> int | None:
        return paging.number(parameters, name, 0, 0) if parameters.get(name) else None

    partition = paging.number(parameters, "partition", 0, 0, INT32_MAX)
    limit = paging.number(parameters, "limit", 50, 1, 200)
    return Wanted(topic, partition, optional("offset"), optional("time"), limit, paging.text(parameters, "key"), form)
