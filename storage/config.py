"""A topic's configuration for the log, resolved and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from zlib import crc32

from odradek.protocol.wire import INT64_MAX

_NEVER = INT64_MAX
_INDEX_ENTRY = 8


@dataclass(frozen=True)
class LogConfig:
    """A topic's configs under Kafka's names, with underscores for dots; sizes in bytes, times in ms."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    preallocate: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _NEVER
    message_timestamp_after_max_ms: int = _NEVER
    message_downconversion_enable: bool = True
    min_insync_replicas: int = 1
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _NEVER
    visible_after_flush: bool = False
    retention_unknown: bool = False
    producers_max: int = 100_000
    producers_trusted: bool = False

    @classmethod
    def resolve(cls, values: Mapping[str, Any]) -> LogConfig:
        """The config from a mapping of topic config names (`segment.bytes`, `odradek.visible.after.flush`)."""
        known = {}
        for field in fields(cls):
            name = field.name.replace("_", ".")
            for key in (name, "odradek." + name):
                if values.get(key) is not None:
                    known[field.name] = _typed(values[key], field.name)
        return cls(**known)

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted (KIP-71): every record needs a key."""
        return "compact" in self.cleanup_policy

    @cached_property
    def roll_ms(self) -> int:
        """The age at which a segment is sealed: for a compacted topic early enough for max.compaction.lag.ms."""
        return min(self.segment_ms, max(self.max_compaction_lag_ms, 1)) if self.compacted else self.segment_ms

    @cached_property
    def least_seal_ms(self) -> int:
        """The age in ms beyond which an append seals a segment, with the full segment.jitter.ms subtracted."""
        return self.roll_ms - min(self.segment_jitter_ms, self.roll_ms)

    def seal_after_ms(self, log: str, base: int) -> int:
        """The age in ms beyond which the next append seals the segment of `log` that begins at `base`.

        Kafka draws the jitter at random for each segment. Here every process has to compute it: it is a hash.
        """
        most = self.roll_ms - self.least_seal_ms
        return self.roll_ms - crc32(f"{log} {base}".encode()) % most if most else self.roll_ms

    def too_old(self, log: str, base: int, since: int, timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `timestamp` seals the segment of `log` at `base`, begun at `since`; ms, -1 for none."""
        age = (timestamp if timestamp >= 0 else now_ms) - since
        return since >= 0 and age > self.least_seal_ms and age > self.seal_after_ms(log, base)

    @cached_property
    def most_index_entries(self) -> int:
        """Offset index entries at which a segment is full (segment.index.bytes)."""
        return self.segment_index_bytes // _INDEX_ENTRY

    @cached_property
    def synced_after(self) -> int:
        """Unsynced records at which an append waits for the disk; 1 if only synced records are visible."""
        return 1 if self.visible_after_flush else self.flush_messages

    @cached_property
    def largest_batch(self) -> int:
        """The most bytes of a producer's batch: the smaller of max.message.bytes and segment.bytes."""
        return min(self.max_message_bytes, self.segment_bytes)

    @cached_property
    def plain(self) -> bool:
        """Whether a producer's batch is stored unchanged after a check of its header only."""
        return (
            self.compression_type == "producer"
            and self.message_timestamp_type == "CreateTime"
            and not self.compacted
            and self.message_timestamp_before_max_ms == _NEVER
            and self.message_timestamp_after_max_ms == _NEVER
        )


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(LogConfig)}


def _typed(value: Any, name: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        return (
            tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else tuple(value)
        )
    if isinstance(default, bool):
        return value if isinstance(value, bool) else str(value).lower() == "true"
    return type(default)(value)
