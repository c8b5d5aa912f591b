"""SCRAM credentials and delegation tokens in the metadata tree: Kafka's nodes and notices, read and written.

A user's node, `/config/users/NAME` (as `sanitize` writes the name), has a credential for each mechanism among its
configs, and perhaps quotas. Each write is one transaction with its notice: a crash leaves both or neither.

The decoy key makes the challenge for a user that does not exist (security.sasl.scram_server). It is a random node that
the first broker of a cluster creates: all brokers must challenge alike, or a client of two brokers learns
which users exist. The cluster's id is public; delegation.token.secret.key is optional, and differs while it is changed.
The node is readable where the credentials themselves are: by the brokers alone with zookeeper.set.acl.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import BadVersion, Create, Delete, NodeExists, NoNode, NotEmpty, Operation, Set, Tree
from odradek.cluster.tree.znodes import MalformedNode
from odradek.security.sanitizer import desanitize, sanitize
from odradek.security.sasl.delegation_tokens import (
    CHANGE_PREFIX,
    CHANGES_PATH,
    TOKENS_PATH,
    Token,
    TokenSettings,
    encode,
)
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_admin import Credentials
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism, format_credential, parse_credential

log = logging.getLogger(__name__)

_TRIES = 10


# -- users


def credentials_in(name: str, text: str | bytes) -> dict[ScramMechanism, ScramCredential | None]:
    """The credentials in the node with this name; None for one that cannot be read."""
    try:
        configs = znodes.decode_config(text.encode() if isinstance(text, str) else text)
    except MalformedNode:
        log.error("ignoring %s/%s: it is malformed", znodes.USER_CONFIGS, name)  # what it has may be a secret
        return {}
    held = {mechanism: configs.get(mechanism.value) for mechanism in ScramMechanism}
    return {mechanism: _parsed(name, mechanism, text) for mechanism, text in held.items() if text is not None}


def _parsed(name: str, mechanism: ScramMechanism, text: str) -> ScramCredential | None:
    try:
        return parse_credential(text)
    except ValueError as error:
        log.error("%s/%s: ignoring %s: %s", znodes.USER_CONFIGS, name, mechanism.value, error)
        return None


def read_credentials(tree: Tree, users: Iterable[str] | None = None) -> dict[str, Credentials]:
    """The credentials of `users`, or of all, by user."""
    names = (
        tree.children(znodes.USER_CONFIGS)
        if users is None
        else [sanitize(user) for user in users if user not in ("", ".", "..")]
    )
    found = tree.get_many([f"{znodes.USER_CONFIGS}/{name}" for name in names])
    nodes = {name: node[0] for name, node in zip(names, found, strict=True) if node is not None}
    users_of = {name: user for name in nodes if name != znodes.CLUSTER_WIDE and (user := _user_of(name)) is not None}
    return {user: credentials_in(name, nodes[name]) for name, user in users_of.items()}


def _user_of(name: str) -> str | None:
    """The user that a node belongs to; None for a name that Kafka does not write."""
    try:
        return desanitize(name)
    except ValueError as error:
        log.error("ignoring a node below %s: %s", znodes.USER_CONFIGS, error)
        return None


def write_credentials(tree: Tree, user: str, changes: Mapping[ScramMechanism, ScramCredential | None]) -> None:
    """Set or delete (None) credentials of a user, and notify all brokers; other configs of the user stay."""
    path = f"{znodes.USER_CONFIGS}/{sanitize(user)}"
    change = notices.encode_config_change("users", sanitize(user))
    for _ in range(_TRIES):
        try:
            tree.multi([*_user_write(tree, path, changes), Create(znodes.CONFIG_CHANGE, change, sequence=True)])
        except (BadVersion, NodeExists, NoNode, NotEmpty):  # another broker was faster
            continue
        return
    raise BadVersion(path)


def _user_write(
    tree: Tree, path: str, changes: Mapping[ScramMechanism, ScramCredential | None]
) -> list[Operation]:  # fmt: skip
    """The write of a user's node; a node that is left without configs and children is deleted, as in Kafka."""
    try:
        data, stat = tree.get(path)
    except NoNode:
        return [Create(path, znodes.encode_config(_applied({}, changes)))]
    configs = _applied(znodes.decode_config(data), changes)
    if not configs and not stat.children:
        return [Delete(path, stat.version)]
    return [Set(path, znodes.encode_config(configs), stat.version)]


def _applied(
    configs: dict[str, str], changes: Mapping[ScramMechanism, ScramCredential | None]
) -> dict[str, str]:  # fmt: skip
    removed = {mechanism.value for mechanism in changes}
    made = {mechanism.value: format_credential(one) for mechanism, one in changes.items() if one is not None}
    return {name: text for name, text in configs.items() if name not in removed} | made


# -- delegation tokens


def token_settings(config: Mapping[str, Any]) -> TokenSettings:
    """The settings of delegation tokens; without delegation.token.secret.key, or its former name, there are none."""
    key = config["delegation.token.secret.key"] or config["delegation.token.master.key"]
    return TokenSettings(
        Password(key) if key else None,
        config["delegation.token.max.lifetime.ms"],
        config["delegation.token.expiry.time.ms"],
        config["odradek.delegation.tokens.max.bytes"],
    )


def write_token(tree: Tree, token: Token) -> None:
    """Create a token, or change its expiry, and notify all brokers."""
    path = f"{TOKENS_PATH}/{token.token_id}"
    for _ in range(_TRIES):
        write = Set(path, encode(token)) if tree.exists(path) else Create(path, encode(token))
        try:
            tree.multi([write, _token_notice(token.token_id)])
        except (NodeExists, NoNode):  # another broker was faster
            continue
        return
    raise BadVersion(path)


def delete_token(tree: Tree, token_id: str) -> None:
    """Delete a token, if it is still there, and notify all brokers."""
    try:
        tree.multi([Delete(f"{TOKENS_PATH}/{token_id}"), _token_notice(token_id)])
    except NoNode:
        pass


def _token_notice(token_id: str) -> Operation:
    return Create(f"{CHANGES_PATH}/{CHANGE_PREFIX}", token_id.encode(), sequence=True)


# -- the decoy key


def decoy_key(tree: Tree) -> str:
    """The cluster's decoy key, in Base64; made if there is none yet."""
    data = tree.find(znodes.DECOY_KEY)
    if not data:
        made = base64.b64encode(os.urandom(32))
        try:
            tree.create(znodes.DECOY_KEY, made)
        except NodeExists:  # another broker of a new cluster was faster
            pass
        data, _ = tree.latest(znodes.DECOY_KEY)
    return data.decode("ascii", "replace")
