"""The URL of a schema registry, and the settings of its client: `schema.registry.*` among a job's properties.

Behind that prefix, names are those of confluent-kafka's SchemaRegistryClient; names of Java's clients with the same
meaning, for PEM files, work as well.
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
"""Names without the prefix, and values, which may include passwords."""
_DEFAULTS = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 500}


@dataclass(frozen=True)
class Registry:
    """One registry; `url` may be several, separated by commas, without credentials. `settings` may have some."""

    url: str
    settings: Settings = field(default=(), repr=False)

    @property
    def conf(self) -> dict[str, Any]:
        """The configuration for SchemaRegistryClient."""
        numbers = {name: int(value) for name, value in self.settings if name in _NUMBERS}
        return {"url": self.url, **_DEFAULTS, **dict(self.settings), **numbers}


def url(text: str) -> str:
    """Check `text` as a URL, or several separated by commas. OptionError, which never shows a password from the URL."""
    for one in text.split(","):
        if "@" in one:
            raise OptionError(
                "the registry's URL contains a user, which logs would show; give --property "
                f"{PREFIX}{_USER}=USER:PASSWORD instead"
            )
        if not _is_url(one.strip()):
            raise OptionError(f"the registry's URL must be http://HOST:PORT or https://HOST:PORT, not '{one.strip()}'")
    return ",".join(one.strip().rstrip("/") for one in text.split(","))


def split(given: Mapping[str, str], before: str = "") -> tuple[dict[str, str], Settings]:
    """Split off the checked settings of the registry from Kafka's properties; their names begin with `before`."""
    prefix = before + PREFIX
    ours = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
    return {name: value for name, value in given.items() if not name.startswith(prefix)}, _checked(ours)


def _checked(given: Mapping[str, str]) -> Settings:
    found = dict(_translated(name, value) for name, value in given.items() if name not in _FIXED)
    for name, value in given.items():
        if value != _FIXED.get(name, value):
            raise OptionError(f"{PREFIX}{name} must be {_FIXED[name]}, not '{value}'")
    return tuple(sorted(found.items()))


def _translated(name: str, value: str) -> tuple[str, str]:
    """OptionError for an unknown setting, or an unreadable file."""
    own = _JAVAS.get(name, name)
    if own not in (*_FILES, *_NUMBERS, *_TEXTS) and not own.startswith(_BEARER):
        raise OptionError(f"unknown setting {PREFIX}{name}; {_hint(name)}")
    if own in _NUMBERS:
        natural(f"{PREFIX}{name}", value)
    if own in _FILES and not os.access(value, os.R_OK):
        raise OptionError(f"{PREFIX}{name}: cannot read {value}")
    if own == _USER and ":" not in value:
        raise OptionError(f"{PREFIX}{name} must be USER:PASSWORD")
    return own, value


def _hint(name: str) -> str:
    if name == "url":
        return "the registry's URL belongs to the format"
    known = (*_FILES, *_NUMBERS, *_TEXTS)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {PREFIX}{near[0]}?" if near else f"the settings are {', '.join(sorted(known))} and {_BEARER}*"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
