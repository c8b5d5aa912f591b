"""CreateDelegationToken (key 38), versions 0 to 3: a token that authenticates as its owner for a while (KIP-48).

v3 may name another owner than who asks (KIP-373). Any broker answers, when its workers know the token.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from odradek.protocol.errors import NONE, POLICY_VIOLATION
from odradek.protocol.library import message_class
from odradek.security.principal import Principal
from odradek.security.sasl.delegation_tokens import Answer
from odradek.workers.dispatch import token_requests
from odradek.workers.dispatch.administration import Controller, attempt
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context
from odradek.workers.net.bounded_log import BoundedLog

_TOO_MANY = BoundedLog(logging.getLogger(__name__), logging.WARNING, "refused requests for delegation tokens", 1, 60)


def handle(controller: Controller, request: Any, context: Context) -> Any:
    owner = token_requests.owner_of(request, context)
    refused = token_requests.refusal(controller, context) or token_requests.creation_refusal(context, owner)
    if refused:
        return _refused(refused, owner, context)
    renewers = [Principal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
    answer = controller.owner.users.tokens.create(
        owner, token_requests.requester(context), renewers, request.max_lifetime_ms, context.now_ms
    )
    if answer.error == POLICY_VIOLATION:
        _log_bound(context)
    code = int(answer.error) or attempt(lambda: controller.owner.users.write(answer))[0]
    if code:
        return _refused(code, owner, context)
    made = _created(controller, answer, context)
    context.changed(f"created a delegation token of {owner}")
    controller.when_published(lambda: context.reply(made))
    return None


def _log_bound(context: Context) -> None:
    _TOO_MANY.write(
        time.monotonic(), "", "%s gets no more delegation tokens: with another one, its tokens would exceed "
        "odradek.delegation.tokens.max.bytes", context.principal,
    )  # fmt: skip


def _created(controller: Controller, answer: Answer, context: Context) -> Any:
    token = answer.written
    assert token is not None
    return _response(
        NONE, token.owner, context, token.issue_ms, token.expiry_ms, token.max_ms, token.token_id,
        controller.owner.users.tokens.hmac(token.token_id),
    )  # fmt: skip


def _refused(code: int, owner: Principal, context: Context) -> Any:
    none = token_requests.ERROR_MS
    return _response(code, owner, context, none, none, none, "", b"")


def _response(
    code: int, owner: Principal, context: Context, issue_ms: int, expiry_ms: int, max_ms: int, token_id: str,
    hmac: bytes,
) -> Any:  # fmt: skip
    requester = token_requests.requester(context)
    return message_class("CreateDelegationTokenResponse")(
        error_code=code, principal_type=owner.type, principal_name=owner.name,
        token_requester_principal_type=requester.type, token_requester_principal_name=requester.name,
        issue_timestamp_ms=issue_ms, expiry_timestamp_ms=expiry_ms, max_timestamp_ms=max_ms, token_id=token_id,
        hmac=hmac,
    )  # fmt: skip


API = Api(key=38, name="CreateDelegationToken", versions=(0, 3), runs_in=CONTROLLER, handle=handle)
