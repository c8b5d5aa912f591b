"""The context of a request for its handler: the client, and the means to answer later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from odradek.cluster.configs.admitted import Admitted
from odradek.security.acls.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.security.principal import ANONYMOUS
from odradek.workers.dispatch import audit
from odradek.workers.dispatch.authorization import CLUSTER, CLUSTER_ACTION, EVERYTHING, Rights

FEW = 128  # elements of an answer that are encoded in one go


def at_once(work: Iterator[object]) -> None:
    """Run all steps of `work`."""
    for _ in work:
        pass


class Context:
    """The context of one request; handlers that returned None may call `reply` once.

    `begin(work)` does the rest of a request in steps; if it raises, the request is answered as failed.
    """

    __slots__ = (
        "_reply", "api_key", "begin", "by_token", "client_host", "client_id", "listener", "principal", "rights", "size",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        api_key: int,
        version: int,
        client_id: str | None,
        client_host: str,
        listener: str,
        reply: Callable[[Any], None],
        size: int = 0,
        begin: Callable[[Iterator[object]], None] = at_once,
        principal: str = str(ANONYMOUS),
        by_token: bool = False,
        rights: Rights = EVERYTHING,
    ) -> None:
        """`size`: bytes of the request's body. `by_token`: a delegation token authenticated the principal. `rights`:
        what the principal may do."""
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.listener = listener
        self.size = size
        self._reply = reply
        self.begin = begin
        self.principal = principal
        self.by_token = by_token
        self.rights = rights

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this; a refusal goes to the audit log."""
        return self.rights.allows(self.api_key, operation, kind, name)

    def sees(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this; for what an answer omits if it may not."""
        return self.rights.sees(operation, kind, name)

    def is_broker(self, admitted: Admitted) -> bool:
        """Whether the client is a broker: an authenticated one by its ClusterAction, any other one by its address."""
        if self.rights.session is not None and self.principal != str(ANONYMOUS):
            return self.sees(CLUSTER_ACTION, CLUSTER)
        return admitted.allows(self.listener, self.client_host)

    def changed(self, what: str) -> None:
        """The request has changed something: log it to the audit log."""
        audit.changed(self.principal, self.client_host, what)

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000

    def finish(self, work: Iterator[object], elements: int) -> None:
        """Do the rest of a request whose answer has so many elements: at once if they are few, else in steps."""
        (self.begin if elements > FEW else at_once)(work)

    def reply(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        self._reply(response)
