"""The TLS settings of one listener: `listener.name.<listener>.ssl.…` before `ssl.…`, as Kafka looks them up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

DEFAULTS = {
    "ssl.protocol": "TLSv1.3",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.keystore.type": "JKS",
    "ssl.truststore.type": "JKS",
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.client.auth": "none",
    "ssl.principal.mapping.rules": "DEFAULT",
}
LISTS = {"ssl.enabled.protocols", "ssl.cipher.suites"}
BOOLEANS = {"ssl.allow.dn.changes", "ssl.allow.san.changes"}
CLIENT_AUTH = ("none", "requested", "required")
"""What `ssl.client.auth` may be, in capitals or not."""


class TlsError(ValueError):
    """A TLS setting that cannot work: one line that names the setting and says what to change."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings as text, named as Kafka names them without `ssl.`; None where nothing is set."""

    names: Mapping[str, str] = field(hash=False)  # of those with a prefix: "listener.name.internal.ssl.…"
    protocol: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    keystore_type: str
    keystore_location: str | None
    keystore_password: str | None
    keystore_key: str | None
    keystore_certificate_chain: str | None
    key_password: str | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: str | None
    truststore_certificates: str | None
    endpoint_identification_algorithm: str
    client_auth: str
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    def key(self, name: str) -> str:
        """The key as it was set: with a prefix, or without."""
        return self.names.get(name, name)

    def error(self, name: str, text: str) -> TlsError:
        """The error that names setting `name`."""
        return TlsError(f"{self.key(name)}: {text}")

    def __repr__(self) -> str:
        return f"TlsSettings({dict(self.names)})"  # the others hold secrets


NAMES = {f"ssl.{one.name.replace('_', '.')}": one.name for one in fields(TlsSettings)[1:]}
"""The fields by the settings' names."""


def listener_settings(settings: Mapping[str, Any], listener: str = "") -> TlsSettings:
    """The settings of `listener` in a broker's whole configuration; a client's with no listener. Raises TlsError."""
    prefix = f"listener.name.{listener.lower()}."
    return named_settings(settings, {name: prefix + name for name in NAMES if settings.get(prefix + name) is not None})


def named_settings(settings: Mapping[str, Any], names: Mapping[str, str]) -> TlsSettings:
    """Settings under other names: `names` by Kafka's name. Raises TlsError."""
    values = {field: _typed(name, settings.get(names.get(name, name))) for name, field in NAMES.items()}
    found = TlsSettings(names, **values)
    if found.client_auth not in CLIENT_AUTH:
        raise found.error("ssl.client.auth", f"must be one of {', '.join(CLIENT_AUTH)}, not {found.client_auth!r}")
    return found


def _typed(name: str, value: Any) -> Any:
    value = DEFAULTS.get(name) if value is None else value
    if name in LISTS:
        return tuple(_words(value)) if isinstance(value, str) else tuple(value or ())
    if name in BOOLEANS:
        return str(value).strip().lower() == "true"
    if name == "ssl.client.auth":
        return str(value).strip().lower()
    return value


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"\s*,\s*", text.strip()) if word]
