"""Differences that stay, each with its reason. A sequence ends with one that may leave the brokers unlike."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from odradek.cluster.configs import configdef
from odradek.protocol import errors
from odradek.protocol.batch import COMPRESSION, HEADER, HEADER_SIZE, TRANSACTIONAL
from odradek.protocol.records import codecs

from ..clients.raw.batches import parse, record
from ..fuzz.sequences import Step
from .compare import Field, errors_in, fields
from .pair import Difference, decoded
from .plain import NOTHING

CONVERTED = 4  # the first version of Fetch whose clients read every message format
HARD_LIMIT = 3  # the first version of Fetch whose limit a first batch may exceed
GZIP, SNAPPY, LZ4 = 1, 2, 3
UNFIT = {-1, 2, 3, 10, 17, 32, 87}  # errors of a batch, or its partition, that cannot be stored whoever sends it
RECORD = 6  # fields of a record that was read; the first is its offset
CODECS = 5  # none, gzip, snappy, lz4, zstd
UNREADABLE = {-1, errors.CORRUPT_MESSAGE, errors.INVALID_RECORD}
OLD_HEADER = 17  # bytes, up to where a message says its codec
SMALL = 200  # bytes, the limits of the pools that hardly a batch fits
MOST = 1 << 24  # bytes of unpacked records
MORE = 16  # bytes behind the last block, at most
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, OUT_OF_ORDER, NO_GROUP = 22, 25, 27, 45, 69
CLIENT_METRICS = 16
LEFT_BEHIND = {
    "JoinGroup": {23, 79},  # INCONSISTENT_GROUP_PROTOCOL; MEMBER_ID_REQUIRED, after which one may leave
    "OffsetCommit": {errors.OFFSET_METADATA_TOO_LARGE},
    "TxnOffsetCommit": {errors.OFFSET_METADATA_TOO_LARGE},
}
"""Errors with which Kafka makes a group that is not there before it answers them."""
ACLS = {"DescribeAcls", "CreateAcls", "DeleteAcls"}
READS = {"ListOffsets", "OffsetForLeaderEpoch", "DescribeConfigs", "ElectLeaders", "Metadata", "DescribeGroups"}
ACL_CODES = ("resource_type", "resource_type_filter", "resource_pattern_type", "pattern_type_filter", "operation",
             "permission_type")  # fmt: skip


CONFIG_READ_ONLY = re.compile(r"configs\[(.*)\]/read_only$")


class Reason(NamedTuple):
    """`holds` says whether a difference is this one."""

    why: str
    holds: Callable[[Difference], bool]


def _all_corrupt(difference: Difference) -> bool:
    if difference.step.api != "Produce" or not isinstance(difference.ours, dict):
        return False
    if len(_records(difference)) == 1 and errors_in(difference.ours) != {errors.UNKNOWN_TOPIC_OR_PARTITION}:
        return False
    if errors_in(difference.theirs) not in ({errors.CORRUPT_MESSAGE}, {errors.INVALID_RECORD}):
        return False
    return _refuses_one(difference)


def _refuses_one(difference: Difference) -> bool:
    """Whether a batch that is not sound, or may not be, is refused here, for whatever reason."""
    rows = difference.ours["responses"]
    codes = {(row["name"], part["index"]): part["error_code"] for row in rows for part in row["partition_responses"]}
    return any(codes.get(place) for place in _unsound(difference))


def _unsound(difference: Difference) -> list[tuple[str, int]]:
    """Where batches are sent that are not sound; of the old formats nothing here says what they are."""
    parts = [(topic.name, part) for topic in difference.request.topic_data for part in topic.partition_data]
    return [(name, part.index) for name, part in parts if not _is_sound(bytes(part.records or b""))]


def _records(difference: Difference) -> list[bytes]:
    return _in_produce(difference.request) if difference.step.api == "Produce" else []


def _in_produce(request: Any) -> list[bytes]:
    return [bytes(part.records or b"") for topic in request.topic_data for part in topic.partition_data]


def _codec(records: bytes) -> int:
    """That of the first batch or message."""
    at = 22 if len(records) > 16 and records[16] == 2 else 17
    return records[at] & 7 if len(records) > at else 0


def _is_sound(one: bytes) -> bool:
    """Whether a batch of magic 2 is one that a client may send, and holds what its records would be written as."""
    if len(one) <= HEADER_SIZE or one[16] != 2:
        return False
    _, _, _, _, _, attributes, last, base, *_, count = HEADER.unpack_from(one)
    if attributes & ~(COMPRESSION | TRANSACTIONAL) or last != count - 1:
        return False
    try:
        rows = [record(at, row.value, row.key, row.timestamp - base, row.headers) for at, row in enumerate(parse(one))]
        return len(rows) == count and b"".join(rows) == codecs.decompress(_codec(one), one[HEADER_SIZE:], MOST)
    except Exception:  # whatever the two readers say of what is no batch
        return False


def _unknown_codec(difference: Difference) -> bool:
    unknown = errors_in(difference.theirs) == {-1} and any(_codec(one) >= CODECS for one in _records(difference))
    return unknown and errors_in(difference.ours) != {0}


def _behind_the_frame(difference: Difference) -> bool:
    """A byte, or more, behind lz4's end mark, behind gzip's sums, or behind the blocks of snappy."""
    refused = any(
        field.path.endswith("/error_code") and (field.ours, field.theirs) == (-1, 0) for field in difference.fields
    )
    return refused and any(_has_more(one) for one in _records(difference) if not _is_sound(one))


def _has_more(one: bytes) -> bool:
    if _codec(one) == SNAPPY:
        return any(_unpacks(one[:end]) for end in range(len(one) - 1, max(HEADER_SIZE, len(one) - MORE), -1))
    if _codec(one) == LZ4:
        return one[-5:] == bytes(5) or one[-4:] != bytes(4)
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        return _codec(one) == GZIP and bool(unpacker.decompress(one[HEADER_SIZE:], MOST) and unpacker.unused_data)
    except zlib.error:
        return False


def _unpacks(one: bytes) -> bool:
    try:
        return bool(codecs.decompress(_codec(one), one[HEADER_SIZE:], MOST))
    except Exception:  # whatever the reader says of it
        return False


def _lying_length(difference: Difference) -> bool:
    refused = any(_is_code(field, {errors.INVALID_RECORD}, {0}) for field in difference.fields)
    return refused and any(_codec(one) and not _is_sound(one) for one in _records(difference))


def _former_start(difference: Difference) -> bool:
    path = "/transaction_states/transaction_start_time_ms"
    return all((field.path, field.ours, field.theirs) == (path, -1, "time") for field in difference.fields)


def _two_producers(difference: Difference) -> bool:
    found = {
        one[43:53]  # id and epoch
        for one in _records(difference)
        if len(one) > HEADER_SIZE and one[16] == 2 and one[22] & TRANSACTIONAL
    }
    return len(found) > 1 and errors_in(difference.theirs) == {49}


def _elsewhere(difference: Difference) -> bool:
    """Of the whole request; the session that is continued was begun on another connection, which may be closed."""
    known = difference.step.api == "Fetch" and getattr(difference.request, "session_id", 0)
    return bool(known) and isinstance(difference.ours, dict) and difference.ours["error_code"] == 70


def _emptied_segments(difference: Difference) -> bool:
    old = difference.step.api == "ListOffsets" and difference.step.version == 0
    return old and all(
        field.path.endswith("/old_style_offsets") and set(field.ours) == set(field.theirs)
        for field in difference.fields
    )


def _fewer_than_none(difference: Difference) -> bool:
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
    """What a ListOffsets answer says of each partition; it may be asked for more than once."""
    rows = answer["topics"] if isinstance(answer, dict) else []
    return [(row["name"], part) for row in rows for part in row["partitions"]]


def _no_operation(difference: Difference) -> bool:
    if difference.step.api != "IncrementalAlterConfigs" or any(field.theirs != -1 for field in difference.fields):
        return False
    return any(config.config_operation not in range(4) for config in _configs(difference))


def _without_effect(difference: Difference) -> bool:
    if difference.step.api == "DescribeConfigs":
        left = [field for field in difference.fields if not _is_no_default(difference, field)]
        return bool(left) and all(_without_effect_here(field) for field in left)
    if difference.step.api not in ("AlterConfigs", "IncrementalAlterConfigs"):
        return False
    keys = [configdef.broker_key(config.name) for config in _configs(difference)]
    refused = all(_is_code(field, {errors.INVALID_REQUEST}, {0}) for field in difference.fields)
    return refused and any(key is not None and key.change == configdef.READ_ONLY for key in keys)


def _without_effect_here(field: Field) -> bool:
    """Whether a config is told to be read-only, and is."""
    found = CONFIG_READ_ONLY.search(field.path)
    key = configdef.broker_key(found[1]) if found else None
    return key is not None and key.change == configdef.READ_ONLY and field.ours is True


def _of_client_metrics(difference: Difference) -> bool:
    """Of no other resource, but that all that are asked for with them are refused."""
    if difference.step.api == "DescribeConfigs":
        asked = any(resource.resource_type == CLIENT_METRICS for resource in difference.request.resources)
        return asked and errors_in(difference.ours) == {errors.INVALID_REQUEST}
    if difference.step.api not in ("AlterConfigs", "IncrementalAlterConfigs"):
        return False
    ours, theirs = (_by_type(answer) for answer in (difference.ours, difference.theirs))
    return {kind for kind in {*ours, *theirs} if ours.get(kind) != theirs.get(kind)} == {CLIENT_METRICS}


def _by_type(answer: Any) -> dict[int, list[Any]]:
    """The rows of an answer for each type of resource."""
    found: dict[int, list[Any]] = {}
    for row in answer["responses"] if isinstance(answer, dict) else ():
        found.setdefault(row["resource_type"], []).append(row)
    return found


def _configs(difference: Difference) -> list[Any]:
    return [config for resource in difference.request.resources for config in resource.configs]


def _exception(difference: Difference) -> bool:
    """One that nobody meant, where the answer here is an error as well."""
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    return bool(codes) and all(field.theirs == -1 and field.ours > 0 for field in codes)


def _counted_acks(difference: Difference) -> bool:
    step = difference.step
    refused = errors.INVALID_REQUIRED_ACKS in errors_in(difference.theirs) - errors_in(difference.ours)
    return step.api == "Produce" and step.version == 0 and refused


def _no_answer(difference: Difference) -> bool:
    empty = {"OffsetFetch": "groups", "AddPartitionsToTxn": "transactions"}.get(difference.step.api)
    answered = difference.theirs == "none" and isinstance(difference.ours, dict)
    return answered and empty is not None and not getattr(difference.request, empty)


def _config_as_given(difference: Difference) -> bool:
    texts = difference.step.api == "CreateTopics" and all(one.path.endswith("/value") for one in difference.fields)
    return texts and all(_is_same_number(field.ours, field.theirs) for field in difference.fields)


def _is_same_number(one: Any, other: Any) -> bool:
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return False


def _nameless(difference: Difference) -> bool:
    if difference.step.api != "Metadata" or errors_in(difference.theirs) - {0} != {-1}:
        return False
    nobodys = [row for row in difference.request.topics or () if row.name is None and row.topic_id in NOTHING]
    return bool(nobodys) and errors.INVALID_TOPIC_EXCEPTION in errors_in(difference.ours)


def _limits(fetch: Any) -> list[int]:
    """The bytes that a Fetch wants of each partition at most."""
    return [part.partition_max_bytes for topic in fetch.topics for part in topic.partitions]


def _negative_limit(difference: Difference) -> bool:
    if difference.step.api != "Fetch":
        return False
    limits = [*_limits(difference.request), getattr(difference.request, "max_bytes", 0) or 0]
    return min(limits) < 0 and -1 in errors_in(difference.theirs)


def _pending_static(difference: Difference) -> bool:
    wanted = difference.step.api == "JoinGroup" and errors_in(difference.theirs) == {-1}
    return wanted and difference.request.group_instance_id is not None


def _converted(difference: Difference) -> bool:
    step = difference.step
    if step.api != "Fetch" or step.version >= CONVERTED or not all(map(_begins_alike, difference.fields)):
        return False
    packed = step.version < HARD_LIMIT and min(_limits(difference.request)) <= SMALL
    return packed or all(field.ours for field in difference.fields)


def _packed_anew(difference: Difference) -> bool:
    """Old compressed messages become a batch when they are stored, which their codec packs as it likes."""
    if difference.step.api != "Fetch" or not all(field.path.endswith("/records") for field in difference.fields):
        return False
    limits = [*_limits(difference.request), getattr(difference.request, "max_bytes", 0)]
    none = all([] in (field.ours, field.theirs) for field in difference.fields)
    old = any(len(one) > OLD_HEADER and one[16] < 2 and _codec(one) for one in _sent(difference))
    return none and old and any(0 < limit <= SMALL for limit in limits)


def _beyond_the_limit(difference: Difference) -> bool:
    """Of a partition; the error leaves out the high watermark."""
    step = difference.step
    fields = [field for field in difference.fields if not field.path.endswith("/high_watermark")]
    refused = bool(fields) and all(_is_code(field, {errors.UNSUPPORTED_COMPRESSION_TYPE}, {0}) for field in fields)
    return step.api == "Fetch" and step.version < HARD_LIMIT and refused


def _negative_time(difference: Difference) -> bool:
    converted = difference.step.api == "Fetch" and difference.step.version < CONVERTED
    if not converted or (difference.theirs != "closed" and errors_in(difference.theirs) - {0} != {-1}):
        return False
    return any(time < -1 for one in _sent(difference) for time in _times(one))


def _times(one: bytes) -> list[int]:
    try:
        return [row.timestamp for row in parse(one) if row.timestamp is not None]
    except Exception:  # it is no batch
        return []


def _begins_alike(field: Field) -> bool:
    if not field.path.endswith("/records") or not isinstance(field.ours, list) or not isinstance(field.theirs, list):
        return False
    both = min(len(field.ours), len(field.theirs))
    return bool(field.ours[:both] == field.theirs[:both])


def _numbered(difference: Difference) -> bool:
    if difference.step.api == "ListOffsets":  # Kafka looks for them by their time and does not find them
        return all(field.theirs == -1 for field in difference.fields) and _sent_out_of_order(difference)
    if difference.step.api != "Fetch" or not all(field.path.endswith("/records") for field in difference.fields):
        return False
    pairs = [(field.ours, field.theirs) for field in difference.fields]
    if all(isinstance(ours, tuple) for ours, _ in pairs):  # as many in Kafka, in the same order
        return all(_other_offset(ours, theirs) for ours, theirs in pairs) and _sent_out_of_order(difference)
    return all(_gap_only_there(ours, theirs) for ours, theirs in pairs)


def _sent_out_of_order(difference: Difference) -> bool:
    return not all(map(_in_order, _sent(difference)))


def _sent(difference: Difference) -> list[bytes]:
    """All records that were sent before, whatever became of them."""
    return [one for step, body in difference.produced for one in _in_produce(decoded(step, body))]


def _other_offset(ours: Any, theirs: Any) -> bool:
    """One record, which differs in nothing but its offset."""
    return len(ours) == len(theirs) == RECORD and ours[0] != theirs[0] and ours[1:] == theirs[1:]


def _gap_only_there(ours: Any, theirs: Any) -> bool:
    """Both are records; Kafka's are a part of ours, in order, but numbered with gaps or against the order."""
    if not all(isinstance(rows, list) and all(len(row) == RECORD for row in rows) for rows in (ours, theirs)):
        return False
    rest = iter(row[1:] for row in ours)
    return _dense(ours) and not _dense(theirs) and all(row[1:] in rest for row in theirs)


def _dense(rows: list[Any]) -> bool:
    return [row[0] for row in rows] == list(range(rows[0][0], rows[0][0] + len(rows))) if rows else True


def _tie(difference: Difference) -> bool:
    """Of what the member itself could do either way."""
    if difference.step.api != "JoinGroup" or [field.path for field in difference.fields] != ["/protocol_name"]:
        return False
    (field,) = difference.fields
    return {field.ours, field.theirs} <= {protocol.name for protocol in difference.request.protocols}


def _misnumbered(difference: Difference) -> bool:
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    stored = bool(codes) and all(_is_code(field, {0}, {-1}) for field in codes)
    stored |= (difference.ours, difference.theirs) == ("silent", "closed")
    return stored and any(_codec(one) and not _in_order(one) for one in _records(difference))


def _in_order(one: bytes) -> bool:
    try:
        offsets = [row.offset for row in parse(one)]
    except Exception:  # it is no batch
        return True
    return offsets == list(range(len(offsets)))


def _superseded(difference: Difference) -> bool:
    step = difference.step
    joins = [one for one, _ in difference.before if (one.api, one.client) == ("JoinGroup", step.client)]
    told = difference.theirs == "none" and errors_in(difference.ours) == {REBALANCE_IN_PROGRESS}
    return told and step in joins[:-1]


def _nothing_left(difference: Difference) -> bool:
    """Of a group that a JoinGroup has made who did not join, being refused or having left again; or refused offsets."""
    asked = any(errors_in(answer) & LEFT_BEHIND.get(step.api, set()) for step, answer in difference.before)
    return asked and _is_gone(difference)


def _is_gone(difference: Difference) -> bool:
    """Whether there is no such group here, and an empty one in Kafka."""
    api, fields = difference.step.api, difference.fields
    if api == "ListGroups":
        ours, theirs = difference.ours["groups"], difference.theirs["groups"]
        more = [row for row in theirs if row not in ours]
        empty = all((row["protocol_type"], row["group_state"]) in (("", ""), ("", "Empty")) for row in more)
        return len(more) == len(theirs) - len(ours) > 0 and empty
    if api == "DescribeGroups":
        states = [(field.ours, field.theirs) for field in fields if field.path.endswith("/group_state")]
        return states == [("Dead", "Empty")] * len(fields)
    if api in ("OffsetCommit", "TxnOffsetCommit"):  # with a generation
        return all(_is_code(field, {ILLEGAL_GENERATION, NO_GROUP}, {UNKNOWN_MEMBER}) for field in fields)
    if api == "OffsetDelete":
        return bool((difference.ours["error_code"], difference.theirs["error_code"]) == (NO_GROUP, 0))
    return api == "DeleteGroups" and all(_is_code(field, {NO_GROUP}, {0}) for field in fields)


def _coordinator_first(difference: Difference) -> bool:
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    starts = [field for field in difference.fields if field.path.endswith("/log_start_offset") and field.theirs == -1]
    found = difference.step.api == "Produce" and len(codes) + len(starts) == len(difference.fields)
    if not found or not codes or not all(_is_code(field, UNFIT, {47, 48, 49, 120}) for field in codes):
        return False
    unreadable = any(field.ours in UNREADABLE for field in codes)
    return not unreadable or not all(map(_is_sound, _records(difference)))


def _noted_before(difference: Difference) -> bool:
    """Of one partition."""
    refused = bool(difference.fields) and any(_is_code(field, {0}, {OUT_OF_ORDER}) for field in difference.fields)
    return refused and any(
        _follows_unsound(difference, *place) for place in _in_parts(difference.step, difference.body)
    )


def _follows_unsound(difference: Difference, place: tuple[str, int], one: bytes) -> bool:
    """Whether the batch's producer has sent the partition one that is not sound before, with an earlier sequence."""
    wanted = _sequence(one, 0)
    before = [row for step, body in difference.produced for row in _in_parts(step, body) if row[0] == place]
    return wanted is not None and any(
        not _is_sound(other) and (known := _sequence(other, TRANSACTIONAL)) is not None
        and known[0] == wanted[0] and known[1] < wanted[1] for _, other in before
    )  # fmt: skip


def _in_parts(step: Step, body: bytes) -> list[tuple[tuple[str, int], bytes]]:
    """What a Produce request sends to each partition."""
    rows = [(topic.name, part) for topic in decoded(step, body).topic_data for part in topic.partition_data]
    return [((name, part.index), bytes(part.records or b"")) for name, part in rows]


def _sequence(one: bytes, attributes: int) -> tuple[bytes, int] | None:
    """Id and epoch of the producer, and the sequence, of a batch that has these attributes at least."""
    if len(one) < HEADER_SIZE or one[16] != 2 or one[22] & attributes != attributes:
        return None
    return one[43:53], HEADER.unpack_from(one)[11]


def _one_code(api: str, ours: set[int], theirs: set[int], first: int = 0) -> Callable[[Difference], bool]:
    """The same API (from that version on), and nothing differs but error codes: these here, those in Kafka."""

    def holds(difference: Difference) -> bool:
        known = difference.step.api == api and difference.step.version >= first
        return known and all(_is_code(field, ours, theirs) for field in difference.fields)

    return holds


def _either(first: str, second: str, ours: set[int], theirs: set[int]) -> Callable[[Difference], bool]:
    """`_one_code` of two APIs."""
    one, other = _one_code(first, ours, theirs), _one_code(second, ours, theirs)
    return lambda difference: one(difference) or other(difference)


def _is_code(field: Field, ours: set[int], theirs: set[int]) -> bool:
    return field.path.endswith("error_code") and field.ours in ours and field.theirs in theirs


def _no_default(difference: Difference) -> bool:
    return all(_is_no_default(difference, field) for field in difference.fields)


def _is_no_default(difference: Difference, field: Field) -> bool:
    version = difference.step.api, difference.step.version
    is_flag = field.path.endswith("/is_default") and field.ours and not field.theirs
    return version == ("DescribeConfigs", 0) and bool(is_flag)


def _unknown_acl(difference: Difference) -> bool:
    return difference.step.api in ACLS and difference.theirs == "closed" and _has_zero(difference.request)


def _has_zero(row: Any) -> bool:
    rows = [value for name in type(row).__slots__ if isinstance(value := getattr(row, name, None), list)]
    return any(getattr(row, name, None) == 0 for name in ACL_CODES) or any(
        _has_zero(one) for few in rows for one in few
    )


def _no_elections(difference: Difference) -> bool:
    if difference.step.api != "ElectLeaders" or not isinstance(difference.theirs, dict):
        return False
    left = [row for row in difference.theirs["replica_election_results"] if row["partition_result"]]
    return bool(left == difference.ours["replica_election_results"])


REASONS = (
    Reason(
        "Kafka refuses all partitions of a Produce request when it cannot read the batches of one of them; here only "
        "that one is refused",
        _all_corrupt,
    ),
    Reason(
        "Kafka has an exception that nobody meant (UNKNOWN_SERVER_ERROR) for all partitions of a Produce request when "
        "one has a compression that there is not; here only that one is refused",
        _unknown_codec,
    ),
    Reason(
        "Kafka has an exception that nobody meant (UNKNOWN_SERVER_ERROR); here the request has an error of its own",
        _exception,
    ),
    Reason(
        "Kafka passes over what comes behind the end of an lz4 frame, of gzip's data or of snappy's blocks; other "
        "clients' readers do not, so that it is refused",
        _behind_the_frame,
    ),
    Reason(
        "Kafka refuses a Produce request whole in which two producers, or two epochs of one, have transactions; here "
        "each is looked at",
        _two_producers,
    ),
    Reason(
        "In a compressed batch Kafka does not compare the length of a record with what its fields take up; consumers "
        "stumble over that, so that it is refused",
        _lying_length,
    ),
    Reason(
        "An id whose transaction is over and that has been initialised again: Kafka tells when the former one began",
        _former_start,
    ),
    Reason(
        "Produce version 0 with acks above 1, as clients of 0.8 may want it: Kafka refuses it, here it means all",
        _counted_acks,
    ),
    Reason("Kafka never answers an OffsetFetch of no groups, nor an AddPartitionsToTxn of no transactions", _no_answer),
    Reason(
        "A fetch session is known to the worker that began it; a connection to another is told that it is not, and a "
        "client begins another",
        _elsewhere,
    ),
    Reason(
        "Metadata of a topic that is named neither by a name nor by an id ends in an exception in Kafka for all topics "
        "of the request; here only that one is refused",
        _nameless,
    ),
    Reason(
        "Share groups, of which there are none here: Kafka 3.9 knows their kind of coordinator, which it has not",
        _one_code("FindCoordinator", {errors.INVALID_REQUEST}, {15}, first=6),
    ),
    Reason("A limit of a Fetch that is below 0 ends in an exception in Kafka; here it is 0", _negative_limit),
    Reason(
        "A member that was told an id to join with, and then joins as a static one, ends in an exception in Kafka",
        _pending_static,
    ),
    Reason(
        "A batch that cannot be unpacked is an UNKNOWN_SERVER_ERROR or an INVALID_RECORD, by how far that goes",
        _one_code("Produce", {-1, 87}, {-1, 87}),
    ),
    Reason(
        "AddPartitionsToTxn version 4 is of brokers that do not know TRANSACTION_ABORTABLE; Kafka says it all the same",
        _one_code("AddPartitionsToTxn", {48}, {120}, first=4),
    ),
    Reason(
        "A transactional batch that cannot be stored anyway: Kafka asks its coordinator first, here what is wrong with "
        "the batch or its partition is told",
        _coordinator_first,
    ),
    Reason(
        "A transactional batch that cannot be stored has Kafka note its sequence all the same, as it asks the "
        "coordinator first; here the next one may begin anywhere",
        _noted_before,
    ),
    Reason(
        "ListOffsets version 0 tells where segments begin, and the log's end if the last one has records: one that "
        "DeleteRecords has emptied is deleted a moment later, here as there",
        _emptied_segments,
    ),
    Reason("ListOffsets version 0 for less than no offsets ends in an exception in Kafka", _fewer_than_none),
    Reason("A config operation that there is not ends in an exception in KRaft, for all of a request", _no_operation),
    Reason("A dynamic config that would do nothing in this broker is read-only, and refused", _without_effect),
    Reason("Clients have no metrics subscriptions here (KIP-714), so that they have no configs", _of_client_metrics),
    Reason(
        "Records that are not sound, for an internal topic that no client may write to: either of the two is told",
        _one_code("Produce", {17}, {2, 43, 76, 87}),
    ),
    Reason(
        "Acks that there are not, with records or a transaction that cannot be: either of the two errors is told",
        _one_code("Produce", {errors.INVALID_REQUIRED_ACKS}, set(range(1, 128))),
    ),
    Reason(
        "One request may make no more than so many partitions here",
        _either("CreateTopics", "CreatePartitions", {44}, {3, 36, 37, 38, 39, 40, 42}),
    ),
    Reason(
        "Records that are converted for Fetch below version 4: Kafka limits what it reads of the log, here what was "
        "made of it is limited, so that the client gets more of them, or fewer, but the same; below version 3 none if "
        "a batch that was packed anew is a few bytes larger than a small limit",
        _converted,
    ),
    Reason(
        "The leader compresses messages of an old format again when it stores them: a few bytes more or less than in "
        "Kafka decide whether a batch fits a small limit of a Fetch",
        _packed_anew,
    ),
    Reason(
        "Records of a time before -1, which are converted for Fetch below version 4: Kafka cannot and ends the "
        "connection, or answers with errors if it is the first batch, here they have none then",
        _negative_time,
    ),
    Reason(
        "A batch of zstd that is larger than the limit of a Fetch below version 3: Kafka looks no further and "
        "finds no batch; here the client hears why it gets no further",
        _beyond_the_limit,
    ),
    Reason(
        "Records of an uncompressed batch that count their offsets wrong are stored by Kafka as they came; here they "
        "are numbered, or consumers see some twice and others not",
        _numbered,
    ),
    Reason(
        "Records of a compressed batch that count their offsets wrong end in an exception in Kafka, which has not read "
        "all of them when it finds that it has to write them anew; here they are numbered",
        _misnumbered,
    ),
    Reason(
        "A member that joins once more while it waits: its former request is never answered by Kafka, here it hears "
        "that the rebalance goes on",
        _superseded,
    ),
    Reason(
        "An empty group without offsets, made by who did not join it after all or whose offsets were refused, stays in "
        "Kafka until that cleans up; here there is none",
        _nothing_left,
    ),
    Reason("Protocols with as many votes: which of them wins is the order of a hash table in Kafka", _tie),
    Reason(
        "OffsetCommit version 9 and later with the generation of a group that is not there: GROUP_ID_NOT_FOUND as in "
        "Kafka 4, ILLEGAL_GENERATION in 3.9",
        _one_code("OffsetCommit", {69}, {22}, first=9),
    ),
    Reason(
        "DescribeConfigs version 0: Kafka does not set the flag of defaults, which is all that version has", _no_default
    ),
    Reason(
        "ACLs with a code that is 0, which means unknown: Kafka ends the connection, here there are no ACLs",
        _unknown_acl,
    ),
    Reason(
        "KRaft answers ElectLeaders with topics of which it has nothing to say; as with ZooKeeper they are left out",
        _no_elections,
    ),
    Reason(
        "KRaft looks at the configs of a topic first; as with ZooKeeper that comes after name and partitions",
        _one_code("CreateTopics", {17, 36, 37, 38, 39, 42}, {40}),
    ),
    Reason(
        "KRaft looks at a topic's name before it finds a config without a value, or numbers beside assignments; as "
        "with ZooKeeper these come first",
        _one_code("CreateTopics", {40, 42}, {17}),
    ),
    Reason(
        "KRaft tells a new topic's configs as they were given; as with ZooKeeper, and as DescribeConfigs has them, "
        "numbers are as Java writes them",
        _config_as_given,
    ),
    Reason(
        "KRaft looks at configs before the topic is looked for and before operations are; as with ZooKeeper those come "
        "first",
        _either("AlterConfigs", "IncrementalAlterConfigs", {3, 42}, {40}),
    ),
)


def passes(difference: Difference) -> bool:
    """Whether a sequence goes on after this difference: it has a reason, and both brokers are as they were before."""
    if not reason(difference):
        return False
    if difference.step.api in ACLS:
        return True
    if not isinstance(difference.ours, dict) or not isinstance(difference.theirs, dict):
        return False
    if all(_both_refused(field) for field in difference.fields):
        return True
    if difference.step.api == "Fetch":  # of a session the next request would differ
        return all(field.path.startswith("/responses") for field in difference.fields)
    return difference.step.api in READS


def _both_refused(field: Field) -> bool:
    return field.path.endswith("error_code") and 0 not in (field.ours, field.theirs)


def reason(difference: Difference) -> Reason | None:
    """Why a difference stays; None when it is to be mended. What an answer says of each of several may have its own."""
    if not difference.is_whole:
        return None
    found = _of_all(difference)
    if found is None and difference.step.api in PARTS and isinstance(difference.ours, dict):
        each = [_of_all(part) for part in _by_part(difference)]
        return next(iter(each), None) if all(each) else None
    return found


def _of_all(difference: Difference) -> Reason | None:
    return next((known for known in REASONS if known.holds(difference)), None)


def _by_part(difference: Difference) -> Iterator[Difference]:
    """The difference in each part of an answer that has one."""
    parts = PARTS[difference.step.api]
    ours, theirs = parts(difference.ours), parts(difference.theirs)
    for place in ours:
        if fields(ours[place], theirs.get(place)):
            yield difference._replace(ours=ours[place], theirs=theirs.get(place))


def _by_partition(answer: Any) -> dict[tuple[str, int], Any]:
    """The answer to a Produce as it would be to each of its partitions."""
    rows = answer["responses"] if isinstance(answer, dict) else []
    return {
        (row["name"], part["index"]): {**answer, "responses": [{**row, "partition_responses": [part]}]}
        for row in rows
        for part in row["partition_responses"]
    }


def _by_resource(answer: Any) -> dict[tuple[int, str], Any]:
    """The answer to a change of configs as it would be to each resource's."""
    rows = answer["responses"] if isinstance(answer, dict) else []
    return {(row["resource_type"], row["resource_name"]): {**answer, "responses": [row]} for row in rows}


def _by_topic(answer: Any) -> dict[str, Any]:
    """The answer to a CreateTopics as it would be to each topic."""
    rows = answer["topics"] if isinstance(answer, dict) else []
    return {row["name"]: {**answer, "topics": [row]} for row in rows}


PARTS: dict[str, Callable[[Any], dict[Any, Any]]] = {
    "Produce": _by_partition, "AlterConfigs": _by_resource, "IncrementalAlterConfigs": _by_resource,
    "CreateTopics": _by_topic,
}  # fmt: skip


def told(difference: Difference) -> dict[str, Any]:
    """A difference for a report."""
    return {"step": str(difference.step), "fields": [str(field) for field in difference.fields]}
