"""Where the users are: a running cluster (KIP-554), ZooKeeper, or the metadata file of a broker that is down."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from odradek.broker import config as configuration
from odradek.broker.commands._shared import zookeeper
from odradek.broker.commands._shared.options import load_properties
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.interbroker import zookeeper_session
from odradek.cluster import user_store
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import FILE_NAME, EmbeddedTree, StoreError
from odradek.cluster.tree.tree import Tree, TreeError
from odradek.security.sasl.scram_admin import Upsertion
from odradek.security.sasl.scram_keys import BY_TYPE, ScramMechanism, credential

if TYPE_CHECKING:
    from odradek.broker.commands._shared.client import Cluster

Held = dict[str, list[tuple[str, int]]]
"""(mechanism, iterations) of each user."""


class Place(Protocol):
    """Users, and the address of a broker for the lines that use them."""

    address: str

    def set(self, upsertions: Sequence[Upsertion]) -> None:
        """Set credentials of one user."""

    def list(self, name: str | None = None) -> Held:
        """All users, or one."""

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        """Delete credentials."""


@contextmanager
def opened(where: Mapping[str, Any]) -> Iterator[Place]:
    """The place that the options of a command name. Raises OdradekError."""
    named = [name for name in ("bootstrap_server", "zookeeper", "properties") if where[name]]
    if len(named) > 1 or (where["override"] and named[:1] not in ([], ["properties"])):
        raise click.UsageError("give one of --bootstrap-server, --zookeeper and SERVER.PROPERTIES")
    zookeeper.check_config_file(where)
    if where["bootstrap_server"]:
        from odradek.broker.commands._shared.client import Cluster

        with Cluster(where["bootstrap_server"], load_properties(where["command_config"])) as cluster:
            yield _OfCluster(cluster, where["bootstrap_server"].split(",")[0])
    elif where["zookeeper"]:
        with zookeeper.opened(where["zookeeper"], where["zk_tls_config_file"]) as tree:
            yield _OfTree(tree, "HOST:9093")
    else:
        config = configuration.load(where["properties"], where["override"])
        with _tree(config) as tree:
            yield _OfTree(tree, str(config.advertised[0]).rpartition("/")[2])


@contextmanager
def _tree(config: BrokerConfig) -> Iterator[Tree]:
    """The tree of a broker that is down, or of its cluster."""
    tree = zookeeper_session.open_tree(config) if config.clustered else _embedded(config)
    try:
        yield tree
    except TreeError as error:
        raise OdradekError(f"the metadata cannot be written: {type(error).__name__} {error}") from error
    finally:
        tree.close()


def _embedded(config: BrokerConfig) -> Tree:
    path = Path(config.data_dir, FILE_NAME)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = EmbeddedTree(path)
        _give_to_owner(path)
    except StoreError as error:
        hint = "; of a running broker, give --bootstrap-server" if "is another broker running" in str(error) else ""
        raise OdradekError(f"{error}{hint}") from None
    except OSError as error:
        raise OdradekError(f"{error.filename or path}: {error.strerror}") from None
    return tree


def _give_to_owner(path: Path) -> None:
    """Root may add the user of a broker that runs as another user, to whom its directory belongs."""
    owner = path.parent.stat()
    for file in path.parent.glob(f"{path.name}*"):
        if stat.S_ISREG(file.lstat().st_mode) and file.stat().st_uid != owner.st_uid:
            os.chown(file, owner.st_uid, owner.st_gid)


class _OfTree:
    """Users in a tree."""

    def __init__(self, tree: Tree, address: str) -> None:
        self.address = address
        self._tree = tree

    def set(self, upsertions: Sequence[Upsertion]) -> None:
        for path in (znodes.USER_CONFIGS, znodes.CONFIG_CHANGES):
            self._tree.ensure(path)
        made = {}
        for one in upsertions:
            mechanism = BY_TYPE[one.mechanism]
            made[mechanism] = credential(mechanism, one.salt, one.salted_password, one.iterations)
        user_store.write_credentials(self._tree, upsertions[0].user, made)

    def list(self, name: str | None = None) -> Held:
        if self._tree.exists(znodes.USER_CONFIGS) is None:
            return {}
        found = user_store.read_credentials(self._tree, None if name is None else [name])
        held = {
            user: [(mechanism.value, one.iterations if one else 0) for mechanism, one in credentials.items()]
            for user, credentials in found.items()
        }
        return {user: mechanisms for user, mechanisms in held.items() if mechanisms}

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        user_store.write_credentials(self._tree, name, dict.fromkeys(map(ScramMechanism, mechanisms)))


class _OfCluster:
    """Users of a running cluster."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.address = address
        self._cluster = cluster

    def set(self, upsertions: Sequence[Upsertion]) -> None:
        from kafka.protocol.admin import AlterUserScramCredentialsRequest as Request

        rows = [
            Request.ScramCredentialUpsertion(
                name=one.user, mechanism=one.mechanism, iterations=one.iterations, salt=one.salt,
                salted_password=one.salted_password,
            )
            for one in upsertions
        ]  # fmt: skip
        self._alter(rows, [])

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        from kafka.protocol.admin import AlterUserScramCredentialsRequest as Request

        rows = [Request.ScramCredentialDeletion(name=name, mechanism=ScramMechanism(one).type) for one in mechanisms]
        self._alter([], rows)

    def _alter(self, upsertions: Sequence[Any], deletions: Sequence[Any]) -> None:
        """One mechanism a request: in KRaft mode Apache Kafka takes a user once."""
        from kafka.protocol.admin import AlterUserScramCredentialsRequest as Request

        from odradek.broker.commands._shared.client import check

        for up, down in [*(([one], []) for one in upsertions), *(([], [one]) for one in deletions)]:
            answer = self._cluster.send_to_controller(
                Request(upsertions=up, deletions=down), lambda found: [result.error_code for result in found.results]
            )
            for result in answer.results:
                check(result.error_code, result.error_message)

    def list(self, name: str | None = None) -> Held:
        from odradek.broker.commands._shared.scram_credentials import described

        return described(self._cluster, [] if name is None else [name])
