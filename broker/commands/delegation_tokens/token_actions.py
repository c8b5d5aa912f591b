"""Implements `odradek delegation-tokens`, with the output of Kafka's DelegationTokenCommand but for the secrets.

Kafka prints the HMAC that it was given; here only --create and --describe print HMACs, since they are what is asked.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from odradek.broker.commands._shared.client import Cluster, check
from odradek.broker.commands.delegation_tokens.token_messages import request_class
from odradek.security.principal import Principal

_ROW = "\n%-15s %-30s %-15s %-15s %-25s %-15s %-15s %-15s"
_HEAD = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")

Options = Mapping[str, Any]


def create(cluster: Cluster, options: Options) -> None:
    """Create a token and print it."""
    renewers, owners = _principals(options["renewer_principal"]), _principals(options["owner_principal"])
    request, period = request_class("CreateDelegationToken"), options["max_life_time_period"]
    click.echo(f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period}")
    rows = [request.CreatableRenewers(principal_type=one.type, principal_name=one.name) for one in renewers]
    owner = owners[0] if owners else None
    answer = cluster.send(
        request(
            owner_principal_type=owner.type if owner else None, owner_principal_name=owner.name if owner else None,
            renewers=rows, max_lifetime_ms=period, min_version=3 if owner else 0,
        )
    )  # fmt: skip
    check(answer.error_code)
    click.echo(f"Created delegation token with tokenId : {answer.token_id}")
    times = answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms
    _print_tokens([_row(answer, _listed(renewers), times)])


def renew(cluster: Cluster, options: Options) -> None:
    """Renew a token."""
    period = options["renew_time_period"]
    click.echo(f"Calling renew token operation with renew-time-period :{period}")
    request = request_class("RenewDelegationToken")(hmac=_hmac(options["hmac"]), renew_period_ms=period)
    _print_expiry("renew", cluster.send(request))


def expire(cluster: Cluster, options: Options) -> None:
    """Let a token expire."""
    period = options["expiry_time_period"]
    click.echo(f"Calling expire token operation with expire-time-period :{period}")
    request = request_class("ExpireDelegationToken")(hmac=_hmac(options["hmac"]), expiry_time_period_ms=period)
    _print_expiry("expire", cluster.send(request))


def describe(cluster: Cluster, options: Options) -> None:
    """Print tokens."""
    request, owners = request_class("DescribeDelegationToken"), _principals(options["owner_principal"])
    of = f"for owners: {_listed(owners)}" if owners else "for current user."
    click.echo(f"Calling describe token operation {of}")
    row = request.DescribeDelegationTokenOwner
    rows = [row(principal_type=owner.type, principal_name=owner.name) for owner in owners]
    answer = cluster.send(request(owners=rows or None))
    check(answer.error_code)
    click.echo(f"Total number of tokens : {len(answer.tokens)}", nl=False)
    _print_tokens([_described(token) for token in answer.tokens])


ACTIONS: dict[str, Callable[[Cluster, Options], None]] = {
    "--create": create,
    "--renew": renew,
    "--expire": expire,
    "--describe": describe,
}


def _principals(texts: Sequence[str]) -> list[Principal]:
    try:
        return [Principal.parse(text.strip()) for text in texts]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _hmac(text: str) -> bytes:
    """The secret in Base64, from stdin for `-`."""
    try:
        return base64.b64decode(sys.stdin.readline().strip() if text == "-" else text, validate=True)
    except (binascii.Error, ValueError):
        raise click.UsageError("--hmac must be Base64, as --create and --describe print it") from None


def _listed(principals: Sequence[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _row(token: Any, renewers: str, times: Sequence[int]) -> tuple[str, ...]:
    owner = Principal(token.principal_type, token.principal_name)
    requester = Principal(token.token_requester_principal_type, token.token_requester_principal_name)
    hmac = base64.b64encode(token.hmac).decode()
    return token.token_id, hmac, str(owner), str(requester), renewers, *map(_date, times)


def _described(token: Any) -> tuple[str, ...]:
    renewers = [Principal(renewer.principal_type, renewer.principal_name) for renewer in token.renewers]
    return _row(token, _listed(renewers), (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp))


def _print_tokens(rows: Sequence[tuple[str, ...]]) -> None:
    click.echo("\n".join(_ROW % row for row in (_HEAD, *rows)))


def _print_expiry(action: str, answer: Any) -> None:
    check(answer.error_code)
    click.echo(f"Completed {action} operation. New expiry date : {_date(answer.expiry_timestamp_ms)}")


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%dT%H:%M")
