"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554) as functions of the known credentials.

The checks, their order and their messages are Kafka's, with one more: a salt or salted password of no bytes is refused,
on which Kafka's HMAC fails. One bad alteration refuses all alterations of its user, and none of others; refused users
come first in the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.errors import Error
from odradek.security.sasl.scram_keys import (
    BY_TYPE,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential,
)  # fmt: skip

Credentials = Mapping[ScramMechanism, ScramCredential | None]
"""A user's credentials; None for one that cannot be read."""
_SHOWN = 1000  # characters of a name in a message, which may not be longer than a name may
_EMPTY_USER = "Username must not be empty"
_UNREADABLE = "The server experienced an unexpected error when processing the request."


class Deletion(NamedTuple):
    """Delete a user's credential."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """Set a user's credential."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism}, {self.iterations}, [hidden])"


class Described(NamedTuple):
    """A user: (type of the mechanism, iterations) of each credential, or an error."""

    user: str
    error: Error = Error.NONE
    text: str = ""
    credentials: tuple[tuple[int, int], ...] = ()


class Altered(NamedTuple):
    """The result of a user's alterations."""

    user: str
    error: Error = Error.NONE
    text: str = ""


_ORDER = (
    Error.UNACCEPTABLE_CREDENTIAL, Error.UNSUPPORTED_SASL_MECHANISM, Error.DUPLICATE_RESOURCE, Error.RESOURCE_NOT_FOUND,
    Error.NONE,
)  # fmt: skip
Changes = dict[str, dict[ScramMechanism, ScramCredential | None]]
"""What to write, by user; None deletes."""


def describe(users: Sequence[str] | None, known: Mapping[str, Credentials]) -> list[Described]:
    """The credentials of `users`, each once in the order asked for; of all that have some, if there are none."""
    return list(describing(users, known))


def describing(users: Sequence[str] | None, known: Mapping[str, Credentials]) -> Iterator[Described]:
    """`describe`, one user after the other."""
    if not users:
        yield from (_described(user, known[user]) for user in sorted(known) if known[user])
        return
    counts = Counter(users)
    yield from (_describe(user, counts[user], known.get(user, {})) for user in counts)


def _describe(user: str, count: int, credentials: Credentials) -> Described:
    if not user:
        return Described(user, Error.RESOURCE_NOT_FOUND, _EMPTY_USER)
    if count > 1:
        return Described(
            user,
            Error.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user:.{_SHOWN}}",
        )
    if not credentials:
        return Described(
            user,
            Error.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user:.{_SHOWN}}",
        )
    return _described(user, credentials)


def _described(user: str, credentials: Credentials) -> Described:
    held = [(mechanism.type, credentials[mechanism]) for mechanism in ScramMechanism if mechanism in credentials]
    readable = [(kind, made.iterations) for kind, made in held if made is not None]
    if len(readable) < len(held):
        return Described(user, Error.UNKNOWN_SERVER_ERROR, _UNREADABLE)
    return Described(user, credentials=tuple(readable))


def alter(
    deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], known: Mapping[str, Credentials]
) -> tuple[list[Altered], Changes]:
    """The result of each user's alterations, and the credentials to write for those without an error."""
    work = altering(deletions, upsertions, known)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: tuple[list[Altered], Changes] = end.value
            return found


def altering(
    deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], known: Mapping[str, Credentials]
) -> Generator[None, None, tuple[list[Altered], Changes]]:
    """`alter` in steps of a user each."""
    asked: dict[str, tuple[list[Deletion], list[Upsertion]]] = {}
    for deletion in deletions:
        asked.setdefault(deletion.user, ([], []))[0].append(deletion)
    for upsertion in upsertions:
        asked.setdefault(upsertion.user, ([], []))[1].append(upsertion)
    results, changes = [], {}
    for user, (deleted, upserted) in asked.items():
        refused = _refused(user, deleted, upserted, known.get(user, {}))
        if refused is None:
            changes[user] = _changes(deleted, upserted)
        results.append(refused or Altered(user))
        yield
    results.sort(key=lambda result: _ORDER.index(result.error))
    return results, changes


def _changes(
    deleted: Iterable[Deletion], upserted: Iterable[Upsertion]
) -> dict[ScramMechanism, ScramCredential | None]:  # fmt: skip
    found: dict[ScramMechanism, ScramCredential | None] = {BY_TYPE[each.mechanism]: None for each in deleted}
    for each in upserted:
        mechanism = BY_TYPE[each.mechanism]
        found[mechanism] = credential(mechanism, each.salt, each.salted_password, each.iterations)
    return found


def _refused(
    user: str, deleted: Sequence[Deletion], upserted: Sequence[Upsertion], known: Credentials
) -> Altered | None:
    """The error for all alterations of `user`; None without one."""
    illegal = [refusal for refusal in [*map(_illegal_deletion, deleted), *map(_illegal_upsertion, upserted)] if refusal]
    if illegal:
        return illegal[-1]
    mechanisms = [each.mechanism for each in deleted] + [each.mechanism for each in upserted]
    if len(set(mechanisms)) < len(mechanisms):
        return Altered(user, Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    if any(BY_TYPE[each.mechanism] not in known for each in deleted):
        return Altered(user, Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return None


def _illegal_deletion(deletion: Deletion) -> Altered | None:
    if not deletion.user:
        return Altered("", Error.UNACCEPTABLE_CREDENTIAL, _EMPTY_USER)
    if deletion.mechanism not in BY_TYPE:
        return Altered(deletion.user, Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _illegal_upsertion(upsertion: Upsertion) -> Altered | None:
    illegal = _illegal_deletion(Deletion(upsertion.user, upsertion.mechanism))
    text = _unacceptable(upsertion)
    return illegal or (Altered(upsertion.user, Error.UNACCEPTABLE_CREDENTIAL, text) if text else None)


def _unacceptable(upsertion: Upsertion) -> str | None:
    if upsertion.iterations > MOST_ITERATIONS:
        return "Too many iterations"
    if upsertion.iterations < LEAST_ITERATIONS:
        return "Too few iterations"
    if not (upsertion.salt and upsertion.salted_password):
        return "salt and salted password must not be empty"
    return None
