"""The messages about delegation tokens (KIP-48), which the library lacks: keys 38 to 41.

v2 is flexible; v3 of Create and Describe has the requester, who may be another than the owner (KIP-373).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.protocol.messages import Schema

SCHEMAS = (
    Schema(
        key=38,
        name="CreateDelegationToken",
        last=3,
        flexible=2,
        request="""
        owner_principal_type string? 3+
        owner_principal_name string? 3+
        renewers []CreatableRenewers
            principal_type string
            principal_name string
        max_lifetime_ms int64
        """,
        response="""
        error_code int16
        principal_type string
        principal_name string
        token_requester_principal_type string 3+
        token_requester_principal_name string 3+
        issue_timestamp_ms int64
        expiry_timestamp_ms int64
        max_timestamp_ms int64
        token_id string
        hmac bytes
        throttle_time_ms int32
        """,
    ),
    Schema(
        key=39,
        name="RenewDelegationToken",
        last=2,
        flexible=2,
        request="""
        hmac bytes
        renew_period_ms int64
        """,
        response="""
        error_code int16
        expiry_timestamp_ms int64
        throttle_time_ms int32
        """,
    ),
    Schema(
        key=40,
        name="ExpireDelegationToken",
        last=2,
        flexible=2,
        request="""
        hmac bytes
        expiry_time_period_ms int64
        """,
        response="""
        error_code int16
        expiry_timestamp_ms int64
        throttle_time_ms int32
        """,
    ),
    Schema(
        key=41,
        name="DescribeDelegationToken",
        last=3,
        flexible=2,
        request="""
        owners []DescribeDelegationTokenOwner?
            principal_type string
            principal_name string
        """,
        response="""
        error_code int16
        tokens []DescribedDelegationToken
            principal_type string
            principal_name string
            token_requester_principal_type string 3+
            token_requester_principal_name string 3+
            issue_timestamp int64
            expiry_timestamp int64
            max_timestamp int64
            token_id string
            hmac bytes
            renewers []DescribedDelegationTokenRenewer
                principal_type string
                principal_name string
        throttle_time_ms int32
        """,
    ),
)
_BY_NAME = {schema.name: schema for schema in SCHEMAS}


@cache
def message_class(name: str) -> Any:
    """The class for one of these requests or responses; None for others."""
    for kind in ("Request", "Response"):
        schema = _BY_NAME.get(name.removesuffix(kind))
        if schema is not None and name.endswith(kind):
            return schema.message_class(kind)
    return None
