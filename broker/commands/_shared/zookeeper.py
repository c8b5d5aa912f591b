"""`--zookeeper`: commands of 0.8 that read ZooKeeper where newer ones query a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from odradek.broker.errors import OdradekError

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree
    from odradek.cluster.tree.znodes import BrokerNode

SESSION_MS = CONNECT_MS = 30_000  # as in 0.8's tools


def zookeeper_option(function: Any) -> Any:
    """`--zookeeper`, in addition to `--bootstrap-server`."""
    return click.option(
        "--zookeeper",
        metavar="HOST:PORT,…/PATH",
        help="The cluster's ZooKeeper (zookeeper.connect), instead of --bootstrap-server, as in Kafka 0.8.",
    )(function)


@contextmanager
def opened(connect: str) -> Iterator[Tree]:
    """The tree at `connect`. Raises OdradekError for failed operations."""
    from odradek.cluster.tree.tree import TreeError
    from odradek.cluster.tree.zookeeper import ConnectError, ZooKeeperTree

    try:
        tree = ZooKeeperTree(connect, SESSION_MS, CONNECT_MS)
    except (ConnectError, ValueError) as error:  # ValueError: no port number
        raise OdradekError(str(error)) from error
    try:
        yield tree
    except TreeError as error:
        raise OdradekError(f"ZooKeeper at {connect}: {type(error).__name__} {error}") from error
    finally:
        tree.close()


def find_brokers(options: dict[str, Any]) -> None:
    """Set `--bootstrap-server` from `--zookeeper`. Raises UsageError unless exactly one of them is given."""
    if bool(options["bootstrap_server"]) == bool(options["zookeeper"]):
        raise click.UsageError("give exactly one of --bootstrap-server and --zookeeper")
    if options["zookeeper"]:
        options["bootstrap_server"] = bootstrap(options["zookeeper"])


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


def bootstrap(connect: str) -> str:
    """The addresses of the live brokers for `bootstrap.servers`. Raises OdradekError when there are none."""
    with opened(connect) as tree:
        addresses = [_address(broker) for broker in live_brokers(tree).values()]
    if not addresses:
        raise OdradekError(f"no broker is registered in ZooKeeper at {connect}")
    return ",".join(addresses)


def _address(broker: BrokerNode) -> str:
    """The address of a PLAINTEXT listener if there is one: credentials for other listeners are unknown here."""
    plain = (end for name, end in broker.endpoints.items() if broker.protocols[name] == "PLAINTEXT")
    host, port = next(plain, next(iter(broker.endpoints.values())))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
