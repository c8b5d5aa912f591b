"""Every version that ApiVersions offers answers a well-formed request with a well-formed response."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from odradek.protocol import delegation_tokens

from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw.wellformed import codes, request

pytestmark = pytest.mark.live

COMPARED = {schema.key for schema in delegation_tokens.SCHEMAS}  # with Kafka's answers, in tests/cluster/users
JOIN_GROUP = 11
SERVER_ERROR, UNSUPPORTED_VERSION, INVALID_REQUEST = -1, 35, 42
# The lowest and highest version of each API that clients need.
PROMISED = {
    0: (0, 12),
    1: (0, 17),
    2: (0, 10),
    3: (0, 13),
    8: (0, 9),
    9: (0, 9),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 5),
    16: (0, 5),
    18: (0, 4),
    19: (0, 7),
    20: (0, 6),
    21: (0, 2),
    22: (0, 5),
    23: (0, 4),
    29: (0, 3),
    32: (0, 4),
    33: (0, 2),
    35: (0, 4),
    37: (0, 3),
    42: (0, 2),
    44: (0, 1),
    47: (0, 0),
    50: (0, 0),
    51: (0, 0),
    60: (0, 1),
    75: (0, 0),
}


def request_classes() -> dict[int, Any]:
    """kafka-python's request classes by API key."""
    found = {}
    for part in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{part}")
        for name in dir(module):
            if name.endswith("Request") and hasattr(getattr(module, name), "API_KEY"):
                one = getattr(module, name)
                found[one.API_KEY] = one
    return found


def test_every_promised_version_is_offered(broker: Any) -> None:
    if broker.external:
        pytest.skip("another broker promises other things")
    with broker.wire() as wire:
        offered = wire.api_versions()
    short = {
        key: (offered.get(key), wanted)
        for key, wanted in PROMISED.items()
        if key not in offered or offered[key][0] > wanted[0] or offered[key][1] < wanted[1]
    }
    assert not short, f"(offered, promised) by API key: {short}"


def test_api_versions_agree_over_versions_and_connections(broker: Any) -> None:
    from kafka.protocol.metadata import ApiVersionsRequest as Request

    seen = []
    for version in (0, 1, 2, 3):
        with broker.wire() as wire:
            fields = {"client_software_name": "a", "client_software_version": "1"} if version == 3 else {}
            answer = wire.call(Request[version](**fields))
            seen.append({(row.api_key, row.min_version, row.max_version) for row in answer.api_keys})
    assert all(rows == seen[0] for rows in seen)


@pytest.mark.parametrize("key", sorted(set(request_classes()) | set(PROMISED)))
def test_every_version_answers(broker: Any, key: int) -> None:
    with broker.wire() as wire:
        offered = wire.api_versions().get(key)
        if offered is None:
            pytest.skip(f"API {key} is not offered")
        topic, group = create_topic(broker), unique("group")
        number = topic_id(wire, topic)
        request_class = request_classes()[key]
        low, high = offered[0], min(offered[1], request_class.max_version)
        if broker.external and key == 0:
            low = max(low, 3)  # Kafka 4 offers 0 to old versions of librdkafka, and refuses it
        if broker.external and key in (8, 9):
            low = max(low, 1)  # version 0 stores offsets in ZooKeeper, which KRaft does not have
        for version in range(low, high + 1):
            name = unique("group") if key == JOIN_GROUP else group  # or the group waits for the previous member
            _ask(broker, request(request_class, version, topic, number, name))


def _ask(broker: Any, asked: Any) -> None:
    name = f"{type(asked).__name__} v{asked.API_VERSION}"
    with broker.wire() as wire:
        try:
            answer = wire.call(asked)
        except EOFError:
            raise AssertionError(f"{name}: the connection was closed") from None
        if asked.API_KEY in PROMISED:
            wrong = {SERVER_ERROR, UNSUPPORTED_VERSION, INVALID_REQUEST} & set(codes(answer))
            assert not wrong, f"{name}: {answer}"
        _still_alive(wire, name)


def _still_alive(wire: Wire, name: str) -> None:
    assert wire.api_versions(), name


def test_every_offered_api_has_a_request_class(broker: Any) -> None:
    """These tests have a request for every offered API, so that none goes untested."""
    if broker.external:
        pytest.skip("Kafka offers more than kafka-python knows")
    with broker.wire() as wire:
        unknown = set(wire.api_versions()) - set(request_classes()) - COMPARED
    assert not unknown, f"offered without a schema here: {sorted(unknown)}"
