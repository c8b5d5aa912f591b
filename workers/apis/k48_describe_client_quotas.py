"""DescribeClientQuotas (key 48), versions 0 and 1: none are set, as there are no quotas yet (KIP-546)."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import NONE
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context


def handle(worker: Any, request: Any, context: Context) -> Any:
    return message_class("DescribeClientQuotasResponse")(error_code=NONE, entries=[])


API = Api(key=48, name="DescribeClientQuotas", versions=(0, 1), handle=handle)
