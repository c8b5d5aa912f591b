"""AlterClientQuotas and DescribeClientQuotas with names at the limits; test_as_kafka compares the usual ones."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION
from odradek.protocol.library import message_class
from odradek.security.quotas import requests
from odradek.security.quotas.entities import Entity, path_of
from odradek.security.quotas.requests import Alteration, Component, QuotaError

LONG = "x" * 32767
RATE = [("producer_byte_rate", 5.0)]


def altered(entity: Entity, ops: requests.Ops = RATE) -> requests.Result:
    (result,) = requests.alter({}, [Alteration(entity, ops)], lambda address: False)
    return result


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("kind", ["user", "client-id"])
def test_name_that_no_node_can_have_is_refused(kind: str, name: str) -> None:
    result = altered(((kind, name),))
    assert (result.code, result.quotas) == (UNKNOWN_SERVER_ERROR, None) and name in str(result.message)


@pytest.mark.parametrize("name", ["...", "a/b", "%2F", "%", "\0", "<default>", "/", " ", LONG, "\u20ac" * 10_000])
def test_any_other_name_has_a_node(name: str) -> None:
    entity: Entity = (("user", name), ("client-id", name))
    assert altered(entity).code == NONE
    assert path_of(entity).count("/") == 5


@pytest.mark.parametrize(
    ("entity", "ops"), [((("ip", LONG),), [("connection_creation_rate", 1.0)]), ((("user", "a"),), [(LONG, 1.0)])]
)
def test_refusal_of_a_long_name_fits_into_every_version(entity: Entity, ops: requests.Ops) -> None:
    result = altered(entity, ops)
    assert result.code == INVALID_REQUEST
    response = message_class("AlterClientQuotasResponse")
    entry = response.EntryData(error_code=result.code, error_message=result.message, entity=[])
    for version in range(2):
        assert response(entries=[entry]).encode(version=version)


def test_unknown_type_with_a_long_name_fits_into_every_version() -> None:
    with pytest.raises(QuotaError) as caught:
        requests.describe({}, [Component(LONG, requests.SPECIFIED, None)], False)
    assert caught.value.code == UNSUPPORTED_VERSION
    response = message_class("DescribeClientQuotasResponse")
    for version in range(2):
        assert response(error_code=35, error_message=str(caught.value), entries=None).encode(version=version)
