"""Principals as Kafka names them: a type and a name, `User:alice` as text."""

from __future__ import annotations

from dataclasses import dataclass

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """The principal of a connection."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """`User:alice` as a principal; only the first colon divides. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"a principal must have the form TYPE:NAME, such as User:alice, not {text!r}")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
