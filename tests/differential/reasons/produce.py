"""Differences of Produce responses."""

from __future__ import annotations

from odradek.protocol import errors
from odradek.protocol.batch import HEADER_SIZE, TRANSACTIONAL

from ..compare import errors_in
from ..pair import Difference
from .batches import CODECS, codec, has_more, in_order, in_parts, is_sound, records, sequence, unsound
from .codes import is_code
from .groups import OUT_OF_ORDER

UNFIT = {-1, 2, 3, 10, 17, 32, 87}  # errors of a batch or partition that hold for any sender
UNREADABLE = {-1, errors.CORRUPT_MESSAGE, errors.INVALID_RECORD}


def all_corrupt(difference: Difference) -> bool:
    if difference.step.api != "Produce" or not isinstance(difference.ours, dict):
        return False
    if len(records(difference)) == 1 and errors_in(difference.ours) != {errors.UNKNOWN_TOPIC_OR_PARTITION}:
        return False
    if errors_in(difference.theirs) not in ({errors.CORRUPT_MESSAGE}, {errors.INVALID_RECORD}):
        return False
    return _refuses_one(difference)


def _refuses_one(difference: Difference) -> bool:
    """Whether this broker refuses an invalid batch, for any reason."""
    rows = difference.ours["responses"]
    codes = {(row["name"], part["index"]): part["error_code"] for row in rows for part in row["partition_responses"]}
    return any(codes.get(place) for place in unsound(difference))


def unknown_codec(difference: Difference) -> bool:
    unknown = errors_in(difference.theirs) == {-1} and any(codec(one) >= CODECS for one in records(difference))
    return unknown and errors_in(difference.ours) != {0}


def behind_the_frame(difference: Difference) -> bool:
    """Bytes after lz4's end mark, after gzip's checksum, or after the blocks of snappy."""
    refused = any(
        field.path.endswith("/error_code") and (field.ours, field.theirs) == (-1, 0) for field in difference.fields
    )
    return refused and any(has_more(one) for one in records(difference) if not is_sound(one))


def lying_length(difference: Difference) -> bool:
    refused = any(is_code(field, {errors.INVALID_RECORD}, {0}) for field in difference.fields)
    return refused and any(codec(one) and not is_sound(one) for one in records(difference))


def two_producers(difference: Difference) -> bool:
    found = {
        one[43:53]  # id and epoch
        for one in records(difference)
        if len(one) > HEADER_SIZE and one[16] == 2 and one[22] & TRANSACTIONAL
    }
    return len(found) > 1 and errors_in(difference.theirs) == {49}


def counted_acks(difference: Difference) -> bool:
    step = difference.step
    refused = errors.INVALID_REQUIRED_ACKS in errors_in(difference.theirs) - errors_in(difference.ours)
    return step.api == "Produce" and step.version == 0 and refused


def misnumbered(difference: Difference) -> bool:
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    stored = bool(codes) and all(is_code(field, {0}, {-1}) for field in codes)
    stored |= (difference.ours, difference.theirs) == ("silent", "closed")
    return stored and any(codec(one) and not in_order(one) for one in records(difference))


def coordinator_first(difference: Difference) -> bool:
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    starts = [field for field in difference.fields if field.path.endswith("/log_start_offset") and field.theirs == -1]
    found = difference.step.api == "Produce" and len(codes) + len(starts) == len(difference.fields)
    if not found or not codes or not all(is_code(field, UNFIT, {47, 48, 49, 120}) for field in codes):
        return False
    unreadable = any(field.ours in UNREADABLE for field in codes)
    return not unreadable or not all(map(is_sound, records(difference)))


def noted_before(difference: Difference) -> bool:
    """The difference is one partition's."""
    refused = bool(difference.fields) and any(is_code(field, {0}, {OUT_OF_ORDER}) for field in difference.fields)
    return refused and any(_follows_unsound(difference, *place) for place in in_parts(difference.step, difference.body))


def _follows_unsound(difference: Difference, place: tuple[str, int], one: bytes) -> bool:
    """Whether the batch's producer has sent an invalid batch with an earlier sequence to the partition."""
    wanted = sequence(one, 0)
    before = [row for step, body in difference.produced for row in in_parts(step, body) if row[0] == place]
    return wanted is not None and any(
        not is_sound(other) and (known := sequence(other, TRANSACTIONAL)) is not None
        and known[0] == wanted[0] and known[1] < wanted[1] for _, other in before
    )  # fmt: skip
