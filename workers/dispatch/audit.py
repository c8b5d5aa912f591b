"""The audit log: who was refused what, and who changed topics, configs and ACLs; logger `odradek.audit`.

Clients can cause any number of refusals, so that a process logs each kind of them once in a while, and so many kinds
at most; what it leaves out is counted. Texts have names of resources, never values of configs.
"""

from __future__ import annotations

import logging
import time

from odradek.security.acls.acl_types import Operation, ResourceType

NAME = "odradek.audit"  # broker.logs gives it files of its own
WINDOW_S = 10.0
MOST = 100  # refusals logged in a window

log = logging.getLogger(NAME)

_Kind = tuple[str, str, Operation, ResourceType, str, str]


class Refusals:
    """The refusals of one process."""

    def __init__(self) -> None:
        self._logged: set[_Kind] = set()
        self._left_out = 0
        self._until = 0.0

    def log(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, api: str) -> None:
        """Log a refusal, unless it or many others were logged just now."""
        now = time.monotonic()
        if now >= self._until:
            self._begin(now)
        what = (principal, host, operation, kind, name, api)
        if what in self._logged:
            return
        if len(self._logged) >= MOST:
            self._left_out += 1
            return
        self._logged.add(what)
        log.warning("refused: %s from %s: %s on %s %s (%s)", principal, host, operation.title, kind.title, name, api)

    def _begin(self, now: float) -> None:
        if self._left_out:
            log.warning("refused: %d more requests", self._left_out)
        self._logged.clear()
        self._left_out, self._until = 0, now + WINDOW_S


REFUSALS = Refusals()


def changed(principal: str, host: str, what: str) -> None:
    """Log a change: `what` says which."""
    log.info("changed: %s from %s: %s", principal, host, what)
