"""Differences of groups, their offsets and transactions."""

from __future__ import annotations

from odradek.protocol.errors import Error

from ..compare import errors_in
from ..pair import Difference
from .codes import is_code

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, OUT_OF_ORDER, NO_GROUP = 22, 25, 27, 45, 69
LEFT_BEHIND: dict[str, set[int]] = {
    "JoinGroup": {23, 79},  # INCONSISTENT_GROUP_PROTOCOL; MEMBER_ID_REQUIRED, after which a client may leave
    "OffsetCommit": {Error.OFFSET_METADATA_TOO_LARGE},
    "TxnOffsetCommit": {
        Error.OFFSET_METADATA_TOO_LARGE,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_TXN_STATE,
        Error.INVALID_PRODUCER_ID_MAPPING,
        Error.TRANSACTION_ABORTABLE,
    },
}
"""Errors of responses before which Kafka creates a missing group. GroupCoordinator.handleTxnCommitOffsets creates it
before it asks the transaction's coordinator.
"""


def former_start(difference: Difference) -> bool:
    path = "/transaction_states/transaction_start_time_ms"
    return all((field.path, field.ours, field.theirs) == (path, -1, "time") for field in difference.fields)


def pending_static(difference: Difference) -> bool:
    wanted = difference.step.api == "JoinGroup" and errors_in(difference.theirs) == {-1}
    return wanted and difference.request.group_instance_id is not None


def tie(difference: Difference) -> bool:
    """The member itself might choose either."""
    if difference.step.api != "JoinGroup" or not difference.fields:
        return False
    field, *others = difference.fields
    if field.path != "/protocol_name" or any(other.path != "/members/metadata" for other in others):
        return False
    return {field.ours, field.theirs} <= {protocol.name for protocol in difference.request.protocols}


def superseded(difference: Difference) -> bool:
    step = difference.step
    joins = [one for one, _ in difference.before if (one.api, one.client) == ("JoinGroup", step.client)]
    told = difference.theirs == "none" and errors_in(difference.ours) == {REBALANCE_IN_PROGRESS}
    return told and step in joins[:-1]


def nothing_left(difference: Difference) -> bool:
    """The group was created by a JoinGroup that was refused or whose member has left, or by refused offsets."""
    asked = any(errors_in(answer) & LEFT_BEHIND.get(step.api, set()) for step, answer in difference.before)
    return asked and _is_gone(difference)


def _is_gone(difference: Difference) -> bool:
    """Whether this broker lacks the group, and Kafka has an empty one."""
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
        return all(is_code(field, {ILLEGAL_GENERATION, NO_GROUP}, {UNKNOWN_MEMBER}) for field in fields)
    if api == "OffsetDelete":
        return bool((difference.ours["error_code"], difference.theirs["error_code"]) == (NO_GROUP, 0))
    return api == "DeleteGroups" and all(is_code(field, {NO_GROUP}, {0}) for field in fields)
