"""Why the exporter does not answer: one line that says what to change, with the status of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CHALLENGE: Mapping[str, str] = {"WWW-Authenticate": 'Basic realm="Odradek", charset="UTF-8"'}


class Refused(Exception):
    """A request that gets no data.

    `status`: 400 wrong, 401 no user, 403 not allowed, 404 not there, 429 too many logins, 502 the broker refuses,
    503 not yet.
    """

    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class LoginNeeded(Refused):
    """No user, or a wrong one: a browser asks for another."""

    headers = CHALLENGE

    def __init__(self, line: str) -> None:
        super().__init__(401, line)


_AGAIN: Mapping[str, str] = MappingProxyType({"Retry-After": "1"})


class UsersUnknown(Refused):
    """The process has no users and ACLs yet."""

    headers = _AGAIN

    def __init__(self) -> None:
        super().__init__(503, "users and ACLs are not known yet: wait until the broker is ready, and try again")


class TooManyLogins(Refused):
    """As many logins are being checked, or have just failed, as may at a time."""

    headers = _AGAIN

    def __init__(self) -> None:
        super().__init__(429, "too many logins are being checked or have just failed: wait a second and try again")
