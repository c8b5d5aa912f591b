"""CreateAcls, DescribeAcls and DeleteAcls: their answers, and the ACLs to write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_SERVER_ERROR
from odradek.protocol.library import message_class
from odradek.security.acls import acl_requests
from odradek.security.acls.acl_filters import FiltersByPattern, ResourcePatternFilter
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

A = ResourcePattern(ResourceType.TOPIC, "a")
P = ResourcePattern(ResourceType.TOPIC, "a", PatternType.PREFIXED)
READ = AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = AccessControlEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
ACLS = {A: frozenset([READ, WRITE]), P: frozenset([READ])}


def creation(**fields: Any) -> Any:
    made = {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "principal": "User:bob"}
    made |= {"host": "*", "operation": 3, "permission_type": 3}
    return message_class("CreateAclsRequest").AclCreation(**made | fields)


def create(*creations: Any) -> tuple[list[tuple[int, str | None]], acl_requests.Changes]:
    request = message_class("CreateAclsRequest")(creations=list(creations))
    response, changes = acl_requests.create(ACLS, request)
    return [(one.error_code, one.error_message) for one in response.results], changes


def delete(*filters: dict[str, Any]) -> tuple[list[list[tuple[str, int]]], acl_requests.Changes]:
    kind = message_class("DeleteAclsRequest").DeleteAclsFilter
    everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    everything |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    request = message_class("DeleteAclsRequest")(filters=[kind(**everything | one) for one in filters])
    response, changes = acl_requests.delete(ACLS, request)
    found = [[(acl.resource_name, acl.operation) for acl in one.matching_acls] for one in response.filter_results]
    return found, changes


def test_created_acls_join_those_of_their_pattern() -> None:
    results, changes = create(creation(), creation(operation=4), creation(resource_name="new"))
    assert [code for code, _ in results] == [NONE] * 3
    assert len(changes) == 2 and len(changes[A]) == 4 and changes[A] > ACLS[A]


def test_creating_an_existing_acl_changes_nothing() -> None:
    assert create(creation(principal="User:alice")) == ([(NONE, "")], {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": 4, "resource_name": "x"}, "kafka-cluster"),
        ({"resource_type": 4, "resource_name": ""}, "kafka-cluster"),
        ({"resource_name": ""}, "empty resource name"),
        ({"resource_name": "a/b"}, "Failed to create ACL"),
        ({"resource_type": 99}, "Failed to create ACL"),
        ({"operation": 99}, "Failed to create ACL"),
        ({"host": "10.0.0.1/8"}, "without host bits"),
        ({"host": "10.0.0.0/8", "permission_type": 2}, "ignore it"),
    ],
)
def test_refused_acl_does_not_affect_the_others(fields: dict[str, Any], message: str) -> None:
    (refused, other), changes = create(creation(**fields), creation())
    assert refused[0] == INVALID_REQUEST and message in str(refused[1]) and other == (NONE, "")
    assert list(changes) == [A]


@pytest.mark.parametrize("fields", [{"principal": "alice"}, {"resource_name": ".."}, {"resource_name": "\x01"}])
def test_acl_that_cannot_be_written_fails_all_of_its_pattern(fields: dict[str, Any]) -> None:
    name = fields.get("resource_name", "a")
    results, changes = create(creation(**fields), creation(resource_name=name), creation(resource_name="b"))
    assert results == [(UNKNOWN_SERVER_ERROR, None)] * 2 + [(NONE, "")]
    assert [pattern.name for pattern in changes] == ["b"]


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_filter_value_in_a_creation_fails_the_request(field: str) -> None:
    assert create(creation(**{field: 1}), creation()) == ([(UNKNOWN_SERVER_ERROR, None)] * 2, {})


def test_acl_is_answered_to_the_first_filter_that_matches_it() -> None:
    found, changes = delete({"operation": 4}, {"resource_name_filter": "ab", "pattern_type_filter": 2}, {})
    assert found == [[("a", 4)], [("a", 3)], [("a", 3)]]
    assert changes == {A: frozenset(), P: frozenset()}


PATTERNS = st.builds(ResourcePattern, st.sampled_from(ResourceType), st.sampled_from(["a", "ab", "*"]),
                     st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]))  # fmt: skip
FILTERS = st.builds(ResourcePatternFilter, st.sampled_from(ResourceType), st.sampled_from([None, "a", "ab", "*"]),
                    st.sampled_from(PatternType))  # fmt: skip


@given(st.lists(FILTERS, max_size=8), PATTERNS)
def test_filters_of_a_pattern_are_those_that_match_it(
    filters: list[ResourcePatternFilter], pattern: ResourcePattern
) -> None:
    expected = [at for at, one in enumerate(filters) if one.matches(pattern)]
    assert FiltersByPattern(filters).matching(pattern) == expected


def test_deletion_keeps_the_remaining_acls() -> None:
    assert delete({"operation": 4})[1] == {A: frozenset([READ])}
    assert delete({"resource_type_filter": 99}) == ([[]], {})


def test_unknown_element_fails_decoding() -> None:
    with pytest.raises(ValueError, match="UNKNOWN"):
        acl_requests.check_create(message_class("CreateAclsRequest")(creations=[creation(operation=0)]))


@pytest.mark.parametrize("fields", [{"host": "/" * 32767}, {"resource_name": "x" * 32767}, {"principal": "x" * 32767}])
def test_long_texts_fit_into_the_answer_of_every_version(fields: dict[str, Any]) -> None:
    request = message_class("CreateAclsRequest")(creations=[creation(**fields)])
    answer = acl_requests.create(ACLS, request)[0]
    for version in range(4):
        assert answer.encode(version=version)


def test_every_version_is_answered() -> None:
    request = message_class("CreateAclsRequest")(creations=[creation(operation=99)])
    for answer in (acl_requests.create(ACLS, request)[0], acl_requests.refuse_create(request, 31, None)):
        for version in range(4):
            assert answer.encode(version=version)
