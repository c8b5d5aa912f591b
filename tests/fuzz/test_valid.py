"""The broker decodes every request that the fuzzer calls valid, except those with too long strings or arrays."""

from __future__ import annotations

import random

import pytest

from odradek.protocol import interbroker
from odradek.protocol.wire import WireError
from odradek.workers.apis import table

from .valid import TOO_LONG, OddValues, valid_body

ACLS = (29, 30, 31)
DECODED = [key for key, row in table.load_rows().items() if row.handle is not None]


@pytest.mark.parametrize("key", DECODED)
def test_valid_requests_of_every_version_are_decoded(key: int) -> None:
    row = table.load_rows()[key]
    request = interbroker.message_class(row.name + "Request")
    for version in range(row.versions[0], min(row.versions[1], request.max_version) + 1):
        for number, spice in enumerate((0.0, 0.1, 0.3)):
            seed = f"{key}/{version}/{number}"
            values = OddValues(random.Random(seed), {"group_id": [b"group"]}, spice)
            body = valid_body(request, version, values)
            try:
                assert row.decode(version, memoryview(body)) is not None, seed
            except WireError as error:
                assert "elements" in str(error) or any(text in body for text in TOO_LONG), seed
            except ValueError as error:  # Kafka also refuses an ACL or filter with an UNKNOWN element
                assert key in ACLS and "UNKNOWN element" in str(error), seed
