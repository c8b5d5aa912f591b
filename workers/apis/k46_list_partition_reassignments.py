"""ListPartitionReassignments (key 46), version 0: there are none, as replicas cannot be moved yet (KIP-455)."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import NONE
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context


def handle(worker: Any, request: Any, context: Context) -> Any:
    return message_class("ListPartitionReassignmentsResponse")(error_code=NONE, error_message=None, topics=[])


API = Api(key=46, name="ListPartitionReassignments", versions=(0, 0), handle=handle)
