"""Formats of keys and values in an archive, as given on the command line; `shapes` defines each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.registry import settings
from odradek.pipeline.registry.settings import Registry

RAW, STRING, JSON, AVRO, CONFLUENT, REGISTRY = "raw", "string", "json", "avro", "avro-confluent", "avro-registry"
FORMS = "raw, string, json:TYPES, avro:FILE, avro-confluent:FILE or avro-registry:URL"
_FOR_TOPIC = re.compile(r"([a-zA-Z0-9._-]+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Format:
    """The format of keys or values: its kind, and the text of its schema where it has one.

    With schemas in a registry that is the reader's schema: empty until `latest` finds it.
    """

    kind: str = RAW
    schema: str = ""
    registry: Registry | None = None  # only for jobs that read records

    @property
    def name(self) -> str:
        """Short, and different for another schema."""
        return f"{self.kind}-{hashlib.sha256(self.schema.encode()).hexdigest()[:8]}" if self.schema else self.kind


@dataclass(frozen=True)
class Shape:
    """The formats of a topic's keys and values."""

    key: Format = Format()
    value: Format = Format()

    @property
    def name(self) -> str:
        """Both names: `raw/json-1f3a9c21`."""
        return f"{self.key.name}/{self.value.name}"


@dataclass(frozen=True)
class Formats:
    """The requested formats, by topic; under "" for all others."""

    keys: Mapping[str, Format] = field(default_factory=dict)
    values: Mapping[str, Format] = field(default_factory=dict)

    def of(self, topic: str) -> Shape:
        """The formats of a topic."""
        return Shape(*(given.get(topic, given.get("", Format())) for given in (self.keys, self.values)))

    def with_settings(self, given: settings.Settings) -> Formats:
        """Add settings of the registry's client."""
        return replace(self, keys=_with_settings(self.keys, given), values=_with_settings(self.values, given))

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Topics with their own format that are not among these, sorted."""
        return sorted({*self.keys, *self.values} - {"", *topics})


def _with_settings(formats: Mapping[str, Format], given: settings.Settings) -> dict[str, Format]:
    return {
        topic: replace(form, registry=replace(form.registry, settings=given)) if form.registry else form
        for topic, form in formats.items()
    }


def parse(option: str, given: Iterable[str]) -> dict[str, Format]:
    """Formats by topic, "" for all; reads the files they name. OptionError for an invalid or repeated one."""
    found: dict[str, Format] = {}
    for text in given:
        match = _FOR_TOPIC.fullmatch(text)
        topic, form = match.groups() if match else ("", text)
        if topic in found:
            raise OptionError(f"{option} is given twice for {topic or 'all topics'}")
        found[topic] = _format(option, form)
    return found


def _format(option: str, text: str) -> Format:
    kind, colon, schema = text.partition(":")
    if kind in (RAW, STRING) and not colon:
        return Format(kind)
    if kind == REGISTRY and schema.strip():
        return _registry(option, schema.strip())
    if kind not in (JSON, AVRO, CONFLUENT) or not schema.strip():
        raise OptionError(f"{option} must be {FORMS}, for one topic TOPIC=…, not '{text}'")
    try:
        return _json(schema.strip()) if kind == JSON else _avro(kind, schema.strip())
    except OptionError as error:
        raise OptionError(f"{option} {text}: {error}") from None


def _registry(option: str, url: str) -> Format:
    """Errors do not show the text: it may have a password."""
    try:
        return Format(REGISTRY, registry=Registry(settings.url(url)))
    except OptionError as error:
        raise OptionError(f"{option} {REGISTRY}: {error}") from None


def _json(text: str) -> Format:
    """File names may have a slash, types do not."""
    named = "/" in text or text.endswith((".json", ".ddl"))
    return Format(JSON, _read(text) if named else text)


def _avro(kind: str, path: str) -> Format:
    text = _read(path)
    Codec(text)
    return Format(kind, json.dumps(json.loads(text), separators=(",", ":")))


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
