"""A partition under reassignment, as a broker describes it."""

from __future__ import annotations

from typing import NamedTuple


class Reassignment(NamedTuple):
    """A partition under reassignment; `replicas` are all its current replicas."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]
