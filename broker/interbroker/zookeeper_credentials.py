"""What a broker shows to ZooKeeper: TLS by zookeeper.ssl.…, and a user by a file of JAAS, as Kafka's brokers do.

The host name that a certificate of ZooKeeper must have is the one in zookeeper.connect.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.ipc.notices import IsFirst
    from odradek.security.sasl.digest_md5 import DigestMd5Client
    from odradek.security.tls.settings import TlsSettings

_FILE = "odradek.zookeeper.login.config"
_SECTION = "Client"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_VERSIONS = "zookeeper.ssl.enabled.protocols"
_TLS_NAMES = (
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.endpoint.identification.algorithm",
    _VERSIONS,
)


def tls_context(config: Any, is_first: IsFirst = lambda *_: True) -> Callable[[], ssl.SSLContext] | None:
    """Gives the context of each connection; None without TLS. Raises ValueError, in one line that names the setting.

    `is_first`: see TlsClient.
    """
    if not config["zookeeper.ssl.client.enable"]:
        return None
    if config["zookeeper.clientCnxnSocket"] not in (None, _NETTY):
        raise ValueError(f"zookeeper.clientCnxnSocket: must be {_NETTY} with zookeeper.ssl.client.enable, or not set")
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config[name]:
            raise ValueError(f"{name}: revoked certificates cannot be recognized here: remove the setting")
    from odradek.broker.interbroker.tls_client import TlsClient

    client = TlsClient(tls_settings(config), is_first)
    client.context()  # a wrong file is said at once
    return client.context


def tls_settings(config: Any) -> TlsSettings:
    """zookeeper.ssl.…, as of a listener.

    As in Kafka, zookeeper.ssl.enabled.protocols is zookeeper.ssl.protocol where it is not set. As in ZooKeeper, the
    ending of a file is its type where none is set, and the password of a PEM key store is the key's.
    """
    from odradek.security.tls.settings import named_settings

    values, names = (
        {name: config[name] for name in _TLS_NAMES},
        {name[len("zookeeper.") :]: name for name in _TLS_NAMES},
    )
    values[_VERSIONS] = config[_VERSIONS] or [config["zookeeper.ssl.protocol"]]
    for store, of_pem in (("keystore", "ssl.key.{}"), ("truststore", "")):
        kind = f"zookeeper.ssl.{store}.type"
        values[kind] = values[kind] or _type_of(values[f"zookeeper.ssl.{store}.location"] or "")
        if values[kind].upper() == "PEM":
            password = names.pop(f"ssl.{store}.password")
            names |= {of_pem.format("password"): password} if of_pem else {}
    return named_settings(values | {"ssl.protocol": "TLS"}, names)


def _type_of(path: str) -> str:
    return "PEM" if path.endswith(".pem") else "PKCS12" if path.endswith((".p12", ".pfx")) else "JKS"


def login(config: Any) -> Callable[[], DigestMd5Client] | None:
    """Gives the mechanism of each authentication; None without one. Raises ValueError in one line."""
    path = config[_FILE]
    if not path:
        return None
    from odradek.security.sasl.digest_md5 import DigestMd5Client

    user, password = _user(path)
    return lambda: DigestMd5Client(user, password)


def _user(path: str) -> tuple[str, Any]:
    from odradek.security.sasl.jaas import JaasError, sections

    try:
        modules = sections(Path(path).read_text()).get(_SECTION, [])
    except OSError as error:
        raise ValueError(f"{_FILE}: cannot read {path}: {error.strerror}") from None
    except (JaasError, UnicodeDecodeError) as error:
        raise ValueError(f"{_FILE}: {path}: {error}") from None
    if len(modules) != 1 or modules[0].name != _MODULE:
        raise ValueError(f"{_FILE}: {path} must have a section {_SECTION} with one {_MODULE}")
    options = modules[0].options
    if "username" not in options or "password" not in options:
        raise ValueError(f"{_FILE}: the section {_SECTION} of {path} must have username and password")
    return options["username"].value, options["password"]
