"""ExpireDelegationToken (key 40), versions 0 to 2: by the HMAC, for the owner and the renewers (KIP-48).

A negative period deletes the token at once.
"""

from __future__ import annotations

from typing import Any

from odradek.workers.dispatch import token_changes, token_requests
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Any:
    tokens, who = controller.owner.users.tokens, token_requests.requester(context)
    return token_changes.handle(
        controller,
        "ExpireDelegationTokenResponse",
        lambda: tokens.expire(who, request.hmac, request.expiry_time_period_ms, context.now_ms),
        context,
    )


API = Api(key=40, name="ExpireDelegationToken", versions=(0, 2), runs_in=CONTROLLER, handle=handle)
