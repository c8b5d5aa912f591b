"""Configs of topics whose log directories are taken over: what another broker's metadata says, or what is not known.

While it is not known how long a topic's records shall stay, UNKNOWN_RETENTION keeps all of them. The mark among these
overrides is what `odradek status` and each start name; a change that says what shall be ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from odradek.cluster.configs import configdef
from odradek.cluster.configs.configtypes import CLUSTER_WIDE, PASSWORD

MARK = "odradek.retention.unknown"
RETENTION = ("cleanup.policy", "retention.ms", "retention.bytes")
UNKNOWN_RETENTION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", MARK: "true"}


class Checked(NamedTuple):
    """Configs that may be taken over, and the names of those that may not."""

    configs: dict[str, str]
    refused: list[str]


def check_topic(configs: Mapping[str, str]) -> Checked:
    """A topic's overrides as another broker's metadata has them."""
    good = {name: value for name, value in configs.items() if _is_topic_config(name, value)}
    try:
        configdef.validate_topic(good)
    except configdef.ConfigError:  # two that do not go together
        good = {name: value for name, value in good.items() if not name.endswith(".compaction.lag.ms")}
    return Checked(good, sorted(configs.keys() - good.keys()))


def _is_topic_config(name: str, value: str) -> bool:
    try:
        configdef.parse_topic(name, value)
    except configdef.ConfigError:
        return False
    return name != MARK  # left by another Odradek's tree: it is not Kafka's


def check_broker(configs: Mapping[str, str]) -> Checked:
    """Dynamic broker configs. Listeners and what secures them are the former broker's alone, and may be secrets."""
    good = {name: value for name, value in configs.items() if _is_broker_config(name, value)}
    return Checked(good, sorted(configs.keys() - good.keys()))


def _is_broker_config(name: str, value: str) -> bool:
    key = configdef.broker_key(name)
    if key is None or key.type == PASSWORD or key.change != CLUSTER_WIDE:
        return False
    try:
        configdef.validate_dynamic({name: value}, per_broker=False)
    except configdef.ConfigError:
        return False
    return True


def broker_retention(name: str) -> list[str]:
    """The broker configs that a retention config of a topic falls back to."""
    return [synonym for synonym, _ in configdef.topic_synonyms(name)]


def is_marked(configs: Mapping[str, str]) -> bool:
    """Whether it is unknown how long the records of a topic with these overrides shall stay."""
    return configs.get(MARK, "").lower() == "true"


def altered(former: Mapping[str, str], wanted: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """The overrides of a topic after a change to `wanted` that named these configs.

    A change that says nothing of how long records shall stay leaves that unknown, also one that replaces all
    overrides. One that sends the mark back with all that it has read says something only where it differs.
    """
    if not is_marked(former):
        return dict(wanted)
    if MARK in named and is_marked(wanted):
        says_so = any(wanted.get(name) != former.get(name) for name in RETENTION)
    else:
        says_so = MARK in named or any(name in named for name in RETENTION)
    if says_so:
        return {name: value for name, value in wanted.items() if name != MARK}
    return {**wanted, **{name: former[name] for name in (*RETENTION, MARK) if name in former}}
