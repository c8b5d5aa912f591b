"""Which listeners of the exporter ask for users, and the settings by which they do. Pure.

They have the TLS and the mechanisms of the listener `odradek.exporter.listener.name`, which need not be one of the
broker's. As in Kafka a listener with SASL wants no certificate of clients, unless its own setting says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.cluster.configs.admitted import is_loopback_listener

USABLE = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms whose users have a password."""
METRICS, CONSOLE = "odradek.metrics.listener", "odradek.console.listener"
NAME = "odradek.exporter.listener.name"
SECURED = "SASL_SSL"
_PROTOCOL = {METRICS: "odradek.metrics.security.protocol", CONSOLE: "odradek.console.security.protocol"}
_CLIENT_AUTH, _ENABLED = "ssl.client.auth", "sasl.enabled.mechanisms"


def secured(config: Mapping[str, Any]) -> list[str]:
    """The settings of the listeners that ask for users. An earlier version has saved none of them."""
    return [setting for setting in (METRICS, CONSOLE) if config[setting] and protocol(config, setting) == SECURED]


def protocol(config: Mapping[str, Any], setting: str) -> str:
    """The security protocol of a listener: PLAINTEXT or SASL_SSL. Metrics are open unless a setting says otherwise."""
    chosen: str = config.get(_PROTOCOL[setting], "")
    is_open = setting == METRICS or is_loopback_listener(config[setting])
    return chosen or ("PLAINTEXT" if is_open else SECURED)


def settings_of(settings: Mapping[str, str], name: str) -> dict[str, str]:
    """The broker's settings with only the mechanisms that have passwords. Raises SaslSettingError without one."""
    from odradek.security.sasl.sasl_settings import SaslSettingError, Settings  # only where they are used

    prefix = f"listener.name.{name.lower()}."
    enabled = [one for one in Settings(settings, name).enabled() if one in USABLE]
    if not enabled:
        raise SaslSettingError(prefix + _ENABLED, f"must have one of {', '.join(USABLE)}: readers have passwords")
    return {prefix + _CLIENT_AUTH: "none", **settings, prefix + _ENABLED: ",".join(enabled)}
