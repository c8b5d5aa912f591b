"""Rebuilds groups from `__consumer_offsets`: the last record of each key counts, a null value deletes.

Offsets of a transaction count from its commit marker on; those of an aborted transaction are dropped, and those of an
open one wait for its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from odradek.groups.fields import RecordError
from odradek.groups.offsets import CommittedOffset, TopicPartition
from odradek.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from odradek.protocol.batch import MAGIC_AT
from odradek.protocol.errors import CORRUPT_MESSAGE
from odradek.protocol.records import batch_v2, control, message_sets
from odradek.protocol.records.errors import RecordError as BatchError

log = logging.getLogger(__name__)

_Where = tuple[str, TopicPartition]


class LoadedGroup(NamedTuple):
    """A group's state in the log: its generation, its offsets, and those of open transactions by producer id."""

    value: GroupValue | None
    offsets: dict[TopicPartition, CommittedOffset]
    open: dict[int, dict[TopicPartition, CommittedOffset]]


class GroupReplay:
    """Pass the batches of one partition to `feed` in order, then call `found`."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupValue] = {}
        self._offsets: dict[_Where, CommittedOffset] = {}
        self._open: dict[int, dict[_Where, CommittedOffset | None]] = {}  # by producer id

    @property
    def offsets(self) -> Mapping[_Where, CommittedOffset]:
        """The committed offsets, by group and partition; changes with each `feed`."""
        return self._offsets

    def found(self) -> dict[str, LoadedGroup]:
        """The state of each group."""
        groups = {group: LoadedGroup(value, {}, {}) for group, value in self.groups.items()}
        for (group, tp), committed in self._offsets.items():
            groups.setdefault(group, LoadedGroup(None, {}, {})).offsets[tp] = committed
        for producer_id, offsets in self._open.items():
            for (group, tp), written in offsets.items():
                if written is not None:
                    groups.setdefault(group, LoadedGroup(None, {}, {})).open.setdefault(producer_id, {})[tp] = written
        return groups

    def feed(self, batch: bytes) -> None:
        """Apply one batch; log and skip unreadable data, so that the rest still loads."""
        try:
            self._feed(batch)
        except BatchError as error:
            log.error("__consumer_offsets: skipped the batch at %d: %s", int.from_bytes(batch[:8], "big"), error)
        except Exception:
            log.exception("__consumer_offsets: skipped the batch at %d", int.from_bytes(batch[:8], "big"))

    def _feed(self, batch: bytes) -> None:
        if batch[MAGIC_AT] < 2:  # written by a Kafka before 0.11
            for offset, _timestamp, key, value, _headers in message_sets.iterate(batch):
                self._record(key, value, offset, None)
        else:
            self._feed_v2(batch, batch_v2.header(batch))

    def _feed_v2(self, batch: bytes, header: batch_v2.Header) -> None:
        if not batch_v2.crc_is_right(batch):
            raise BatchError(CORRUPT_MESSAGE, "its checksum is wrong")
        if not header.num_records:  # compaction keeps a producer's last batch, even without records
            return
        if header.is_control:
            self._end_transaction(header.producer_id, batch)
            return
        target = self._open.setdefault(header.producer_id, {}) if header.is_transactional else None
        for _offset, _timestamp, key, value, _headers in batch_v2.iterate(batch):
            self._record(key, value, header.base_offset, target)

    def _end_transaction(self, producer_id: int, batch: bytes) -> None:
        kind, _epoch = control.read_marker(batch)
        for where, committed in self._open.pop(producer_id, {}).items():
            if kind == control.COMMIT:
                self._apply(where, committed)

    def _apply(self, where: _Where, committed: CommittedOffset | None) -> None:
        known = self._offsets.get(where)
        if committed is None:
            self._offsets.pop(where, None)
        elif known is None or known.position < committed.position:
            self._offsets[where] = committed

    def _record(
        self, key: bytes | None, value: bytes | None, position: int, target: dict[_Where, CommittedOffset | None] | None
    ) -> None:
        try:
            decoded = decode_key(key or b"")
            if isinstance(decoded, GroupKey):
                self._group(decoded.group, value)
            elif isinstance(decoded, OffsetKey):
                where = (decoded.group, (decoded.topic, decoded.partition))
                committed = None if value is None else CommittedOffset(decode_offset_value(value), position)
                if target is not None:
                    target[where] = committed
                elif committed is None:
                    self._apply_tombstone(where)
                else:
                    self._offsets[where] = committed
        except RecordError as error:
            log.error("__consumer_offsets: skipped a record of the batch at %d: %s", position, error)

    def _apply_tombstone(self, where: _Where) -> None:
        """Delete an offset, for example of a deleted topic, also from open transactions."""
        self._offsets.pop(where, None)
        for offsets in self._open.values():
            offsets.pop(where, None)

    def _group(self, group: str, value: bytes | None) -> None:
        if value is None:
            self.groups.pop(group, None)
        else:
            self.groups[group] = decode_group_value(value)
