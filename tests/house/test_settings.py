"""The code of the broker reads exactly those settings whose row says that they work (`ConfigKey.works`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from odradek.cluster.configs import configdef

from .tree import modules

BROKER_SIDE = ("broker", "workers", "storage", "ipc", "groups", "cluster")
# Tables and rules say what values may be; commands are clients, with settings of their own.
SAY_ONLY = ("topic_configs", "broker_configs", "known_configs", "own_configs", "configdef", "broker_rules")
ODRADEK = "odradek."


def trees() -> Iterator[ast.Module]:
    """The modules that a broker runs, parsed."""
    for name, path in modules():
        folder, _, module = name.removeprefix(ODRADEK).partition(".")
        if folder in BROKER_SIDE and module.rpartition(".")[2] not in SAY_ONLY and not module.startswith("commands"):
            yield ast.parse(path.read_text())


def words(tree: ast.Module) -> Iterator[str]:
    """Strings, but for the keys of dicts, and the names of attributes: `["retention.ms"]`, `.retention_ms`."""
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in keys:
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr


def attribute(key: str) -> str:
    """The field of `storage.config.LogConfig` for a topic config."""
    return key.removeprefix(ODRADEK).replace(".", "_")


def test_settings_read_are_those_that_work() -> None:
    found = {word for tree in trees() for word in words(tree)}
    topic = {name for name in configdef.TOPIC if name in found or attribute(name) in found}
    through_topics = {synonym for name in topic for synonym, _ in configdef.topic_synonyms(name)}
    broker = {name for name in configdef.BROKER if name in found} | through_topics
    assert {name for name, key in configdef.TOPIC.items() if key.works} == topic
    assert {name for name, key in configdef.BROKER.items() if key.works} == broker
