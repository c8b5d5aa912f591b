"""Implements `odradek topics --zookeeper`: Kafka 0.8.2's TopicCommand, with its messages, on the metadata tree itself.

The elected controller sees the writes through its watches and creates the partitions; `--create` does not wait for
that. Change notifications have the format that Kafka 3 reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from odradek.broker.commands._shared.filters import topic_filter
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands._shared.zookeeper import live_brokers
from odradek.broker.commands.topics.change_topics import Options, must_exist, warn_of_metrics
from odradek.broker.errors import OdradekError
from odradek.cluster.configs import configdef
from odradek.cluster.decisions.assignment import assign
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.notices import encode_config_change
from odradek.cluster.tree.tree import BadVersion, Create, NodeExists, NoNode, Operation, Set

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree


def matching(tree: Tree, options: Options) -> list[str]:
    """Names of the matching topics, sorted."""
    try:
        names = tree.children(znodes.TOPICS)
    except NoNode:
        return []
    allowed = topic_filter(options["topic"]) if options["topic"] else lambda name: True
    internal = topicnames.INTERNAL if options["exclude_internal"] else ()
    return [name for name in names if allowed(name) and name not in internal]


def selected_topics(tree: Tree, options: Options) -> list[str]:
    """As `matching`; raises OdradekError when --topic matches no topic, unless --if-exists."""
    found = matching(tree, options)
    must_exist(found, options)
    return found


def create(tree: Tree, options: Options) -> None:
    """Create one topic."""
    name = options["topic"]
    warn_of_metrics(name)
    node = znodes.TopicNode(znodes.random_uuid(), _replicas(tree, options))
    for path in (znodes.TOPICS, znodes.TOPIC_CONFIGS):
        tree.ensure(path)
    try:
        _check_name(tree, name)
        _check_configs(options["config"])
        tree.multi([_config(tree, name, options["config"]), Create(znodes.topic_path(name), znodes.encode_topic(node))])
    except NodeExists:
        if not options["if_not_exists"]:
            raise OdradekError(f'Topic "{name}" already exists.') from None
        return
    click.echo(f'Created topic "{name}".')


def _check_name(tree: Tree, name: str) -> None:
    try:
        topicnames.validate(name)
    except ApiError as error:
        raise OdradekError(str(error)) from None
    other = topicnames.collision(name, tree.children(znodes.TOPICS))
    if other:
        raise OdradekError(f'Topic "{name}" collides with existing topics: {other}')


def _check_configs(configs: dict[str, str]) -> None:
    try:
        configdef.validate_topic(configs)
    except configdef.ConfigError as error:
        raise OdradekError(str(error)) from None


def _replicas(tree: Tree, options: Options) -> dict[int, list[int]]:
    by_hand = options["replica_assignment"]
    if by_hand:
        return dict(enumerate(by_hand))
    return _assigned(tree, options["partitions"], options["replication_factor"])


def _assigned(tree: Tree, partitions: int, factor: int, start: int = -1, first: int = 0) -> dict[int, list[int]]:
    racks = {broker: node.rack for broker, node in live_brokers(tree).items()}
    try:
        return assign(racks, partitions, factor, start, first)
    except ApiError as error:
        raise OdradekError(str(error)) from None


def _config(tree: Tree, name: str, configs: dict[str, str]) -> Operation:
    """The write of a topic's overrides; a former topic of that name may have left the node."""
    path, data = f"{znodes.TOPIC_CONFIGS}/{name}", znodes.encode_config(configs)
    return Create(path, data) if tree.exists(path) is None else Set(path, data)


def show_names(tree: Tree, options: Options) -> None:
    """Print names, one per line, and which of them are marked for deletion."""
    names = matching(tree, options)
    if options["as_json"]:
        print_json(names)
        return
    marked = _marked(tree)
    for name in names:
        click.echo(f"{name} - marked for deletion" if name in marked else name)


def _marked(tree: Tree) -> set[str]:
    try:
        return set(tree.children(znodes.DELETE_TOPICS))
    except NoNode:
        return set()


def delete(tree: Tree, options: Options) -> None:
    """Mark each matching topic; the controller deletes it."""
    for name in selected_topics(tree, options):
        if name in topicnames.INTERNAL:
            raise OdradekError(f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion.")
        try:
            tree.ensure(znodes.DELETE_TOPICS)
            tree.create(f"{znodes.DELETE_TOPICS}/{name}")
        except NodeExists:
            click.echo(f"Topic {name} is already marked for deletion.")
            continue
        click.echo(f"Topic {name} is marked for deletion.")
        click.echo("Note: This will have no impact if delete.topic.enable is not set to true.")


def alter(tree: Tree, options: Options) -> None:
    """Change the overrides of each matching topic, or add partitions to it."""
    for name in selected_topics(tree, options):
        if options["config"] or options["delete_config"]:
            _change_configs(tree, name, options)
        if options["partitions"]:
            _grow(tree, name, options)


def _change_configs(tree: Tree, name: str, options: Options) -> None:
    configs = znodes.decode_config(tree.find(f"{znodes.TOPIC_CONFIGS}/{name}")) | options["config"]
    for gone in options["delete_config"]:
        configs.pop(gone, None)
    _check_configs(configs)
    tree.ensure(znodes.CONFIG_CHANGES)
    notice = Create(znodes.CONFIG_CHANGE, encode_config_change("topics", name), sequence=True)
    tree.multi([_config(tree, name, configs), notice])
    click.echo(f'Updated config for topic "{name}".')


def _grow(tree: Tree, name: str, options: Options) -> None:
    if name == topicnames.OFFSETS:
        raise OdradekError("The number of partitions for the offsets topic cannot be changed.")
    click.echo(
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected"
    )
    data, stat = tree.get(znodes.topic_path(name))
    node = znodes.decode_topic(data)
    grown = node._replace(replicas=node.replicas | _new_partitions(tree, node.replicas, options))
    try:
        tree.set(znodes.topic_path(name), znodes.encode_topic(grown), stat.version)
    except BadVersion:
        raise OdradekError(f"Topic {name} was changed concurrently; describe it and try again") from None
    click.echo("Adding partitions succeeded!")


def _new_partitions(tree: Tree, replicas: dict[int, list[int]], options: Options) -> dict[int, list[int]]:
    """Replicas of the new partitions. `--replica-assignment` lists all partitions; existing ones do not change."""
    there, factor = len(replicas), len(replicas[0])
    more = options["partitions"] - there
    if more <= 0:
        raise OdradekError("The number of partitions for a topic can only be increased")
    if not options["replica_assignment"]:
        return _assigned(tree, more, factor, _position(tree, replicas[0][0]), there)
    assignments = options["replica_assignment"][there:]
    if len(assignments) != more or len(assignments[0]) != factor:
        raise OdradekError(f"--replica-assignment must list {there + more} partitions with {factor} replicas each")
    unknown = {broker for brokers in assignments for broker in brokers} - live_brokers(tree).keys()
    if unknown:
        raise OdradekError(f"these brokers are not alive: {', '.join(map(str, sorted(unknown)))}")
    return dict(enumerate(assignments, there))


def _position(tree: Tree, broker: int) -> int:
    """The start position for new partitions: partition 0's preferred leader, or the next live broker."""
    return next((at for at, alive in enumerate(sorted(live_brokers(tree))) if alive >= broker), 0)
