"""`kafka.security.protocol` and its settings: TLS with PEM files, SASL with a name and a password.

Key stores in Java's formats, Kerberos, OAuth and delegation tokens need Java: they are refused with one line that names
the alternative.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.net.sasl import get_sasl_mechanism

from odradek.pipeline.errors import OptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAY_OUT = 'use format("kafka") with Spark\'s connector for it'
_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"|(\w+)\s*=\s*([^\s";]+)')


@dataclass(frozen=True)
class Security:
    """TLS (`context`), if any, and the SASL login (`mechanism`), if any."""

    context: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, kafka: Mapping[str, str]) -> Security:
        """Parse the settings. OptionError for what this client does not support."""
        protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise OptionError(f"kafka.security.protocol is {protocol!r}: it must be one of {', '.join(PROTOCOLS)}")
        context = _context(kafka) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL"):
            return cls(context)
        return cls(context, _mechanism(kafka), *_login(kafka))

    def sasl(self, host: str) -> Any:
        """A new SASL exchange of kafka-python's for the connection to `host`."""
        return get_sasl_mechanism(self.mechanism)(
            host=host,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.username,
            sasl_plain_password=self.password,
        )


# -- SASL


def _mechanism(kafka: Mapping[str, str]) -> str:
    name = kafka.get("sasl.mechanism", "GSSAPI").upper()
    if name not in MECHANISMS:
        raise OptionError(f"kafka.sasl.mechanism={name} is not one of {', '.join(MECHANISMS)}: {WAY_OUT}")
    return name


def _login(kafka: Mapping[str, str]) -> tuple[str, str]:
    """The name and password in a line of JAAS: `….PlainLoginModule required username="u" password="p";`."""
    found = {
        quoted or bare: re.sub(r"\\(.)", r"\1", text) if quoted else word
        for quoted, text, bare, word in _JAAS.findall(kafka.get("sasl.jaas.config", ""))
    }
    if not {"username", "password"} <= found.keys():
        raise OptionError("kafka.sasl.jaas.config must name username and password, each in double quotes")
    if found.get("tokenauth", "").lower() == "true":
        raise OptionError(f"kafka.sasl.jaas.config has tokenauth=true, a delegation token: {WAY_OUT}")
    return found["username"], found["password"]


# -- TLS


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = kafka.get("ssl.endpoint.identification.algorithm", "https") != ""
    try:
        _trust(context, kafka)
        _identify(context, kafka)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise OptionError(f"kafka.ssl.*: {error}") from None
    return context


def _trust(context: ssl.SSLContext, kafka: Mapping[str, str]) -> None:
    """Trust only the given certificates, or else the machine's authorities."""
    path, text = kafka.get("ssl.truststore.location"), kafka.get("ssl.truststore.certificates")
    if path or text:
        _only_pem(kafka, "ssl.truststore.type")
        context.load_verify_locations(cafile=path, cadata=text)
    else:
        context.load_default_certs()


def _identify(context: ssl.SSLContext, kafka: Mapping[str, str]) -> None:
    """Load the client's certificate, for brokers that require one."""
    path, password = kafka.get("ssl.keystore.location"), kafka.get("ssl.key.password")
    chain, key = kafka.get("ssl.keystore.certificate.chain"), kafka.get("ssl.keystore.key")
    if path:
        _only_pem(kafka, "ssl.keystore.type")
        context.load_cert_chain(path, password=password)
    elif chain and key:
        _load(context, f"{key}\n{chain}\n", password)


def _load(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Load through a file in memory: the ssl module reads only files, and a key must not reach a disk."""
    descriptor = os.memfd_create("key")
    try:
        os.write(descriptor, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    finally:
        os.close(descriptor)


def _only_pem(kafka: Mapping[str, str], name: str) -> None:
    kind = kafka.get(name, "JKS").upper()
    if kind != "PEM":
        raise OptionError(f"kafka.{name} is {kind}, which only Java reads: convert it to PEM, or {WAY_OUT}")
