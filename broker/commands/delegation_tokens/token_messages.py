"""The messages about delegation tokens as kafka-python's own, which lacks them, so that its clients can send them."""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.protocol import notation
from odradek.protocol.delegation_tokens import SCHEMAS
from odradek.protocol.messages import Schema

_BY_NAME = {schema.name: schema for schema in SCHEMAS}


@cache
def request_class(name: str) -> Any:
    """The class of a request; its response's class is registered with the library."""
    schema = _BY_NAME[name]
    _made(schema, "Response")
    return _made(schema, "Request")


@cache
def _made(schema: Schema, kind: str) -> Any:
    """A class of the library, which reads the schema of a class from a file: here it gets ours."""
    from kafka.protocol import api_data
    from kafka.protocol.api_message import ApiMessage

    load = api_data.load_json
    api_data.load_json = lambda name, package=None: _schema(schema, kind)
    try:
        return type(ApiMessage)(f"{schema.name}{kind}", (ApiMessage,), {})
    finally:
        api_data.load_json = load


def _schema(schema: Schema, kind: str) -> dict[str, Any]:
    return {
        "apiKey": schema.key,
        "type": kind.lower(),
        "name": f"{schema.name}{kind}",
        "validVersions": f"0-{schema.last}",
        "flexibleVersions": f"{schema.flexible}+",
        "fields": notation.fields(schema.request if kind == "Request" else schema.response),
    }
