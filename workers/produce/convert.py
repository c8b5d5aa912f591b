"""Checks and converts, record by record, produced records that cannot be stored as they came."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from odradek.ipc.partition_counts import FAILED_PRODUCE_REQUESTS, PRODUCE_REQUESTS
from odradek.ipc.slots import F_LOG_START
from odradek.protocol import errors
from odradek.protocol.batch import HEADER, HEADER_SIZE, TRANSACTIONAL

if TYPE_CHECKING:
    from odradek.protocol.records.errors import RecordError
    from odradek.protocol.records.validate import ValidationRules
    from odradek.storage.config import LogConfig
    from odradek.storage.log.partition import Partition
    from odradek.workers.produce.batching import PendingBatch

_WITHOUT_START = (errors.CORRUPT_MESSAGE, errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE)
"""Errors of a log that Kafka answers without the log start, as it does errors of the request itself. It does not count
these as failed requests either."""


def prepare(pending: PendingBatch, partition: Partition, version: int) -> bool:
    """Replace the batch's view by the bytes to store; False when the batch was refused instead."""
    from odradek.protocol.records import validate
    from odradek.protocol.records.errors import RecordError

    try:
        validate.check_request(pending.view, version)
    except RecordError as error:
        _refuse(pending, error)
        return False
    if _convert(pending, partition):
        return True
    partition.counts[PRODUCE_REQUESTS] += 1  # the append counts the others
    return False


def _convert(pending: PendingBatch, partition: Partition) -> bool:
    """`prepare` for what the log checks."""
    from odradek.protocol.records import validate
    from odradek.protocol.records.errors import RecordError

    now_ms = time.time_ns() // 1_000_000
    try:
        stored = validate.normalise(pending.view, _rules(partition.config, now_ms))
        if not stored:
            return False  # an empty set: Kafka accepts it without an error and without an offset
        return _take_header(pending, bytearray(stored[0]), partition.config, now_ms)
    except RecordError as error:
        _refuse(pending, error)
        if error.code not in _WITHOUT_START:
            pending.log_start = partition.slot.read()[F_LOG_START]
            partition.counts[FAILED_PRODUCE_REQUESTS] += 1
        return False


def _refuse(pending: PendingBatch, error: RecordError) -> None:
    pending.refuse(error.code, str(error))
    pending.record_errors = tuple(error.record_errors or ())


def _rules(config: LogConfig, now_ms: int) -> ValidationRules:
    from odradek.protocol.records import codecs, validate

    codec = 0 if config.compression_type == "uncompressed" else codecs.BY_NAME.get(config.compression_type)
    return validate.ValidationRules(
        now_ms=now_ms,
        codec=codec,
        level=_level(config, codec),
        timestamp_type=int(config.message_timestamp_type == "LogAppendTime"),
        compacted=config.compacted,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        unpack_limit=max(codecs.WORKER_LIMIT, 4 * config.max_message_bytes),
    )


def _level(config: LogConfig, codec: int | None) -> int | None:
    if codec is None:
        return None
    return {
        1: config.compression_gzip_level,
        3: config.compression_lz4_level,
        4: config.compression_zstd_level,
    }.get(codec)


def _take_header(pending: PendingBatch, batch: bytearray, config: LogConfig, now_ms: int) -> bool:
    from odradek.protocol.records.errors import RecordError

    view = memoryview(batch)
    if len(view) < HEADER_SIZE:
        pending.refuse(errors.CORRUPT_MESSAGE)
        return False
    header = HEADER.unpack_from(view)
    if header[5] & TRANSACTIONAL:
        if header[9] < 0:
            raise RecordError(errors.INVALID_RECORD, "A transactional batch needs a producer id")
        pending.transactional = True
    pending.view = view
    pending.count = header[12]
    pending.max_timestamp = header[8]
    pending.producer_id, pending.epoch, pending.sequence = header[9], header[10], header[11]
    if config.message_timestamp_type == "LogAppendTime":
        pending.append_time = now_ms
    return True
