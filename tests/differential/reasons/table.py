"""Accepted differences, each with its reason. One that may leave the brokers in other states ends a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.protocol import errors

from ..compare import Field, fields
from ..pair import Difference
from .admin import (
    ACLS,
    altered_together,
    config_as_given,
    nameless,
    no_default,
    no_elections,
    no_number,
    no_operation,
    of_client_metrics,
    unknown_acl,
    without_effect,
)
from .codes import Reason, either, exception, no_answer, one_code
from .fetch import (
    beyond_the_limit,
    converted,
    elsewhere,
    emptied_segments,
    fewer_than_none,
    negative_limit,
    negative_time,
    numbered,
    packed_anew,
)
from .groups import former_start, nothing_left, pending_static, superseded, tie
from .produce import (
    all_corrupt,
    behind_the_frame,
    coordinator_first,
    counted_acks,
    lying_length,
    misnumbered,
    noted_before,
    two_producers,
    unknown_codec,
)

READS = {"ListOffsets", "OffsetForLeaderEpoch", "DescribeConfigs", "ElectLeaders", "Metadata", "DescribeGroups",
         "ListGroups"}  # fmt: skip
REMOVE = {"OffsetDelete", "DeleteGroups"}
"""APIs after which an empty group without offsets is gone in Kafka, too."""
REASONS = (
    Reason(
        "Kafka refuses all partitions of a Produce request when it cannot read the batches of one of them; here only "
        "that one is refused",
        all_corrupt,
    ),
    Reason(
        "Kafka has an unintended exception (UNKNOWN_SERVER_ERROR) for all partitions of a Produce request when "
        "one has a compression that there is not; here only that one is refused",
        unknown_codec,
    ),
    Reason(
        "Kafka has an unintended exception (UNKNOWN_SERVER_ERROR); here the request has an error of its own",
        exception,
    ),
    Reason(
        "Kafka passes over what comes behind the end of an lz4 frame, of gzip's data or of snappy's blocks; other "
        "clients' readers do not, so that it is refused",
        behind_the_frame,
    ),
    Reason(
        "Kafka refuses a Produce request whole in which two producers, or two epochs of one, have transactions; here "
        "each is looked at",
        two_producers,
    ),
    Reason(
        "In a compressed batch Kafka does not compare the length of a record with what its fields take up; consumers "
        "stumble over that, so that it is refused",
        lying_length,
    ),
    Reason(
        "An id whose transaction is over and that has been initialised again: Kafka tells when the former one began",
        former_start,
    ),
    Reason(
        "Produce version 0 with acks above 1, as clients of 0.8 may want it: Kafka refuses it, here it means all",
        counted_acks,
    ),
    Reason("Kafka never answers an OffsetFetch of no groups, nor an AddPartitionsToTxn of no transactions", no_answer),
    Reason(
        "A fetch session is known to the worker that began it; a connection to another is told that it is not, and a "
        "client begins another",
        elsewhere,
    ),
    Reason(
        "Metadata of a topic that is named neither by a name nor by an id ends in an exception in Kafka for all topics "
        "of the request; here only that one is refused",
        nameless,
    ),
    Reason(
        "Share groups, of which there are none here: Kafka 3.9 knows their kind of coordinator, which it has not",
        one_code("FindCoordinator", {errors.INVALID_REQUEST}, {15}, first=6),
    ),
    Reason("A limit of a Fetch that is below 0 ends in an exception in Kafka; here it is 0", negative_limit),
    Reason(
        "A member that was told an id to join with, and then joins as a static one, ends in an exception in Kafka",
        pending_static,
    ),
    Reason(
        "A batch that cannot be unpacked is an UNKNOWN_SERVER_ERROR or an INVALID_RECORD, by how far that goes",
        one_code("Produce", {-1, 87}, {-1, 87}),
    ),
    Reason(
        "AddPartitionsToTxn version 4 is of brokers that do not know TRANSACTION_ABORTABLE; Kafka says it all the same",
        one_code("AddPartitionsToTxn", {48}, {120}, first=4),
    ),
    Reason(
        "A transactional batch that cannot be stored anyway: Kafka asks its coordinator first, here what is wrong with "
        "the batch or its partition is told",
        coordinator_first,
    ),
    Reason(
        "A transactional batch that cannot be stored has Kafka note its sequence all the same, as it asks the "
        "coordinator first; here the next one may begin anywhere",
        noted_before,
    ),
    Reason(
        "ListOffsets version 0 tells where segments begin, and the log's end if the last one has records: one that "
        "DeleteRecords has emptied is deleted a moment later, here as there",
        emptied_segments,
    ),
    Reason("ListOffsets version 0 for less than no offsets ends in an exception in Kafka", fewer_than_none),
    Reason("A config operation that there is not ends in an exception in KRaft, for all of a request", no_operation),
    Reason("A dynamic config that would do nothing in this broker is read-only, and refused", without_effect),
    Reason("Clients have no metrics subscriptions here (KIP-714), so that they have no configs", of_client_metrics),
    Reason(
        "Records that are not sound, for an internal topic that no client may write to: either of the two is told",
        one_code("Produce", {17}, {2, 43, 76, 87}),
    ),
    Reason(
        "Acks that there are not, with records or a transaction that cannot be: either of the two errors is told",
        one_code("Produce", {errors.INVALID_REQUIRED_ACKS}, set(range(1, 128))),
    ),
    Reason(
        "One request may make no more than so many partitions here",
        either("CreateTopics", "CreatePartitions", {44}, {3, 36, 37, 38, 39, 40, 42}),
    ),
    Reason(
        "Records that are converted for Fetch below version 4: Kafka limits what it reads of the log, here what was "
        "made of it is limited, so that the client gets more of them, or fewer, but the same; below version 3 none if "
        "a batch that was compressed again is a few bytes larger than a small limit",
        converted,
    ),
    Reason(
        "The leader compresses messages of an old format again when it stores them: a few bytes more or less than in "
        "Kafka decide whether a batch fits a small limit of a Fetch",
        packed_anew,
    ),
    Reason(
        "Records of a time before -1, which are converted for Fetch below version 4: Kafka cannot and ends the "
        "connection, or answers with errors if it is the first batch, here they have none then",
        negative_time,
    ),
    Reason(
        "A batch of zstd that is larger than the limit of a Fetch below version 3: Kafka looks no further and "
        "finds no batch; here the client hears why it gets no further",
        beyond_the_limit,
    ),
    Reason(
        "Records of an uncompressed batch that count their offsets wrong are stored by Kafka as they came, and end the "
        "connection when it converts them for Fetch below version 4; here they are numbered, or consumers see some "
        "twice and others not",
        numbered,
    ),
    Reason(
        "Records of a compressed batch that count their offsets wrong end in an exception in Kafka, which has not read "
        "all of them when it finds that it has to write them again; here they are numbered",
        misnumbered,
    ),
    Reason(
        "A member that joins once more while it waits: its former request is never answered by Kafka, here it hears "
        "that the rebalance goes on",
        superseded,
    ),
    Reason(
        "An empty group without offsets, made by who did not join it after all or whose offsets were refused, stays in "
        "Kafka until that cleans up; here there is none",
        nothing_left,
    ),
    Reason("Protocols with as many votes: which of them wins is the order of a hash table in Kafka", tie),
    Reason(
        "OffsetCommit version 9 and later with the generation of a group that is not there: GROUP_ID_NOT_FOUND as in "
        "Kafka 4, ILLEGAL_GENERATION in 3.9",
        one_code("OffsetCommit", {69}, {22}, first=9),
    ),
    Reason(
        "DescribeConfigs version 0: Kafka does not set the flag of defaults, which is all that version has", no_default
    ),
    Reason(
        "ACLs with a code that is 0, which means unknown: Kafka ends the connection, here there are no ACLs",
        unknown_acl,
    ),
    Reason(
        "KRaft answers ElectLeaders with topics of which it has nothing to say; as with ZooKeeper they are left out",
        no_elections,
    ),
    Reason(
        "KRaft looks at the configs of a topic first; as with ZooKeeper that comes after name and partitions",
        one_code("CreateTopics", {17, 36, 37, 38, 39, 42}, {40}),
    ),
    Reason(
        "KRaft looks at a topic's name before it finds a config without a value, or numbers beside assignments; as "
        "with ZooKeeper these come first",
        one_code("CreateTopics", {40, 42}, {17}),
    ),
    Reason(
        "KRaft tells a new topic's configs as they were given; as with ZooKeeper, and as DescribeConfigs has them, "
        "numbers are as Java writes them",
        config_as_given,
    ),
    Reason(
        "KRaft refuses a request that alters two SCRAM credentials of one user, and answers with the first error of a "
        "user; Kafka with ZooKeeper alters both, and answers with the last error, as we do. KRaft stores a credential "
        "without a salt, and throws an exception for one without a salted password; we refuse both",
        altered_together,
    ),
    Reason(
        "A quota that is not a number is stored by Kafka, where no comparison refuses it; here it is refused", no_number
    ),
    Reason(
        "KRaft looks at configs before the topic is looked for and before operations are; as with ZooKeeper those come "
        "first",
        either("AlterConfigs", "IncrementalAlterConfigs", {3, 42}, {40}),
    ),
)


def passes(difference: Difference) -> bool:
    """Whether a sequence continues after this difference: it has a reason, and no broker has changed its state."""
    if not reason(difference):
        return False
    if difference.step.api in ACLS:
        return True
    if not isinstance(difference.ours, dict) or not isinstance(difference.theirs, dict):
        return False
    if all(_both_refused(field) for field in difference.fields):
        return True
    if difference.step.api == "Fetch":  # the next request of its session would differ
        return all(field.path.startswith("/responses") for field in difference.fields)
    return difference.step.api in READS | REMOVE


def _both_refused(field: Field) -> bool:
    return field.path.endswith("error_code") and 0 not in (field.ours, field.theirs)


def reason(difference: Difference) -> Reason | None:
    """Why a difference is accepted; None if it must be fixed. Parts of a response may have their own reasons."""
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
    """The difference of each differing part of a response."""
    parts = PARTS[difference.step.api]
    ours, theirs = parts(difference.ours), parts(difference.theirs)
    for place in ours:
        if fields(ours[place], theirs.get(place)):
            yield difference._replace(ours=ours[place], theirs=theirs.get(place))


def _by_partition(answer: Any) -> dict[tuple[str, int], Any]:
    """A Produce response, divided by partition."""
    rows = answer["responses"] if isinstance(answer, dict) else []
    return {
        (row["name"], part["index"]): {**answer, "responses": [{**row, "partition_responses": [part]}]}
        for row in rows
        for part in row["partition_responses"]
    }


def _by_resource(answer: Any) -> dict[tuple[int, str], Any]:
    """The response to a change of configs, divided by resource."""
    rows = answer["responses"] if isinstance(answer, dict) else []
    return {(row["resource_type"], row["resource_name"]): {**answer, "responses": [row]} for row in rows}


def _by_topic(answer: Any) -> dict[str, Any]:
    """A CreateTopics response, divided by topic."""
    rows = answer["topics"] if isinstance(answer, dict) else []
    return {row["name"]: {**answer, "topics": [row]} for row in rows}


def _by_user(answer: Any) -> dict[str, Any]:
    """The response to a change of SCRAM credentials, divided by user."""
    rows = answer["results"] if isinstance(answer, dict) else []
    return {row["user"]: {**answer, "results": [row]} for row in rows}


PARTS: dict[str, Callable[[Any], dict[Any, Any]]] = {
    "Produce": _by_partition, "AlterConfigs": _by_resource, "IncrementalAlterConfigs": _by_resource,
    "CreateTopics": _by_topic, "AlterUserScramCredentials": _by_user,
}  # fmt: skip


def told(difference: Difference) -> dict[str, Any]:
    """A difference, for a report."""
    return {"step": str(difference.step), "fields": [str(field) for field in difference.fields]}
