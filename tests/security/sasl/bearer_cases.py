"""Claims of bearer tokens: (expected audience, expected issuer, claims, whether they are valid)."""

from __future__ import annotations

from typing import Any

from .bearer import CLAIMS, NOW

Case = tuple[tuple[str, ...], str | None, Any, bool]


def _with(**claims: Any) -> dict[str, Any]:
    return {name: value for name, value in (CLAIMS | claims).items() if value is not ...}


def _plain(valid: bool, **claims: Any) -> Case:
    return (), None, _with(**claims), valid


CASES: list[Case] = [
    _plain(True),
    _plain(True, iss="anyone", jti="x", scope="one two"),
    _plain(True, exp=NOW + 600.7),
    _plain(False, exp=...), _plain(False, iat=...), _plain(False, sub=...), _plain(False, sub=" "),
    _plain(False, sub=7), _plain(True, sub=" bob "), _plain(False, exp="soon"), _plain(False, exp=True),
    _plain(True, exp=NOW - 20, iat=NOW - 90), _plain(False, exp=NOW - 40, iat=NOW - 90), _plain(False, exp=-1),
    _plain(True, nbf=NOW + 20), _plain(False, nbf=NOW + 60), _plain(False, nbf="x"),
    _plain(False, iat=NOW + 700), _plain(True, iat=NOW + 100),
    _plain(False, aud="kafka"), _plain(False, aud=["kafka"]),
    _plain(True, scope=["a", "b"]), _plain(False, scope=["a", "a"]), _plain(False, scope=[""]), _plain(True, scope=[]),
    _plain(True, scope=5), _plain(False, scope=" "),
    (("kafka", "other"), None, _with(aud="kafka"), True),
    (("kafka", "other"), None, _with(aud=["x", "other"]), True),
    (("kafka",), None, _with(aud="x"), False),
    (("kafka",), None, _with(), False),
    (("kafka",), None, _with(aud=7), False),
    ((), "https://issuer", _with(iss="https://issuer"), True),
    ((), "https://issuer", _with(iss="https://other"), False),
    ((), "https://issuer", _with(), False),
]  # fmt: skip
