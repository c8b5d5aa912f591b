"""Configs of topics in adopted log directories: from the other broker's metadata, or for unknown retention.

While a topic's retention is unknown, UNKNOWN_RETENTION keeps all its records. `odradek status` and each start report
topics with the mark among these overrides; a change that sets the retention removes the mark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from odradek.cluster.configs import configdef
from odradek.cluster.configs.configtypes import CLUSTER_WIDE, PASSWORD

MARK = "odradek.retention.unknown"
RETENTION = ("cleanup.policy", "retention.ms", "retention.bytes")
UNKNOWN_RETENTION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", MARK: "true"}


class CheckedConfigs(NamedTuple):
    """Configs that can be adopted, and the names of those that cannot."""

    configs: dict[str, str]
    refused: list[str]


def check_topic(configs: Mapping[str, str]) -> CheckedConfigs:
    """Check a topic's overrides from another broker's metadata."""
    good = {name: value for name, value in configs.items() if _is_topic_config(name, value)}
    try:
        configdef.validate_topic(good)
    except configdef.ConfigError:  # two conflicting overrides
        good = {name: value for name, value in good.items() if not name.endswith(".compaction.lag.ms")}
    return CheckedConfigs(good, sorted(configs.keys() - good.keys()))


def _is_topic_config(name: str, value: str) -> bool:
    try:
        configdef.parse_topic(name, value)
    except configdef.ConfigError:
        return False
    return name != MARK  # from the tree of another Odradek; Kafka does not have it


def check_broker(configs: Mapping[str, str]) -> CheckedConfigs:
    """Check dynamic broker configs. Listener and security configs belong to the former broker and may be secrets."""
    good = {name: value for name, value in configs.items() if _is_broker_config(name, value)}
    return CheckedConfigs(good, sorted(configs.keys() - good.keys()))


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
    """The broker configs that are the fallback of a topic's retention config."""
    return [synonym for synonym, _ in configdef.topic_synonyms(name)]


def is_marked(configs: Mapping[str, str]) -> bool:
    """Whether the retention of a topic with these overrides is unknown."""
    return configs.get(MARK, "").lower() == "true"


def altered(former: Mapping[str, str], changed: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """The overrides of a topic after a change to `changed` that names the configs in `named`.

    A change that does not name a retention config leaves the retention unknown, even if it replaces all overrides. A
    change that sends the mark back together with all values that it read counts only if a retention config differs.
    """
    if not is_marked(former):
        return dict(changed)
    if MARK in named and is_marked(changed):
        says_so = any(changed.get(name) != former.get(name) for name in RETENTION)
    else:
        says_so = MARK in named or any(name in named for name in RETENTION)
    if says_so:
        return {name: value for name, value in changed.items() if name != MARK}
    return {**changed, **{name: former[name] for name in (*RETENTION, MARK) if name in former}}
