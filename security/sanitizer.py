"""Names of users, client ids and principals in the names and values of znodes: Kafka's Sanitizer.

It is Java's URL encoding, with `%20` and `%2A` for a blank and an asterisk.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_SURROGATE = re.compile("[\ud800-\udfff]")
_MALFORMED = re.compile("%(?![0-9a-fA-F]{2})")


def sanitize(name: str) -> str:
    """The znode name of `name`. A lone surrogate, which has no UTF-8, becomes a question mark, as in Java."""
    return quote(_SURROGATE.sub("?", name), safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The name that a znode name stands for. ValueError when two hexadecimal digits are missing behind a `%`."""
    if _MALFORMED.search(name):
        raise ValueError(f"{name!r}: two hexadecimal digits must follow each %")
    return unquote(name.replace("+", " "))
