"""The position of the throttle time in the responses of all APIs."""

from __future__ import annotations

import pytest

from odradek.protocol import delegation_tokens, requests
from odradek.protocol.library import message_class
from odradek.protocol.wire import I32
from odradek.workers.apis import table
from odradek.workers.apis.k18_api_versions import _response
from odradek.workers.dispatch.api import Api

OURS = {schema.name for schema in delegation_tokens.SCHEMAS}  # the library has no schema of these
ELSEWHERE = (0, 1)  # Produce and Fetch encode it themselves
ROWS = [row for row in table.load_rows().values() if not row.between_brokers and row.key not in ELSEWHERE]
VERSIONS = [(row, version) for row in ROWS for version in range(row.versions[0], row.versions[1] + 1)]


@pytest.mark.parametrize(("row", "version"), VERSIONS, ids=lambda one: one.name if isinstance(one, Api) else str(one))
def test_a_throttle_time_is_read_where_it_is_written(row: Api, version: int) -> None:
    kind = message_class(row.name + "Response")
    field = kind.fields.get("throttle_time_ms")
    body = row.encode(version, _example(kind, row, version))
    at = row.throttle_at(version, len(body))
    if field is None or not field.for_version_q(version):
        assert at == -1
        return
    assert body[at : at + 4] == bytes(4)
    body = body[:at] + I32.pack(1234) + body[at + 4 :]
    if version >= kind.min_version:
        ours = row.name in OURS
        decoded = requests.decode(kind, version, memoryview(body)) if ours else kind.decode(body, version=version)
        assert decoded.throttle_time_ms == 1234


def _example(kind: object, row: Api, version: int) -> object:
    if row.key == 18:
        return _response(0, False)
    return kind()  # type: ignore[operator]  # a class
