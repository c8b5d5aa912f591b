"""Control batches: the markers that end a transaction (KIP-98), one record each, never shown to consumers.

Key: version i16 (0), type i16. Value of an end marker: version i16 (0), epoch of the coordinator i32.
"""

import struct

from odradek.protocol.batch import CONTROL, TRANSACTIONAL
from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import batch_v2
from odradek.protocol.records.errors import RecordError

ABORT, COMMIT = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


def end_marker(
    kind: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a transaction; kind COMMIT or ABORT, timestamp in ms."""
    if kind not in (ABORT, COMMIT):
        raise ValueError(f"Not the end of a transaction: {kind}")
    record = (base_offset, timestamp, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch), ())
    return batch_v2.build(
        [record],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )


def read_key(key: bytes | None) -> int:
    """The type of a control record (ABORT, COMMIT, or a number this version does not know)."""
    if key is None or len(key) < _KEY.size:
        raise RecordError(INVALID_RECORD, "A control record's key has fewer than four bytes")
    version: int
    kind: int
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise RecordError(INVALID_RECORD, f"A control record's key has version {version}")
    return kind


def read_marker(batch: bytes | memoryview) -> tuple[int, int]:
    """(kind, coordinator epoch) of an end marker's batch; RecordError INVALID_RECORD for any other batch."""
    if not batch_v2.header(batch).is_control:
        raise RecordError(INVALID_RECORD, "Not a control batch")
    record = next(batch_v2.iterate(batch), None)
    if record is None:
        raise RecordError(INVALID_RECORD, "An emptied control batch: compaction removed its marker")
    _, _, key, value, _ = record
    kind = read_key(key)
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        raise RecordError(INVALID_RECORD, f"Control record of type {kind} does not end a transaction")
    version, epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise RecordError(INVALID_RECORD, f"An end marker has version {version}")
    return kind, epoch
