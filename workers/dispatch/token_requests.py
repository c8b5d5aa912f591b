"""Shared by the APIs of delegation tokens: who may ask, and for whom. They run in the controller process."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import DELEGATION_TOKEN_AUTHORIZATION_FAILED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NONE
from odradek.security.acls.acl_types import Operation, ResourceType
from odradek.security.principal import ANONYMOUS, USER, Principal
from odradek.security.sasl import delegation_tokens
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.context import Context

ERROR_MS = delegation_tokens.NONE_MS


def refusal(controller: Controller, context: Context) -> int:
    """The error for a connection that may not make these requests, or NONE.

    The client must be authenticated, by its listener's protocol, and not by a token.
    """
    protocol = controller.security_protocol(context.listener)
    anonymous = context.principal == str(ANONYMOUS)
    allowed = delegation_tokens.may_request(protocol, context.by_token, anonymous)
    return NONE if allowed else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def requester(context: Context) -> Principal:
    """Who asks."""
    kind, _, name = context.principal.partition(":")
    return Principal(kind, name)  # a certificate without a subject gives an empty name, as in Kafka


def owner_of(request: Any, context: Context) -> Principal:
    """The owner of the token to create: who asks, unless the request names another (KIP-373)."""
    if context.version < 3 or not request.owner_principal_name:
        return requester(context)
    return Principal(request.owner_principal_type or USER, request.owner_principal_name)


def creation_refusal(context: Context, owner: Principal) -> int:
    """The error for a client that may not create tokens for `owner` (CREATE_TOKENS), or NONE."""
    if owner == requester(context) or context.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return NONE
    return DELEGATION_TOKEN_AUTHORIZATION_FAILED


def may_describe(context: Context, token_id: str) -> bool:
    """Whether the client may describe a token of others."""
    return context.sees(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id)


def may_describe_of(context: Context, owner: Principal) -> bool:
    """Whether the client may describe the tokens of `owner`."""
    return context.sees(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(owner))
