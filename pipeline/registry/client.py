"""Requests to a schema registry, by confluent-kafka's client. Each error is one line that names the URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.registry import references
from odradek.pipeline.registry.settings import PREFIX, Registry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

# Error codes of the REST interface: https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_REFUSED, _INCOMPATIBLE = (401, 403), 409
_AVRO = (None, "AVRO")


def latest(registry: Registry, subject: str) -> str | None:
    """The newest schema of a subject, None where it has none. OptionError where it is not Avro."""
    with connected(registry) as client:
        try:
            found = client.get_latest_version(subject).schema
        except _errors() as error:
            if error.error_code in (_NO_SUBJECT, _NO_VERSION):
                return None
            raise
        if found.schema_type not in _AVRO:
            raise OptionError(f"the subject {subject} of {registry.url} is {found.schema_type}, not AVRO")
        return references.inlined(client, found)


def register(registry: Registry, subject: str, schema: str) -> int:
    """Register a schema as a version of the subject; returns its id. OptionError where it is not compatible."""
    from confluent_kafka.schema_registry import Schema

    with connected(registry) as client:
        try:
            return int(client.register_schema(subject, Schema(schema, "AVRO")))
        except _errors() as error:
            if error.http_status_code != _INCOMPATIBLE:
                raise
            raise OptionError(
                f"the subject {subject} of {registry.url} has a schema with which this schema is not compatible: "
                f"{_line(error.error_message)}"
            ) from None


def schema(client: SchemaRegistryClient, number: int) -> str | None:
    """The Avro schema of an id; None where there is none, or it is not Avro."""
    try:
        found = client.get_schema(number)
        return references.inlined(client, found) if found.schema_type in _AVRO else None
    except OptionError:
        return None
    except _errors() as error:
        if error.error_code == _NO_SCHEMA:
            return None
        raise


@contextmanager
def connected(registry: Registry) -> Iterator[SchemaRegistryClient]:
    """A client for the block. Errors within become PipelineError."""
    client = opened(registry)
    try:
        with one_line_errors(registry):
            yield client
    finally:
        client.close()


def opened(registry: Registry) -> SchemaRegistryClient:
    """A client. OptionError for invalid settings, and where a package is missing."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise OptionError(f"a schema registry needs {error.name}: pip install 'odradek[spark,registry]'") from None
    try:
        return SchemaRegistryClient(registry.conf)
    except (ValueError, TypeError, OSError) as error:  # OSError: an invalid certificate
        raise OptionError(f"{PREFIX}*: {_line(error)}") from None


@contextmanager
def one_line_errors(registry: Registry) -> Iterator[None]:
    """Turn any error of a client within the block into PipelineError, one line."""
    try:
        yield
    except PipelineError:
        raise
    except _errors() as error:
        raise PipelineError(_answer(registry, error)) from None
    except Exception as error:  # from the HTTP client, which may be one of several packages
        why = _line(error) or type(error).__name__
        raise PipelineError(f"the schema registry {registry.url} does not respond: {why}") from None


def _answer(registry: Registry, error: Any) -> str:
    hint = f"; see {PREFIX}basic.auth.user.info" if error.http_status_code in _REFUSED else ""
    said = f"{error.http_status_code}: {_line(error.error_message)[:200]}"
    return f"the schema registry {registry.url} returned {said}{hint}"


def _errors() -> type[Any]:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    return SchemaRegistryError


def _line(text: object) -> str:
    return " ".join(str(text).split())
