"""The console answers GET at an address of this machine, and no other web site."""

from __future__ import annotations

import pytest

from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import guard

HERE = {"Host": "localhost:9405"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9405", "127.9.9.9", "[::1]:9405", "[::1]"])
def test_an_address_of_this_machine_is_answered(host: str) -> None:
    guard.check("GET", {"Host": host})


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9405",
        "localhost.evil.example",
        "10.0.0.1",
        "127.0.0.1.nip.io",
        "[::2]:1",
        "0",
        "::1",
    ],
)
def test_another_name_is_refused(host: str) -> None:
    with pytest.raises(Refused, match="the Host header must be localhost") as refused:
        guard.check("GET", {"Host": host})
    assert refused.value.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_of_another_site_is_refused(site: str) -> None:
    with pytest.raises(Refused, match="another web site"):
        guard.check("GET", {**HERE, "Sec-Fetch-Site": site})


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_request_of_the_page_or_the_user_is_answered(site: str) -> None:
    guard.check("GET", {**HERE, "Sec-Fetch-Site": site})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_only_get_is_answered(method: str) -> None:
    with pytest.raises(Refused, match="use GET") as refused:
        guard.check(method, HERE)
    assert refused.value.status == 405


def test_the_policy_allows_nothing_from_elsewhere() -> None:
    policy = guard.HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert {source for rule in policy.split("; ") for source in rule.split()[1:]} == {"'self'", "'none'"}
    assert not any("access-control" in name.lower() for name in guard.HEADERS)


def test_a_console_with_users_may_have_any_name_but_no_other_site() -> None:
    guard.check("GET", {"Host": "console.example"}, asks_for_users=True)
    with pytest.raises(Refused, match="another web site"):
        guard.check("GET", {"Host": "console.example", "Sec-Fetch-Site": "cross-site"}, asks_for_users=True)
    with pytest.raises(Refused, match="use GET"):
        guard.check("OPTIONS", {"Host": "console.example"}, asks_for_users=True)
