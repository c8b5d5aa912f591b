"""Where a schema registry is, and the settings of its client: `schema.registry.*` among a job's properties.

Names are those of confluent-kafka's SchemaRegistryClient behind that prefix; those of Java's clients that mean the
same, for PEM files, are understood as well.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from odradek.pipeline.errors import OptionError
from odradek.pipeline.parsing import natural

PREFIX = "schema.registry."
_USER = "basic.auth.user.info"
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms")  # timeout in seconds
_TEXTS = (_USER, "ssl.key.password", "proxy")
_BEARER = "bearer.auth."
_JAVAS = {"ssl.truststore.location": "ssl.ca.location", "ssl.keystore.location": "ssl.certificate.location"}
_FIXED = {"basic.auth.credentials.source": "USER_INFO", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
Settings = tuple[tuple[str, str], ...]
"""Names without the prefix, and values; there may be passwords among them."""
_DEFAULTS = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 500}


@dataclass(frozen=True)
class Registry:
    """One registry; `url` may be several by commas, and has no credentials. `settings` may have some."""

    url: str
    settings: Settings = field(default=(), repr=False)

    @property
    def conf(self) -> dict[str, Any]:
        """As SchemaRegistryClient takes them."""
        numbers = {name: int(value) for name, value in self.settings if name in _NUMBERS}
        return {"url": self.url, **_DEFAULTS, **dict(self.settings), **numbers}


def url(text: str) -> str:
    """`text` if it is one, or several by commas. OptionError, which does not show a password that is in it."""
    for one in text.split(","):
        if "@" in one:
            raise OptionError(
                "the registry's URL has a user in it, which would be shown; give --property "
                f"{PREFIX}{_USER}=USER:PASSWORD instead"
            )
        if not _is_url(one.strip()):
            raise OptionError(f"the registry's URL is http://HOST:PORT or https://HOST:PORT, not '{one.strip()}'")
    return ",".join(one.strip().rstrip("/") for one in text.split(","))


def split(given: Mapping[str, str], before: str = "") -> tuple[dict[str, str], Settings]:
    """Properties of Kafka's clients, and checked settings of the registry; their names begin with `before`."""
    prefix = before + PREFIX
    ours = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
    return {name: value for name, value in given.items() if not name.startswith(prefix)}, _checked(ours)


def _checked(given: Mapping[str, str]) -> Settings:
    found = dict(_translated(name, value) for name, value in given.items() if name not in _FIXED)
    for name, value in given.items():
        if value != _FIXED.get(name, value):
            raise OptionError(f"{PREFIX}{name} can be {_FIXED[name]} only, not '{value}'")
    return tuple(sorted(found.items()))


def _translated(name: str, value: str) -> tuple[str, str]:
    """OptionError for a setting that there is not, or a file that is not there."""
    own = _JAVAS.get(name, name)
    if own not in (*_FILES, *_NUMBERS, *_TEXTS) and not own.startswith(_BEARER):
        raise OptionError(f"there is no setting {PREFIX}{name}; {_hint(name)}")
    if own in _NUMBERS:
        natural(f"{PREFIX}{name}", value)
    if own in _FILES and not os.access(value, os.R_OK):
        raise OptionError(f"{PREFIX}{name}: cannot read {value}")
    if own == _USER and ":" not in value:
        raise OptionError(f"{PREFIX}{name} is USER:PASSWORD")
    return own, value


def _hint(name: str) -> str:
    if name == "url":
        return "the registry's URL is said where it is used"
    known = (*_FILES, *_NUMBERS, *_TEXTS)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {PREFIX}{near[0]}?" if near else f"known are {', '.join(sorted(known))} and {_BEARER}*"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
