"""Whether a broker's processes hold secrets from their start on, so that they write no core dumps."""

from __future__ import annotations

from odradek.broker.config import BrokerConfig
from odradek.cluster.configs.configdef import broker_key
from odradek.security import core_dumps


def protect(config: BrokerConfig) -> None:
    """Write no core dump of this process, and of those that it starts, if the configuration has secrets."""
    if _has_secrets(config):
        core_dumps.disable()


def _has_secrets(config: BrokerConfig) -> bool:
    keys = (broker_key(name) for name in config.originals)
    return set(config.protocols.values()) != {"PLAINTEXT"} or any(key is not None and key.sensitive for key in keys)
