"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554) as functions."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import Error
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_admin import Deletion, Described, Upsertion, alter, describe
from odradek.security.sasl.scram_keys import ScramMechanism, derive, salted

SHA_256, SHA_512 = ScramMechanism
ALICE = {SHA_256: derive(SHA_256, Password("a")), SHA_512: derive(SHA_512, Password("a"), 8192)}
KNOWN = {"bob": {SHA_512: derive(SHA_512, Password("b"))}, "alice": ALICE, "quota-only": {}}


def upsert(
    user: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"s", password: bytes = b"p"
) -> Upsertion:
    return Upsertion(user, mechanism, iterations, salt, password)


def test_long_name_fits_into_the_answer() -> None:
    """Kafka's clients read no text that is longer than the longest name."""
    name = "x" * 32767
    assert all(name[:1000] in describe(users, KNOWN)[0].text for users in ([name], [name, name]))
    assert all(len(describe(users, KNOWN)[0].text) < 2000 for users in ([name], [name, name]))


def test_describe_without_names_lists_all_users_with_credentials() -> None:
    everybody = [
        Described("alice", credentials=((1, 4096), (2, 8192))),
        Described("bob", credentials=((2, 4096),)),
    ]
    assert describe(None, KNOWN) == describe([], KNOWN) == everybody


def test_describe_answers_named_users_in_their_order() -> None:
    found = describe(["bob", "nobody", "", "alice", "alice", "quota-only"], KNOWN)
    assert [(each.user, each.error) for each in found] == [
        ("bob", Error.NONE), ("nobody", Error.RESOURCE_NOT_FOUND), ("", Error.RESOURCE_NOT_FOUND),
        ("alice", Error.DUPLICATE_RESOURCE), ("quota-only", Error.RESOURCE_NOT_FOUND),
    ]  # fmt: skip
    assert found[3].credentials == () and all(each.text for each in found[1:])


def test_upsertion_equals_the_credential_of_the_password() -> None:
    password = salted(SHA_256, Password("x"), b"salt", 5000)
    results, changes = alter([], [upsert("new", 1, 5000, b"salt", password)], KNOWN)
    assert results == [("new", Error.NONE, "")]
    assert changes == {"new": {SHA_256: derive(SHA_256, Password("x"), 5000, b"salt")}}


def test_deletion_and_upsertion_of_one_user_are_both_applied() -> None:
    results, changes = alter([Deletion("alice", 2)], [upsert("alice", 1)], KNOWN)
    assert results == [("alice", Error.NONE, "")]
    assert changes["alice"][SHA_512] is None and changes["alice"][SHA_256] is not None


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error"),
    [
        ([Deletion("", 1)], [], Error.UNACCEPTABLE_CREDENTIAL),
        ([], [upsert("")], Error.UNACCEPTABLE_CREDENTIAL),
        ([Deletion("alice", 0)], [], Error.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsert("alice", 3)], Error.UNSUPPORTED_SASL_MECHANISM),
        ([Deletion("alice", 9)], [upsert("alice", 1)], Error.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsert("alice", iterations=4095)], Error.UNACCEPTABLE_CREDENTIAL),
        ([], [upsert("alice", iterations=16385)], Error.UNACCEPTABLE_CREDENTIAL),
        ([], [upsert("alice", salt=b"")], Error.UNACCEPTABLE_CREDENTIAL),
        ([], [upsert("alice", password=b"")], Error.UNACCEPTABLE_CREDENTIAL),
        ([], [upsert("alice"), upsert("alice")], Error.DUPLICATE_RESOURCE),
        ([Deletion("alice", 1)], [upsert("alice", 1)], Error.DUPLICATE_RESOURCE),
        ([Deletion("nobody", 1)], [], Error.RESOURCE_NOT_FOUND),
        ([Deletion("bob", 1)], [upsert("bob", 2)], Error.RESOURCE_NOT_FOUND),
    ],
)
def test_invalid_alteration_refuses_all_changes_of_that_user_only(
    deletions: list[Deletion], upsertions: list[Upsertion], error: Error
) -> None:
    results, changes = alter(deletions, [*upsertions, upsert("carol")], KNOWN)
    assert [result.error for result in results] == [error, Error.NONE]
    assert set(changes) == {"carol"} and results[0].text


def test_smallest_and_largest_iteration_counts_are_accepted() -> None:
    results, _ = alter([], [upsert("a", iterations=4096), upsert("b", iterations=16384)], {})
    assert not any(result.error for result in results)


def test_no_secret_is_shown() -> None:
    assert "topsecret" not in repr(upsert("a", salt=b"topsecret", password=b"topsecret"))
