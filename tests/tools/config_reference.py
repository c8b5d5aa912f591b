"""The tables of settings in docs/configuration.md, from the tables in cluster/configs/ that the broker itself reads.

`python -m tests.tools.config_reference` writes them (`make docs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .marked import Marked

if TYPE_CHECKING:
    from odradek.cluster.configs.configtypes import ConfigKey

PART = Marked("docs/configuration.md", "configuration reference")
KAFKAS_DEFAULTS = {"listeners": "PLAINTEXT://:9092"}  # loopback here: it needs no authentication
"""Apache Kafka's default of each setting whose default is another here. Tests compare both with Kafka's own."""

_LARGEST = {str((1 << 31) - 1): "2³¹ - 1", str((1 << 63) - 1): "2⁶³ - 1", "1.7976931348623157E308": "largest double"}


def reference() -> str:
    """All tables, each below its heading."""
    from odradek.cluster.configs.authorizer_configs import AUTHORIZER_CONFIGS
    from odradek.cluster.configs.broker_configs import BROKER_CONFIGS
    from odradek.cluster.configs.known_configs import KNOWN_CONFIGS
    from odradek.cluster.configs.own_configs import OWN_CONFIGS
    from odradek.cluster.configs.security_configs import SECURITY_CONFIGS
    from odradek.cluster.configs.topic_configs import TOPIC_CONFIGS

    unused = [*KNOWN_CONFIGS, *(key for key in BROKER_CONFIGS if not key.works)]
    parts = [
        "## Topic configs\n\n" + _topics(key for key in TOPIC_CONFIGS if key.works),
        "## Broker configs\n\n" + _brokers(key for key in (*BROKER_CONFIGS, *AUTHORIZER_CONFIGS) if key.works),
        "## Broker configs of TLS and SASL\n\n" + _brokers(SECURITY_CONFIGS),
        "## Broker configs of Odradek alone\n\n" + _brokers(OWN_CONFIGS),
        "## Accepted, not used: topic configs\n\n" + _unused(key for key in TOPIC_CONFIGS if not key.works),
        "## Accepted, not used: broker configs\n\n" + _unused(unused),
    ]
    return "\n" + "\n".join(parts) + "\n"


def _topics(keys: Iterable[ConfigKey]) -> str:
    from odradek.cluster.configs.configdef import topic_synonyms

    def row(key: ConfigKey) -> list[str]:
        synonyms = ", ".join(f"`{name}`" for name, _ in topic_synonyms(key.name))
        return [f"`{key.name}`", _type(key), _default(key), synonyms or "none", key.doc]

    return _table(["topic config", "type", "default", "broker configs that set its default", "meaning"], keys, row)


def _brokers(keys: Iterable[ConfigKey]) -> str:
    def row(key: ConfigKey) -> list[str]:
        return [f"`{key.name}`", _type(key), _default(key), _change(key), key.doc]

    return _table(["broker config", "type", "default", "change", "meaning"], keys, row)


def _unused(keys: Iterable[ConfigKey]) -> str:
    return _table(["config", "type", "default"], keys, lambda key: [f"`{key.name}`", _type(key), _default(key)])


def _table(titles: list[str], keys: Iterable[ConfigKey], row: Callable[[ConfigKey], list[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *map(row, sorted(keys, key=lambda key: key.name))]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n" for cells in rows)


def _type(key: ConfigKey) -> str:
    from odradek.cluster.configs.configtypes import TYPE_NAMES

    return TYPE_NAMES[key.type].lower()


def _default(key: ConfigKey) -> str:
    ours = _shown(key.default)
    theirs = KAFKAS_DEFAULTS.get(key.name)
    return ours if theirs is None else f"{ours}; Kafka's is {_shown(theirs)}"


def _shown(value: str | None) -> str:
    if value is None:
        return "none"
    return _LARGEST.get(value) or (f"`{value}`" if value else "empty")


def _change(key: ConfigKey) -> str:
    """How it changes while the broker runs, and whether that is otherwise in Kafka."""
    change = key.change if key.change == key.mode else f"{key.change}; {key.mode} in Kafka"
    return f"{change}; shown only where set" if key.internal else change


if __name__ == "__main__":
    PART.write(reference())
