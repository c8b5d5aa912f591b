"""The users and delegation tokens that the controller process publishes, and the changes that its handlers make.

Layout    : copies of the nodes below /config/users and, with delegation.token.secret.key, /delegation_token/tokens.
Owner     : the controller process, in a cluster and standalone. `nodes` is what it publishes.
Changes   : all are announced by a node under /config/changes or /delegation_token/token_changes. A member watches
            these, and reads the nodes that new notices name; after a new connection it reads all. Standalone, no other
            process writes, and old notices are deleted. A change of this process is copied before its handler answers.
Crash rule: the tree is authoritative; the next process reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from odradek.broker.controller.security import node_kinds
from odradek.broker.controller.security.followed_nodes import FollowedNodes
from odradek.cluster import user_store
from odradek.cluster.metadata.security_metadata import SecurityMetadata
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.protocol.errors import INVALID_REQUEST, UNKNOWN_SERVER_ERROR
from odradek.security.sanitizer import sanitize
from odradek.security.sasl.delegation_tokens import TOKENS_PATH, Answer, DelegationTokens, encode
from odradek.security.sasl.scram_admin import Credentials
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism

log = logging.getLogger(__name__)

_LARGEST_TOKEN = 1_000_000
"""Bytes of a node, about as many as ZooKeeper takes: any user may create tokens, and every process has them."""

T = TypeVar("T")


class UserNodes:
    """Users and tokens. Methods raise TreeError, those for handlers what `stored` makes of it."""

    def __init__(
        self, tree: Tree, config: Mapping[str, Any], changed: Callable[[], None],
        stored: Callable[[Callable[[], Any]], Any],
    ) -> None:  # fmt: skip
        """`changed` is called when there is something to publish."""
        self._tree = tree
        self._changed = changed
        self._stored = stored
        self._decoy_key = ""
        self.tokens = DelegationTokens(user_store.token_settings(config))
        self._sweep_s = config["delegation.token.expiry.check.interval.ms"] / 1000
        self._sweep_at = 0.0
        kinds = [node_kinds.USERS, *([node_kinds.TOKENS] if self.tokens.enabled else [])]
        self._copies = FollowedNodes(tree, kinds, self._copied)

    # -- for the owner of the metadata

    def prepare(self) -> None:
        """Create what is missing in the tree, and read all."""
        self._decoy_key = user_store.decoy_key(self._tree)
        self._copies.prepare()

    @property
    def nodes(self) -> dict[str, str]:
        """What to publish: the texts by path."""
        return {**self._copies.texts, znodes.DECOY_KEY: self._decoy_key}

    @property
    def waiting(self) -> bool:
        """Whether `read` has something to do."""
        return self._copies.waiting

    def stale(self) -> None:
        """Any node may have changed, and all watches are lost."""
        self._copies.stale()

    def event(self, path: str) -> None:
        """A watch of the tree fired."""
        self._copies.event(path)

    def read(self) -> None:
        """Read what may have changed."""
        self._copies.read()

    def _copied(self) -> None:
        self.tokens.follow(SecurityMetadata(0, self._copies.texts).below(TOKENS_PATH))
        self._changed()

    # -- SCRAM credentials (KIP-554)

    def credentials(self, users: Iterable[str] | None) -> dict[str, Credentials]:
        """The credentials of these users, or of all, as the tree has them now."""
        return self._get(lambda: user_store.read_credentials(self._tree, users))

    def alter(self, user: str, changes: Mapping[ScramMechanism, ScramCredential | None]) -> None:
        """Set or delete credentials of a user."""
        if not node_kinds.is_name(sanitize(user)):
            raise ApiError(UNKNOWN_SERVER_ERROR, f"ZooKeeper cannot have a node for the user {user}.")
        self._stored(lambda: user_store.write_credentials(self._tree, user, changes))
        log.info("changed credentials of user %s: %s", user, ", ".join(mechanism.value for mechanism in changes))
        self._copy(f"{znodes.USER_CONFIGS}/{sanitize(user)}")

    # -- delegation tokens (KIP-48)

    def write(self, answer: Answer) -> None:
        """Write what an answer of `tokens` says."""
        if answer.written is not None:
            token = answer.written
            if len(encode(token)) > _LARGEST_TOKEN:
                raise ApiError(
                    INVALID_REQUEST, f"A delegation token may have {_LARGEST_TOKEN} bytes with its renewers."
                )
            self._stored(lambda: user_store.write_token(self._tree, token))
            log.info("delegation token %s of %s expires at %d", token.token_id, token.owner, token.expiry_ms)
            self._copy(f"{TOKENS_PATH}/{token.token_id}")
        if answer.deleted is not None:
            self._delete(answer.deleted)

    def sweep(self, now_ms: int) -> None:
        """Delete expired tokens, every delegation.token.expiry.check.interval.ms."""
        if not self.tokens.enabled or time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + self._sweep_s
        try:
            for token_id in self.tokens.expired(now_ms):
                self._delete(token_id)
        except ApiError as error:
            log.warning("cannot delete expired delegation tokens: %s", error.message)

    def due(self) -> float:
        """When `sweep` next has work (monotonic seconds)."""
        return self._sweep_at if self.tokens.enabled else float("inf")

    def _delete(self, token_id: str) -> None:
        self._stored(lambda: user_store.delete_token(self._tree, token_id))
        log.info("deleted delegation token %s", token_id)
        self._copy(f"{TOKENS_PATH}/{token_id}")

    def _copy(self, path: str) -> None:
        self._stored(lambda: self._copies.refresh([path]))

    def _get(self, read: Callable[[], T]) -> T:
        found: T = self._stored(read)
        return found
