"""What keys and values may become in an archive, as the command line is told; `shapes` says what each means."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.archive.avro import Codec
from odradek.pipeline.registry import settings
from odradek.pipeline.registry.settings import Registry

RAW, STRING, JSON, AVRO, CONFLUENT, REGISTRY = "raw", "string", "json", "avro", "avro-confluent", "avro-registry"
FORMS = "raw, string, json:TYPES, avro:FILE, avro-confluent:FILE or avro-registry:URL"
_FOR_TOPIC = re.compile(r"([a-zA-Z0-9._-]+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Format:
    """Of keys or values: its kind, and the text of its schema where it has one.

    Where records are of schemas of a registry, that is the reader's schema: empty until it is found out (`latest`).
    """

    kind: str = RAW
    schema: str = ""
    registry: Registry | None = None  # only for who reads records

    @property
    def name(self) -> str:
        """Short, and another one for another schema."""
        return f"{self.kind}-{hashlib.sha256(self.schema.encode()).hexdigest()[:8]}" if self.schema else self.kind


@dataclass(frozen=True)
class Shape:
    """What the keys and values of a topic become."""

    key: Format = Format()
    value: Format = Format()

    @property
    def name(self) -> str:
        """Of both: `raw/json-1f3a9c21`."""
        return f"{self.key.name}/{self.value.name}"


@dataclass(frozen=True)
class Formats:
    """Those asked for, by topic; under "" for all others."""

    keys: Mapping[str, Format] = field(default_factory=dict)
    values: Mapping[str, Format] = field(default_factory=dict)

    def of(self, topic: str) -> Shape:
        """What a topic gets."""
        return Shape(*(given.get(topic, given.get("", Format())) for given in (self.keys, self.values)))

    def with_settings(self, given: settings.Settings) -> Formats:
        """With settings of the registry's client."""
        return replace(self, keys=_with_settings(self.keys, given), values=_with_settings(self.values, given))

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Topics with a format of their own that are none of these, sorted."""
        return sorted({*self.keys, *self.values} - {"", *topics})

    def check(self) -> None:
        """What only Spark knows, so with a session: whether the types of JSON are such. OptionError."""
        from odradek.pipeline.jobs.archive import texts

        for one in {*self.keys.values(), *self.values.values()}:
            if one.kind == JSON:
                texts.types(one.schema)


def _with_settings(formats: Mapping[str, Format], given: settings.Settings) -> dict[str, Format]:
    return {
        topic: replace(form, registry=replace(form.registry, settings=given)) if form.registry else form
        for topic, form in formats.items()
    }


def parse(option: str, given: Iterable[str]) -> dict[str, Format]:
    """Formats by topic, "" for all; reads the files they name. OptionError for what is none, or is said twice."""
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
        raise OptionError(f"{option} is {FORMS}, for one topic TOPIC=…, not '{text}'")
    try:
        return _json(schema.strip()) if kind == JSON else _avro(kind, schema.strip())
    except OptionError as error:
        raise OptionError(f"{option} {text}: {error}") from None


def _registry(option: str, url: str) -> Format:
    """The text is in no error: there may be a password in it."""
    try:
        return Format(REGISTRY, registry=Registry(settings.url(url)))
    except OptionError as error:
        raise OptionError(f"{option} {REGISTRY}: {error}") from None


def _json(text: str) -> Format:
    """A slash is in names of files, and in no types."""
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
