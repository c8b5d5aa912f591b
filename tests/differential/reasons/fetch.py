"""Differences of reads: Fetch and ListOffsets."""

from __future__ import annotations

from typing import Any

from odradek.protocol import errors

from ..compare import Field, errors_in
from ..pair import Difference
from .batches import OLD_HEADER, RECORD, codec, dense, sent, sent_out_of_order, times
from .codes import is_code

CONVERTED = 4  # the first version of Fetch whose clients read every message format
HARD_LIMIT = 3  # the first version of Fetch whose limit a first batch may exceed
SMALL = 200  # bytes: pool limits that hardly any batch fits


def elsewhere(difference: Difference) -> bool:
    """The whole response differs; the session was started on another connection, which may be closed."""
    known = difference.step.api == "Fetch" and bool(getattr(difference.request, "session_id", 0))
    return known and isinstance(difference.ours, dict) and difference.ours["error_code"] == 70


def emptied_segments(difference: Difference) -> bool:
    old = difference.step.api == "ListOffsets" and difference.step.version == 0
    return old and all(
        field.path.endswith("/old_style_offsets") and set(field.ours) == set(field.theirs)
        for field in difference.fields
    )


def fewer_than_none(difference: Difference) -> bool:
    step = difference.step
    if (step.api, step.version) != ("ListOffsets", 0):
        return False
    asked = [part for topic in difference.request.topics for part in topic.partitions]
    if not any(part.max_num_offsets < 0 for part in asked):
        return False
    more = [row for row in _offsets(difference.ours) if row not in _offsets(difference.theirs)]
    less = [row for row in _offsets(difference.theirs) if row not in _offsets(difference.ours)]
    return all(part["error_code"] == 0 for _, part in more) and all(part["error_code"] == -1 for _, part in less)


def _offsets(answer: Any) -> list[Any]:
    """The result of ListOffsets for each partition, which may occur more than once."""
    rows = answer["topics"] if isinstance(answer, dict) else []
    return [(row["name"], part) for row in rows for part in row["partitions"]]


def _limits(fetch: Any) -> list[int]:
    """The maximum bytes of each partition in a Fetch request."""
    return [part.partition_max_bytes for topic in fetch.topics for part in topic.partitions]


def negative_limit(difference: Difference) -> bool:
    if difference.step.api != "Fetch":
        return False
    limits = [*_limits(difference.request), getattr(difference.request, "max_bytes", 0) or 0]
    return min(limits) < 0 and -1 in errors_in(difference.theirs)


def converted(difference: Difference) -> bool:
    step = difference.step
    if step.api != "Fetch" or step.version >= CONVERTED or not all(map(_begins_alike, difference.fields)):
        return False
    packed = step.version < HARD_LIMIT and min(_limits(difference.request)) <= SMALL
    return packed or all(field.ours for field in difference.fields)


def packed_anew(difference: Difference) -> bool:
    """Old compressed messages are stored as a batch, and compressed again."""
    if difference.step.api != "Fetch" or not all(field.path.endswith("/records") for field in difference.fields):
        return False
    limits = [*_limits(difference.request), getattr(difference.request, "max_bytes", 0)]
    none = all([] in (field.ours, field.theirs) for field in difference.fields)
    old = any(len(one) > OLD_HEADER and one[16] < 2 and codec(one) for one in sent(difference))
    return none and old and any(0 < limit <= SMALL for limit in limits)


def beyond_the_limit(difference: Difference) -> bool:
    """The difference is one partition's; an error omits the high watermark."""
    step = difference.step
    fields = [field for field in difference.fields if not field.path.endswith("/high_watermark")]
    refused = bool(fields) and all(is_code(field, {errors.UNSUPPORTED_COMPRESSION_TYPE}, {0}) for field in fields)
    return step.api == "Fetch" and step.version < HARD_LIMIT and refused


def _is_converted(difference: Difference) -> bool:
    return difference.step.api == "Fetch" and difference.step.version < CONVERTED


def negative_time(difference: Difference) -> bool:
    if not _is_converted(difference) or (difference.theirs != "closed" and errors_in(difference.theirs) - {0} != {-1}):
        return False
    return any(time < -1 for one in sent(difference) for time in times(one))


def _begins_alike(field: Field) -> bool:
    if not field.path.endswith("/records") or not isinstance(field.ours, list) or not isinstance(field.theirs, list):
        return False
    both = min(len(field.ours), len(field.theirs))
    return bool(field.ours[:both] == field.theirs[:both])


def numbered(difference: Difference) -> bool:
    if difference.theirs == "closed":  # MemoryRecordsBuilder takes no offset below the former one
        return _is_converted(difference) and sent_out_of_order(difference)
    if difference.step.api == "ListOffsets":  # Kafka searches for them by timestamp and does not find them
        return all(field.theirs == -1 for field in difference.fields) and sent_out_of_order(difference)
    if difference.step.api != "Fetch" or not all(field.path.endswith("/records") for field in difference.fields):
        return False
    pairs = [(field.ours, field.theirs) for field in difference.fields]
    if all(isinstance(ours, tuple) for ours, _ in pairs):  # the same number in Kafka, in the same order
        return all(_other_offset(ours, theirs) for ours, theirs in pairs) and sent_out_of_order(difference)
    return all(_gap_only_there(ours, theirs) for ours, theirs in pairs)


def _other_offset(ours: Any, theirs: Any) -> bool:
    """One record that differs only in its offset."""
    return len(ours) == len(theirs) == RECORD and ours[0] != theirs[0] and ours[1:] == theirs[1:]


def _gap_only_there(ours: Any, theirs: Any) -> bool:
    """Both have records; Kafka's are a subsequence of ours, but numbered with gaps or in decreasing order."""
    if not all(isinstance(rows, list) and all(len(row) == RECORD for row in rows) for rows in (ours, theirs)):
        return False
    rest = iter(row[1:] for row in ours)
    return dense(ours) and not dense(theirs) and all(row[1:] in rest for row in theirs)
