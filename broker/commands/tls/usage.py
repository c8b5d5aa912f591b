"""The lines that use the certificates: of the broker, kcat, Python and Java."""

from __future__ import annotations

from pathlib import Path

from odradek.broker.commands.tls.authority import CA, SERVER

_PORT = 9093
_TEXT = """\

# server.properties
listeners=SSL://:{port}
advertised.listeners=SSL://{address}
security.inter.broker.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=([^,]+)$/$1/,DEFAULT

# kcat
kcat -L -b {address} -X security.protocol=ssl -X ssl.ca.location={ca} \\
  -X ssl.certificate.location={client} -X ssl.key.location={client}

# Python: kafka-python
KafkaProducer(bootstrap_servers="{address}", security_protocol="SSL", ssl_cafile="{ca}",
              ssl_certfile="{client}", ssl_keyfile="{client}")

# Python: confluent-kafka
Producer({{"bootstrap.servers": "{address}", "security.protocol": "ssl", "ssl.ca.location": "{ca}",
          "ssl.certificate.location": "{client}", "ssl.key.location": "{client}"}})

# Java: client.properties
bootstrap.servers={address}
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location={client}
ssl.truststore.type=PEM
ssl.truststore.location={ca}"""


def text(directory: Path, hostname: str, client: str) -> str:
    """The lines for the files in `directory`, an absolute path."""
    host = f"[{hostname}]" if ":" in hostname else hostname
    return _TEXT.format(
        port=_PORT,
        address=f"{host}:{_PORT}",
        server=directory / SERVER,
        ca=directory / CA,
        client=directory / f"{client}.pem",
    )
