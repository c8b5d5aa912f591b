"""A leader's validation and conversion of records from clients, off the fast path.

The rules and error codes are those of Apache Kafka 3.9 (LogValidator, UnifiedLog.analyzeAndValidateRecords,
ProduceRequest.validateRecords). The fast path stores a plain magic 2 batch unchanged after it has checked its header,
its CRC and the shape of its records (`columns`); this path opens batches: those that fail these checks, old magic,
`compression.type` other than the producer's, compacted topics (null keys), LogAppendTime,
`message.timestamp.before|after.max.ms`.

Two differences, both for broken producers. Offset deltas other than 0, 1, 2, …: Kafka stores the batch when it is
uncompressed, renumbers its records when it recompresses, and fails otherwise; we always renumber. A magic 1 set
that claims LogAppendTime, where magic 1 is stored: Kafka restores its inner timestamps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.protocol.batch import (
    ATTRIBUTES_AT,
    COMPRESSION,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    OLD_ATTRIBUTES_AT,
    TIMESTAMP_TYPE,
)
from odradek.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from odradek.protocol.records import batch_v2, codecs, convert, message_sets
from odradek.protocol.records.batch_v2 import CREATE_TIME, LOG_APPEND_TIME, Header, Record
from odradek.protocol.records.errors import RecordError
from odradek.protocol.wire import INT64_MAX

UNLIMITED = INT64_MAX


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's rules; names and units as in its topic configs."""

    now_ms: int
    magic_expected: int = 2
    codec: int | None = None  # None: the producer's
    level: int | None = None
    timestamp_type: int = CREATE_TIME
    compacted: bool = False
    max_message_bytes: int = UNLIMITED
    segment_bytes: int = UNLIMITED
    before_max_ms: int = UNLIMITED
    after_max_ms: int = UNLIMITED
    base_offset: int = 0  # matters below magic 2, where offsets are inside compressed sets
    leader_epoch: int = -1
    unpack_limit: int = codecs.DEFAULT_LIMIT


def normalise(records: bytes | memoryview, rule: ValidationRules) -> list[bytes]:
    """The records of one partition in a Produce request, in the form to store; [] if there are none.

    The result is one batch (magic 2) or one message set (magic_expected 0 or 1), offsets dense from `base_offset`. A
    caller may then move a magic 2 batch to any other base offset and epoch in place. RecordError with Kafka's code, and
    with `record_errors` for single bad records. `check_request` checks against the API version.
    """
    batches = list(_whole_batches(records, rule))
    if not batches:
        return []
    magic = batches[0][MAGIC_AT]
    if any(batch[MAGIC_AT] != magic for batch in batches):
        raise RecordError(INVALID_RECORD, "Records of different magic must not be mixed")
    source = max(_codec(batch) for batch in batches)
    if (magic == 2 or source) and len(batches) > 1:
        raise RecordError(INVALID_RECORD, "Compressed records must come as one batch, and so must magic 2")
    if magic < 2 and source == codecs.ZSTD:
        raise RecordError(INVALID_RECORD, f"zstd needs message format 2, not {magic}")
    target = source if rule.codec is None else rule.codec
    stored = _from_batch(batches[0], target, rule) if magic == 2 else _from_messages(batches, target, rule)
    _check_sizes(stored, rule)
    return [stored]


def check_request(records: bytes | memoryview, api_version: int) -> None:
    """Check that Produce `api_version` may carry these records for one partition; below version 3 all may.

    RecordError INVALID_RECORD for anything other than exactly one magic 2 batch, UNSUPPORTED_COMPRESSION_TYPE for
    zstd below version 7 (KIP-110).
    """
    if api_version < 3:
        return
    batches = convert.split(records)
    first = next(batches, None)
    if first is None:
        raise RecordError(INVALID_RECORD, f"Produce version {api_version} needs a batch for every partition")
    if first[MAGIC_AT] != 2:
        raise RecordError(INVALID_RECORD, f"Produce version {api_version} requires magic 2")
    if api_version < 7 and batch_v2.header(first).codec == codecs.ZSTD:
        raise RecordError(UNSUPPORTED_COMPRESSION_TYPE, f"Produce version {api_version} does not support zstd")
    if next(batches, None) is not None:
        raise RecordError(INVALID_RECORD, f"Produce version {api_version} allows only one batch per partition")


def _whole_batches(records: bytes | memoryview, rule: ValidationRules) -> Iterator[memoryview]:
    """Every batch, after the checks that need no unpacking: base offset, size, CRC, codec number."""
    for number, batch in enumerate(convert.split(records)):
        if number >= codecs.WORKER_RECORDS:
            raise RecordError(MESSAGE_TOO_LARGE, f"More than {number} messages are too many for one request")
        if batch[MAGIC_AT] == 2:
            if len(batch) < HEADER_SIZE:
                raise RecordError(CORRUPT_MESSAGE, "A batch is shorter than its header")
            if (base := batch_v2.header(batch).base_offset) != 0:
                raise RecordError(INVALID_RECORD, f"The base offset of a new batch must be 0, not {base}")
        _check_size(len(batch), rule)
        if batch[MAGIC_AT] == 2 and not batch_v2.crc_is_right(batch):
            raise RecordError(CORRUPT_MESSAGE, "The record batch has a wrong CRC")
        if batch[MAGIC_AT] < 2:
            message_sets.read(batch, 0, LOG_OVERHEAD, len(batch))  # raises for a wrong CRC
        if _codec(batch) not in codecs.NAMES:
            raise codecs.UnknownCodec(_codec(batch))
        yield batch


def _codec(batch: memoryview) -> int:
    position = ATTRIBUTES_AT + 1 if batch[MAGIC_AT] == 2 else OLD_ATTRIBUTES_AT
    return batch[position] & COMPRESSION


def _check_size(size: int, rule: ValidationRules) -> None:
    if size > rule.max_message_bytes:
        raise RecordError(
            MESSAGE_TOO_LARGE,
            f"A batch of {size} bytes exceeds max.message.bytes, which is {rule.max_message_bytes}",
        )


def _check_sizes(stored: bytes, rule: ValidationRules) -> None:
    for batch in convert.split(stored):
        _check_size(len(batch), rule)
    if len(stored) > rule.segment_bytes:
        raise RecordError(
            RECORD_LIST_TOO_LARGE,
            f"{len(stored)} bytes of records exceed segment.bytes, which is {rule.segment_bytes}",
        )


# Magic 2


def check_header(head: Header, magic_expected: int = 2) -> None:
    """Check a client's batch header; RecordError, e.g. INVALID_RECORD or UNSUPPORTED_FOR_MESSAGE_FORMAT."""
    count = head.last_offset_delta + 1
    if count <= 0 or head.num_records <= 0 or count != head.num_records:
        raise RecordError(
            INVALID_RECORD,
            f"The batch's last offset delta implies {count} records, its record count is {head.num_records}",
        )
    if head.num_records > codecs.WORKER_RECORDS:
        raise RecordError(MESSAGE_TOO_LARGE, f"A batch of {head.num_records} records is too large to decompress")
    if head.is_control:
        raise RecordError(INVALID_RECORD, "Clients may not write control records")
    if head.producer_id != -1 and head.base_sequence < 0:
        raise RecordError(INVALID_RECORD, f"Producer {head.producer_id} sent the invalid sequence {head.base_sequence}")
    if magic_expected < 2 and (head.is_transactional or head.producer_id != -1):
        raise RecordError(
            UNSUPPORTED_FOR_MESSAGE_FORMAT, f"Message format {magic_expected} does not support idempotent records"
        )


def _from_batch(batch: memoryview, target: int, rule: ValidationRules) -> bytes:
    head = batch_v2.header(batch)
    check_header(head, rule.magic_expected)
    body = batch_v2.payload(batch, rule.unpack_limit)
    found = batch_v2.scan(body, head)
    _check_summary(found, body, head, rule)
    if rule.magic_expected < 2:
        return _old_format(batch_v2.walk(body, head), target, rule)
    # In a batch that claims LogAppendTime, the records' timestamps differ from their deltas.
    repacked = target != head.codec or not found.dense
    if repacked and found.min_timestamp < NO_TIMESTAMP:
        raise RecordError(INVALID_TIMESTAMP, _negative(found.min_timestamp))
    if repacked and (head.timestamp_type == LOG_APPEND_TIME or not found.dense):
        body, span = batch_v2.encode_records(convert.renumbered(batch_v2.walk(body, head), 0), 0)
        head = head._replace(base_timestamp=span.base_timestamp)
    head = _stamped(head, found.max_timestamp, rule)
    return batch_v2.repack(head, body, target, rule.level) if repacked else _rewritten(batch, head)


def _stamped(head: Header, max_timestamp: int, rule: ValidationRules) -> Header:
    """`head` with the topic's timestamp type, the actual maximum timestamp, offset and epoch."""
    appended = rule.timestamp_type == LOG_APPEND_TIME
    return head._replace(
        base_offset=rule.base_offset,
        leader_epoch=rule.leader_epoch,
        attributes=head.attributes & ~TIMESTAMP_TYPE | rule.timestamp_type << 3,
        max_timestamp=rule.now_ms if appended else max_timestamp,
    )


def _rewritten(batch: memoryview, head: Header) -> bytes:
    """The batch with its payload unchanged and the header `head`."""
    copy = bytearray(batch)
    HEADER.pack_into(copy, 0, *head._replace(crc=int.from_bytes(batch[CRC_AT:CRC_START], "big")))
    attributes = int.from_bytes(batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big", signed=True)
    if attributes != head.attributes or batch_v2.header(batch).max_timestamp != head.max_timestamp:
        batch_v2.set_crc(copy)
    return bytes(copy)


def _check_summary(found: batch_v2.Summary, body: bytes, head: Header, rule: ValidationRules) -> None:
    """Check keys and timestamps of a batch; walks it again for the record indexes only if it may be wrong."""
    if not _suspicious(found, head, rule):
        return
    errors = [
        error
        for index, record in enumerate(batch_v2.walk(body, head))
        if (error := record_error(index, record, head.timestamp_type, rule))
    ]
    raise_errors(errors)


def _suspicious(found: batch_v2.Summary, head: Header, rule: ValidationRules) -> bool:
    """Whether `record_error` may find something."""
    if rule.compacted and found.null_keys:
        return True
    times = (found.min_timestamp, found.max_timestamp)
    if rule.timestamp_type == CREATE_TIME and any(_out_of_range(each, rule) for each in times):
        return True
    return head.timestamp_type == LOG_APPEND_TIME


def _out_of_range(timestamp: int, rule: ValidationRules) -> bool:
    if timestamp in (NO_TIMESTAMP, 1 << 63):  # 1 << 63: scan's minimum of no timestamps
        return False
    age = rule.now_ms - timestamp
    if age >= 1 << 63:  # as in Kafka, whose long wraps below 0
        age -= 1 << 64
    return age > rule.before_max_ms or rule.after_max_ms < -age < 1 << 63


def record_error(index: int, record: Record, timestamp_type: int, rule: ValidationRules) -> tuple[int, int, str] | None:
    """(error code, index, message) for a record that the topic refuses; timestamp_type is its batch's."""
    _, timestamp, key, _, _ = record
    if rule.compacted and key is None:
        return INVALID_RECORD, index, "A compacted topic cannot accept records without a key"
    if rule.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
        if _out_of_range(timestamp, rule):
            low, high = rule.now_ms - rule.before_max_ms, rule.now_ms + rule.after_max_ms
            return INVALID_TIMESTAMP, index, f"Timestamp {timestamp} is out of range: it must be within [{low}, {high}]"
    elif timestamp_type == LOG_APPEND_TIME:
        return INVALID_TIMESTAMP, index, "Producers may not set the timestamp type LogAppendTime"
    return None


def raise_errors(errors: list[tuple[int, int, str]]) -> None:
    """Refuse a batch for `errors` of record_error, if any; one bad timestamp decides the code."""
    if not errors:
        return
    code = INVALID_TIMESTAMP if any(error[0] == INVALID_TIMESTAMP for error in errors) else INVALID_RECORD
    wrong = "timestamps" if code == INVALID_TIMESTAMP else "records"
    first = "; ".join(f"record {index}: {text}" for _, index, text in errors[:3])
    raise RecordError(
        code,
        f"The batch has {len(errors)} invalid {wrong} ({first})",
        [(index, text) for _, index, text in errors],
    )


def _negative(timestamp: int) -> str:
    """The error message; Kafka builds no batch with such a record (UNKNOWN_SERVER_ERROR), but stores one unchanged."""
    return f"Timestamp {timestamp} is invalid: it must be at least {NO_TIMESTAMP}"


# Magic 0 and 1


def _from_messages(batches: list[memoryview], target: int, rule: ValidationRules) -> bytes:
    errors: list[tuple[int, int, str]] = []
    rows = convert.renumbered(_checked_messages(batches, rule, errors), rule.base_offset)
    if rule.magic_expected < 2:
        stored = _old_format(rows, target, rule)
    else:
        stored = batch_v2.build(
            rows,
            base_offset=rule.base_offset,
            codec=target,
            level=rule.level,
            timestamp_type=rule.timestamp_type,
            append_time=rule.now_ms,
            leader_epoch=rule.leader_epoch,
        )
    raise_errors(errors)
    return stored


def _checked_messages(
    batches: list[memoryview], rule: ValidationRules, errors: list[tuple[int, int, str]]
) -> Iterator[Record]:
    """Every record of the messages; the indexes in `errors` count within a message, as Kafka's do."""
    for batch in batches:
        offset = int.from_bytes(batch[:8], "big", signed=True)
        outer = message_sets.read(batch, offset, LOG_OVERHEAD, len(batch), check_crc=False)
        inner = message_sets.unwrap(outer, rule.unpack_limit, most=codecs.WORKER_RECORDS) if outer.codec else [outer]
        for index, message in enumerate(inner):
            record = (message.offset, message.timestamp, message.key, message.value, batch_v2.NO_HEADERS)
            error = record_error(index, record, outer.timestamp_type if outer.magic else CREATE_TIME, rule)
            if not error and message.timestamp < NO_TIMESTAMP:
                error = (INVALID_TIMESTAMP, index, _negative(message.timestamp))
            if message.magic != outer.magic:
                error = (INVALID_RECORD, index, f"Magic {message.magic} within magic {outer.magic}")
            if error:
                errors.append(error)
            yield record
        raise_errors(errors)


def _old_format(rows: Iterator[Record], target: int, rule: ValidationRules) -> bytes:
    return message_sets.build(
        _without_headers(convert.renumbered(rows, rule.base_offset)),
        rule.magic_expected,
        codec=target,
        level=rule.level,
        timestamp_type=rule.timestamp_type,
        append_time=rule.now_ms,
    )


def _without_headers(rows: Iterator[Record]) -> Iterator[Record]:
    for row in rows:
        if row[4]:
            raise RecordError(UNSUPPORTED_FOR_MESSAGE_FORMAT, "Message formats 0 and 1 do not support headers")
        yield row
