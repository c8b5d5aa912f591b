"""One member of a classic group, and its waiting requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek.groups.events import Join, Protocols
from odradek.groups.records import MemberValue


@dataclass(slots=True)
class Member:
    """A member; `join` and `sync` are the tokens of its waiting JoinGroup and SyncGroup, None when there is none."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: Any = None
    sync: Any = None
    is_new: bool = field(default=False)  # no rebalance completed yet: its JoinGroup itself may time out

    @classmethod
    def joining(cls, member_id: str, request: Join) -> Member:
        """A member from its first JoinGroup."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )

    @classmethod
    def loaded(cls, value: MemberValue, protocol: str | None) -> Member:
        """A member from the log: it supports only the selected protocol."""
        return cls(
            value.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            value.session_timeout_ms,
            ((protocol or "", value.subscription),),
            assignment=value.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the coordinator, so that its session timeout does not apply."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription under `protocol`; KeyError when it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that all members support; StopIteration when there is none."""
        return next(name for name, _ in self.protocols if name in candidates)

    def value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member's part of the group's log record."""
        return MemberValue(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )
