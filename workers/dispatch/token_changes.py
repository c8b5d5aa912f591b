"""Shared by RenewDelegationToken and ExpireDelegationToken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol.library import message_class
from odradek.security.sasl.delegation_tokens import Answer
from odradek.workers.dispatch import token_requests
from odradek.workers.dispatch.administration import Controller, attempt
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, name: str, change: Callable[[], Answer], context: Context) -> Any:
    """Carry out `change` if the connection may, and answer when every live worker knows it."""
    response = message_class(name)
    refused = token_requests.refusal(controller, context)
    if refused:
        return response(error_code=refused, expiry_timestamp_ms=token_requests.ERROR_MS)
    answer = change()
    code = attempt(lambda: controller.owner.users.write(answer))[0]
    if code:
        return response(error_code=code, expiry_timestamp_ms=token_requests.ERROR_MS)
    made = response(error_code=answer.error, expiry_timestamp_ms=answer.expiry_ms)
    if answer.error:
        return made
    controller.when_published(lambda: context.reply(made))
    return None
