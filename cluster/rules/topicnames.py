"""Rules for topic names (Kafka's Topic class), and the names of internal topics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_TOPIC_EXCEPTION

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
KRAFT_METADATA = "__cluster_metadata"  # Kafka's own; clients may not create it
SHARE_GROUPS = "__share_group_state"
INTERNAL = frozenset({OFFSETS, TRANSACTIONS, SHARE_GROUPS})

MAX_LENGTH = 249  # leaves room in a file name for `-<partition>.<32 hex>-delete`
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem(name: str) -> str | None:
    """What is wrong with a topic name, None for a good one."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' may only have ASCII letters, digits, '.', '_' and '-'"
    return None


def validate(name: str) -> None:
    """ApiError INVALID_TOPIC_EXCEPTION unless `name` is a valid topic name."""
    wrong = problem(name)
    if wrong:
        raise ApiError(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def collision(name: str, others: Iterable[str]) -> str | None:
    """A topic whose metric names collide with those of `name`: metrics treat '.' and '_' alike."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in others if other != name and other.replace(".", "_") == unified), None)
