"""A secret that no log, traceback or status shows."""

from __future__ import annotations

from odradek.security import hashes


class Password:
    """A secret text; only `value` gives it away."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.matches(other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def matches(self, given: str) -> bool:
        """Compare in a time that does not depend on where the texts differ."""
        return hashes.are_equal(_utf8(self.value), _utf8(given))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
