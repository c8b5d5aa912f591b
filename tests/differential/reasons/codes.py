"""The type of a reason, and reasons that consist of error codes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..compare import Field
from ..pair import Difference


class Reason(NamedTuple):
    """`holds` decides whether a difference has this reason."""

    why: str
    holds: Callable[[Difference], bool]


def exception(difference: Difference) -> bool:
    """An unintended error of Kafka, where this broker returns an error, too."""
    codes = [field for field in difference.fields if field.path.endswith("/error_code")]
    return bool(codes) and all(field.theirs == -1 and field.ours > 0 for field in codes)


def no_answer(difference: Difference) -> bool:
    empty = {"OffsetFetch": "groups", "AddPartitionsToTxn": "transactions"}.get(difference.step.api)
    answered = difference.theirs == "none" and isinstance(difference.ours, dict)
    return answered and empty is not None and not getattr(difference.request, empty)


def one_code(api: str, ours: set[int], theirs: set[int], first: int = 0) -> Callable[[Difference], bool]:
    """The same API (from that version on) with only different error codes: these here, those in Kafka."""

    def holds(difference: Difference) -> bool:
        known = difference.step.api == api and difference.step.version >= first
        return known and all(is_code(field, ours, theirs) for field in difference.fields)

    return holds


def either(first: str, second: str, ours: set[int], theirs: set[int]) -> Callable[[Difference], bool]:
    """`one_code` for two APIs."""
    one, other = one_code(first, ours, theirs), one_code(second, ours, theirs)
    return lambda difference: one(difference) or other(difference)


def is_code(field: Field, ours: set[int], theirs: set[int]) -> bool:
    return field.path.endswith("error_code") and field.ours in ours and field.theirs in theirs
