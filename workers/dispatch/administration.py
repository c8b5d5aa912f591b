"""The interface of the controller process for its handlers, and helpers that several of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from odradek.cluster.decisions.planning import TopicDefaults, TopicPlan
from odradek.cluster.decisions.reassignment import Assignment
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError, Outcomes
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import INVALID_REQUEST, NONE, THROTTLING_QUOTA_EXCEEDED
from odradek.security.acls.acl_requests import Changes
from odradek.security.acls.acl_types import Acls
from odradek.security.quotas.entities import Entity
from odradek.security.quotas.mutations import MutationQuota
from odradek.security.sasl.delegation_tokens import Answer, DelegationTokens
from odradek.security.sasl.scram_admin import Credentials
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism
from odradek.workers.dispatch.authorization import Authorization
from odradek.workers.dispatch.context import Context


class Users(Protocol):
    """Users and delegation tokens. Changes raise ApiError and are in the tree when they return."""

    @property
    def tokens(self) -> DelegationTokens:
        """The known tokens."""

    def credentials(self, users: Iterable[str] | None) -> dict[str, Credentials]:
        """The SCRAM credentials of these users, or of all."""

    def alter(self, user: str, changes: Mapping[ScramMechanism, ScramCredential | None]) -> None:
        """Set or delete (None) credentials of a user."""

    def write(self, answer: Answer) -> None:
        """Write the token that an answer of `tokens` has, or delete the one that it names."""


class Owner(Protocol):
    """The metadata, and every change to it. Changes raise ApiError and are in the tree when they return.

    Large changes run in steps (broker.process.steps): the first step writes the change to the tree, so it will be done.
    """

    @property
    def users(self) -> Users:
        """Users and delegation tokens."""

    def require_controller(self) -> None:
        """Raise ApiError NOT_CONTROLLER unless this broker is the elected controller."""

    def create_topic(self, plan: TopicPlan) -> Generator[None, None, bytes]:
        """Create a topic; returns its id."""

    def add_partitions(self, name: str, replicas: dict[int, list[int]]) -> Iterator[None]:
        """Add partitions to a topic."""

    def delete_topic(self, name: str, done: Callable[[ApiError | None], None]) -> Callable[[], object]:
        """Delete a topic and call `done` when it is gone, unless the returned function cancels the call before."""

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's config overrides."""

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of a broker, or (None) of the cluster."""

    def check_link(self, settings: Mapping[str, str]) -> None:
        """Raise ValueError where connections to other brokers cannot go over to these settings of this broker."""

    def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace the client quotas of an entity."""

    @property
    def acls(self) -> Acls:
        """The ACLs, published or not."""

    def change_acls(self, decide: Callable[[Acls], tuple[Any, Changes]]) -> Generator[None, None, Any]:
        """Change ACLs as `decide` says, from the ACLs there are; returns the answer that it gives."""

    def partitions(self) -> list[Partition]:
        """All partitions. Raises ApiError NOT_CONTROLLER."""

    def elect_leaders(self, partitions: Collection[Partition], unclean: bool) -> Outcomes:
        """Elect preferred leaders (or any) for partitions; returns the outcome of each."""

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, ApiError]:
        """Move partitions to other replicas (None: back); returns the errors of the refused ones."""

    def moves(self) -> dict[Partition, Assignment]:
        """The moves under way."""


class Listeners(Protocol):
    """The listeners of this broker as handlers change them."""

    @property
    def config(self) -> Any:
        """This broker's configuration with the listeners in force."""

    def changed(self, own: Mapping[str, str]) -> Any:
        """The configuration with the listeners of these dynamic configs. ValueError: it cannot change to them."""

    def prepare(self, config: Any, keep: bool) -> None:
        """Bind new ports; without `keep`, only try it. ValueError: one cannot be bound."""


class Controller(Protocol):
    """The controller process as its handlers see it."""

    authorization: Authorization

    @property
    def owner(self) -> Owner:
        """The metadata."""

    @property
    def snapshot(self) -> Snapshot:
        """The metadata as it is now."""

    @property
    def config(self) -> Any:
        """This broker's static configuration."""

    def security_protocol(self, listener: str) -> str:
        """The security protocol of the listener with this name (listener.security.protocol.map)."""

    @property
    def listeners(self) -> Listeners:
        """The listeners of this broker."""

    def defaults(self) -> TopicDefaults:
        """num.partitions and default.replication.factor."""

    def mutations(self, context: Context) -> MutationQuota:
        """The controller mutation quota of a request."""

    def has_logger(self, name: str) -> bool:
        """Whether `name` is `root` or a module or package of ours."""

    def set_log_levels(self, levels: Mapping[str, str | None]) -> None:
        """Set levels by logger in all processes of this broker, or remove them (None). ApiError."""

    def begin(self, work: Iterator[None]) -> None:
        """Run `work` in steps."""

    def when_published(self, action: Callable[[], None]) -> None:
        """Call `action` when every process knows all changes made so far."""

    def after(self, milliseconds: int, action: Callable[[], None]) -> Callable[[], object]:
        """Call `action` after a delay, unless the returned function cancels it first."""


def attempt(action: Callable[[], Any]) -> tuple[int, str | None]:
    """(error code, message) of an action that raises ApiError when it is refused."""
    try:
        action()
    except ApiError as error:
        return error.code, error.message
    return NONE, None


def mutate(quota: MutationQuota, partitions: int) -> None:
    """Count partitions that are created or deleted; ApiError when the client's quota does not allow it now."""
    if not quota.accept(partitions):
        raise ApiError(THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


def throttled(response: Any, quota: MutationQuota) -> Any:
    """The response with the throttle time of a client that exceeds its quota; its worker mutes the connection."""
    response.throttle_time_ms = quota.throttle_ms()
    return response


def twice(names: Iterable[Any]) -> set[Any]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def refuse_duplicate(message: str) -> ApiError:
    """The error for a resource or topic that a request names more than once."""
    return ApiError(INVALID_REQUEST, message)
