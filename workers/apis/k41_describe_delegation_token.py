"""DescribeDelegationToken (key 41), versions 0 to 3: the tokens that a client may see, with their HMACs (KIP-48).

Without a list of owners all; v3 has who requested a token (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.protocol.library import message_class
from odradek.security.principal import Principal
from odradek.security.sasl.delegation_tokens import Token
from odradek.workers.dispatch import token_requests
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api, pieces
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    """In steps: any user may name tens of thousands of owners, and create as many tokens."""
    response = message_class("DescribeDelegationTokenResponse")
    refused = token_requests.refusal(controller, context)
    if refused:
        context.reply(response(error_code=refused, tokens=[]))
        return
    owners: set[Principal] | None = None if request.owners is None else set()
    for some in pieces(request.owners or ()):
        owners |= {Principal(owner.principal_type, owner.principal_name) for owner in some}  # type: ignore[operator]
        yield
    error, shown = yield from controller.owner.users.tokens.describe(
        token_requests.requester(context),
        owners,
        lambda token_id: token_requests.may_describe(context, token_id),
        lambda owner: token_requests.may_describe_of(context, owner),
    )
    described = []
    for part in pieces(shown):
        described += [_described(response.DescribedDelegationToken, *one) for one in part]
        yield
    context.reply(response(error_code=error, tokens=described))


def _described(row: Any, token: Token, hmac: bytes) -> Any:
    return row(
        principal_type=token.owner.type, principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type, token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms, expiry_timestamp=token.expiry_ms, max_timestamp=token.max_ms,
        token_id=token.token_id, hmac=hmac,
        renewers=[
            row.DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )  # fmt: skip


API = Api(key=41, name="DescribeDelegationToken", versions=(0, 3), runs_in=CONTROLLER, handle=handle)
