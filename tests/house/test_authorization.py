"""Every API has a row in the table of authorization checks, and a row names fields of its request."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.library import message_class
from odradek.security.acls.acl_types import Operation, ResourceType
from odradek.security.acls.api_checks import ROWS, ApiChecks, checks, guards
from odradek.workers.apis.table import load_rows


def test_every_api_has_an_authorization_row() -> None:
    rows = {key: row.name for key, row in ROWS.items()}
    served = {key: api.name for key, api in load_rows().items()}
    assert served.items() <= rows.items()
    assert list(ROWS) == sorted(ROWS)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_a_row_names_fields_of_the_request(row: ApiChecks) -> None:
    named = [name for check in row.checks for name in check.names.split(", ")]
    fields = [name for name in named if name and " of the answer" not in name]
    if row.key in load_rows():  # the library lacks some of the other APIs
        assert [name for name in fields if not _has(message_class(f"{row.name}Request"), name.split("."))] == []


def _has(message: Any, path: list[str]) -> bool:
    field = message.fields.get(path[0])
    return field is not None and (len(path) == 1 or path[1] in field.fields)


def test_brokers_need_cluster_action() -> None:
    for key, api in load_rows().items():
        if api.between_brokers:
            (check,) = guards(key, api.versions[1])
            assert [right.operation for right in check.rights] == [Operation.CLUSTER_ACTION], api.name


def test_guards_are_rights_on_the_cluster() -> None:
    assert [check.rights[0].operation for check in guards(24, 4)] == [Operation.CLUSTER_ACTION]
    assert guards(24, 3) == () and len(checks(24, 3)) == 2
    assert guards(22, 0) == () and guards(1, 0) == ()
    assert {right.resource for check in guards(27, 0) for right in check.rights} == {ResourceType.CLUSTER}
