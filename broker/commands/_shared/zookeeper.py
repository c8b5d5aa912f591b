"""`--zookeeper`: commands of 0.8 that read ZooKeeper where newer ones query a broker.

Over TLS, as a user, or both, with the settings of a broker: `--zk-tls-config-file` of Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from odradek.broker.commands._shared.options import load_properties
from odradek.broker.errors import OdradekError

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree
    from odradek.cluster.tree.znodes import BrokerNode
    from odradek.cluster.tree.zookeeper import ZooKeeperTree

SESSION_MS = CONNECT_MS = 30_000  # as in 0.8's tools
_TLS_MS = 10_000  # to connect over TLS: a server that closes the connection seldom mends itself
_ENABLE = "zookeeper.ssl.client.enable"


def zookeeper_option(function: Any) -> Any:
    """`--zookeeper`, in addition to `--bootstrap-server`, and what it needs over TLS or as a user."""
    return click.option(
        "--zookeeper",
        metavar="HOST:PORT,…/PATH",
        help="The cluster's ZooKeeper (zookeeper.connect), instead of --bootstrap-server, as in Kafka 0.8.",
    )(zk_config_option(function))


def zk_config_option(function: Any) -> Any:
    """`--zk-tls-config-file`."""
    return click.option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="The zookeeper.ssl.…, zookeeper.set.acl and odradek.zookeeper.… of this properties file, which may be the "
        "broker's, secure the connection to ZooKeeper.",
    )(function)


@contextmanager
def opened(connect: str, config_file: str | None = None) -> Iterator[Tree]:
    """The tree at `connect`. Raises OdradekError for failed operations."""
    from odradek.cluster.tree.tree import TreeError

    tree = connected(connect, config_file)
    try:
        yield tree
    except TreeError as error:
        raise OdradekError(f"ZooKeeper at {connect}: {type(error).__name__} {error}") from error
    finally:
        tree.close()


def connected(
    connect: str, config_file: str | None = None, session_ms: int = SESSION_MS, makes_chroot: bool = True
) -> ZooKeeperTree:
    """A tree that the caller closes. OdradekError."""
    from odradek.cluster.tree.zookeeper import ConnectError, ZooKeeperTree

    try:
        how = credentials(settings(config_file)) if config_file else {}
        connect_ms = _TLS_MS if how.get("tls") else CONNECT_MS
        return ZooKeeperTree(connect, session_ms, connect_ms, patient=False, makes_chroot=makes_chroot, **how)
    except (ConnectError, ValueError) as error:  # ValueError: no port number, or a setting of the file
        raise OdradekError(str(error)) from error


def credentials(config: Any) -> dict[str, Any]:
    """What ZooKeeperTree takes of a broker's settings. Raises ValueError, in one line that names the setting."""
    from odradek.broker.interbroker import zookeeper_credentials

    return {
        "auth": config["odradek.zookeeper.auth"],
        "set_acl": config["zookeeper.set.acl"],
        "tls": zookeeper_credentials.tls_context(config),
        "login": zookeeper_credentials.login(config),
    }


def settings(path: str) -> dict[str, Any]:
    """The typed settings for ZooKeeper in a file, and the defaults of those that it has not."""
    from odradek.cluster.configs import configdef

    names = [name for name in configdef.BROKER if name.startswith(("zookeeper.", "odradek.zookeeper."))]
    given = {name: text for name, text in load_properties(path).items() if name in names}
    if _ENABLE not in given and any(name.startswith("zookeeper.ssl.") for name in given):
        raise ValueError(f"{_ENABLE}: must be true in {path}, or the other zookeeper.ssl.… have no effect")
    return {
        name: configdef.parse(name, given[name]) if name in given else configdef.broker_default(name) for name in names
    }


def find_brokers(options: dict[str, Any]) -> None:
    """Set `--bootstrap-server` from `--zookeeper`. Raises UsageError unless exactly one of them is given."""
    check_one(options)
    if options["zookeeper"]:
        properties = load_properties(options["command_config"], options.get("consumer_property", ()))
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        options["bootstrap_server"] = bootstrap(options["zookeeper"], options["zk_tls_config_file"], protocol)


def check_one(options: Mapping[str, Any]) -> None:
    """Raises UsageError unless the options name either brokers or ZooKeeper."""
    if bool(options["bootstrap_server"]) == bool(options["zookeeper"]):
        raise click.UsageError("give exactly one of --bootstrap-server and --zookeeper")
    check_config_file(options)


def check_config_file(options: Mapping[str, Any]) -> None:
    """Raises UsageError for a file without the ZooKeeper that it is for."""
    if options["zk_tls_config_file"] and not options["zookeeper"]:
        raise click.UsageError("--zk-tls-config-file needs --zookeeper")


def live_brokers(tree: Tree) -> dict[int, BrokerNode]:
    """The registration of each live broker, by id."""
    from odradek.cluster.tree import znodes
    from odradek.cluster.tree.tree import NoNode

    try:
        names = tree.children(znodes.BROKER_IDS)
    except NoNode:
        return {}
    found = tree.get_many([f"{znodes.BROKER_IDS}/{name}" for name in names])
    return {int(name): znodes.decode_broker(node[0]) for name, node in zip(names, found, strict=True) if node}


def bootstrap(connect: str, config_file: str | None, protocol: str) -> str:
    """The addresses of the live brokers for `bootstrap.servers`. Raises OdradekError when there are none."""
    with opened(connect, config_file) as tree:
        addresses = [_address(broker, protocol) for broker in live_brokers(tree).values()]
    if not addresses:
        raise OdradekError(f"no broker is registered in ZooKeeper at {connect}")
    return ",".join(addresses)


def _address(broker: BrokerNode, protocol: str) -> str:
    """The address of a listener with the security.protocol of the command, or else of the first one."""
    fitting = (end for name, end in broker.endpoints.items() if broker.protocols[name] == protocol)
    host, port = next(fitting, next(iter(broker.endpoints.values())))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
