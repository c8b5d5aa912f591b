"""Config changes: AlterConfigs (the whole set) and IncrementalAlterConfigs (KIP-339), as pure functions.

A request is accepted or refused as a whole for each resource; the result is the new set of overrides as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek.cluster.configs import broker_rules, configdef
from odradek.cluster.configs.broker_rules import Layers
from odradek.cluster.configs.configdef import ConfigKey
from odradek.cluster.configs.configtypes import LIST
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_CONFIG, INVALID_REQUEST

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8  # resource types


class ConfigChange(NamedTuple):
    """One operation on one config."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """ApiError for a malformed request: a duplicate name, no value, an unknown operation."""
    names = [change.name for change in changes]
    if len(names) != len(set(names)):
        raise ApiError(INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if empty:
        raise ApiError(INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")
    for change in changes:
        if change.operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise ApiError(INVALID_REQUEST, f"Unknown operations type {change.operation}")


def apply_changes(
    current: Mapping[str, str], changes: Sequence[ConfigChange], table: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """`current` after `changes`; ApiError INVALID_CONFIG when a list operation names a config that is not a list."""
    result = dict(current)
    for change in changes:
        if change.operation == DELETE:
            result.pop(change.name, None)
        elif change.operation == SET:
            result[change.name] = str(change.value)
        else:
            result[change.name] = _list_change(result.get(change.name), change, table)
    return result


def _list_change(current: str | None, change: ConfigChange, table: Mapping[str, ConfigKey]) -> str:
    word = "append" if change.operation == APPEND else "subtract"
    key = table.get(change.name)
    if key is None:
        raise ApiError(INVALID_CONFIG, f"Unknown config name: {change.name}")
    if key.type != LIST:
        raise ApiError(INVALID_CONFIG, f"Config value {word} is not allowed for config key: {change.name}")
    old = [part for part in _parts(key.default if current is None else current) if part]
    changed = _parts(change.value)
    if change.operation == APPEND:
        known = set(old)
        return ",".join(old + [part for part in changed if part not in known])
    unwanted = set(changed)
    return ",".join(part for part in old if part not in unwanted)


def _parts(text: str | None) -> list[str]:
    """Split as Java does: an empty text is one empty part; appended, it makes a list that validation refuses."""
    if not text:
        return [] if text is None else [text]
    return text.rstrip(",").split(",") if text.strip(",") else []


def validate_topic(configs: Mapping[str, str], snapshot: Snapshot) -> None:
    """ApiError INVALID_CONFIG unless `configs` are valid topic overrides with the broker configs in force."""
    try:
        snapshot.check_overrides(configs)
    except configdef.ConfigError as error:
        raise ApiError(INVALID_CONFIG, str(error)) from error


def validate_broker(former: Mapping[str, str], configs: Mapping[str, str], per_broker: bool) -> None:
    """ApiError INVALID_REQUEST (as Kafka) unless brokers accept the differences from `former` at run time.

    Unchanged values pass, even if a Kafka broker that can change more wrote them: a change must not drop them.
    """
    changed = {name: text for name, text in configs.items() if former.get(name) != text}
    try:
        configdef.validate_dynamic(changed, per_broker)
    except configdef.ConfigError as error:
        raise ApiError(INVALID_REQUEST, str(error)) from error


def validate_together(before: Layers, after: Layers, static: Mapping[str, Any]) -> None:
    """ApiError INVALID_REQUEST for dynamic broker configs that conflict, or that change too much at once."""
    if lines := broker_rules.broken_by_change(before, after, static):
        raise ApiError(INVALID_REQUEST, "; ".join(lines))


def broker_of(name: str | None, brokers: Mapping[int, object]) -> int | None:
    """The broker that a BROKER resource names, None for the cluster-wide default; ApiError for any other."""
    if not name:
        return None
    try:
        broker = int(name)
    except ValueError:
        raise ApiError(INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker not in brokers:
        expected = ", ".join(str(known) for known in sorted(brokers))
        raise ApiError(INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")
    return broker
