"""Differences that stay, each with its reason. A sequence ends with one: the brokers may differ from then on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from .compare import errors_in
from .pair import Difference


class Reason(NamedTuple):
    """`holds` says whether a difference is this one."""

    why: str
    holds: Callable[[Difference], bool]


def _all_corrupt(difference: Difference) -> bool:
    return difference.step.api == "Produce" and errors_in(difference.theirs) in ({2}, {87})


def _unknown_server_error(difference: Difference) -> bool:
    return -1 in errors_in(difference.theirs) and -1 not in errors_in(difference.ours)


def _counted_acks(difference: Difference) -> bool:
    step = difference.step
    return (
        step.api == "Produce" and step.version == 0 and 21 in errors_in(difference.theirs) - errors_in(difference.ours)
    )


def _twice(difference: Difference) -> bool:
    if difference.step.api != "Produce":
        return False
    topics = difference.request.topic_data
    named = Counter((topic.name, part.index) for topic in topics for part in topic.partition_data)
    paths = [f"/responses[{name}]/partition_responses[{index}]/" for (name, index), count in named.items() if count > 1]
    return all(field.path.startswith(tuple(paths)) for field in difference.fields)


def _no_answer(difference: Difference) -> bool:
    return difference.theirs == "none" and isinstance(difference.ours, dict) and difference.step.api == "OffsetFetch"


REASONS = (
    Reason(
        "Kafka refuses all partitions of a Produce request when it cannot read the batches of one of them; here only "
        "that one is refused",
        _all_corrupt,
    ),
    Reason(
        "Kafka has an exception that nobody meant (UNKNOWN_SERVER_ERROR); here the request has an answer",
        _unknown_server_error,
    ),
    Reason(
        "Produce version 0 with acks above 1, as clients of 0.8 may want it: Kafka refuses it, here it means all",
        _counted_acks,
    ),
    Reason(
        "Of a partition twice in one Produce request Kafka stores the last batch, and answers with the error of "
        "another; here the answer is of what was stored",
        _twice,
    ),
    Reason("Kafka never answers an OffsetFetch of no groups", _no_answer),
)


def reason(difference: Difference) -> Reason | None:
    """Why a difference stays; None when it is to be mended."""
    return next((known for known in REASONS if known.holds(difference)), None)


def told(difference: Difference) -> dict[str, Any]:
    """A difference for a report."""
    return {"step": str(difference.step), "fields": [str(field) for field in difference.fields]}
