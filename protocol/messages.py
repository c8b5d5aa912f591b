"""Message classes of the library's kind, made from our own schemas.

They are made on first use, after `protocol.library` has imported the library's modules.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from odradek.protocol import library, notation
from odradek.protocol.responses import encoded


@dataclass(frozen=True)
class Schema:
    """One API: its key, Kafka's name, the last version (the first is 0), the first flexible one, the fields of its
    messages (as in `notation`)."""

    key: int
    name: str
    last: int
    flexible: int
    request: str
    response: str

    def message_class(self, kind: str) -> Any:
        """A class for the `Request` or the `Response`, with the classes of its structs as attributes."""
        name = self.name + kind
        text = self.request if kind == "Request" else self.response
        versions = f"0-{self.last}"
        schema = {"name": name, "type": name, "versions": versions, "fields": notation.fields(text)}
        first = self.flexible
        attributes = {
            "_struct": _machinery("schemas").StructField(schema),
            "API_KEY": self.key,
            "min_version": 0,
            "max_version": self.last,
            "flexible_version_q": staticmethod(lambda version: version >= first),
            "encode": encoded,
        }
        return type(name, (_machinery("data_container").DataContainer,), attributes)


def _machinery(module: str) -> Any:
    library.message_class("ApiVersionsRequest")  # enters the package without running it
    return importlib.import_module(f"kafka.protocol.{module}")
