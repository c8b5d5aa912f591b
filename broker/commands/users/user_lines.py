"""The lines that use a user: of the broker, kcat, Python, Java and Spark clients. They have no password."""

from __future__ import annotations

from pathlib import Path

_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TEXT = """\

# server.properties
listeners=SASL_SSL://:{port}
advertised.listeners=SASL_SSL://{address}
sasl.enabled.mechanisms={mechanism}
ssl.keystore.type=PEM
ssl.keystore.location={server}

# kcat
kcat -L -b {address} -X security.protocol=sasl_ssl -X sasl.mechanism={mechanism} \\
  -X sasl.username={user} -X sasl.password=PASSWORD -X ssl.ca.location={ca}

# Python: kafka-python
KafkaProducer(bootstrap_servers="{address}", security_protocol="SASL_SSL", ssl_cafile="{ca}",
              sasl_mechanism="{mechanism}", sasl_plain_username="{user}", sasl_plain_password="PASSWORD")

# Python: confluent-kafka
Producer({{"bootstrap.servers": "{address}", "security.protocol": "sasl_ssl", "ssl.ca.location": "{ca}",
          "sasl.mechanism": "{mechanism}", "sasl.username": "{user}", "sasl.password": "PASSWORD"}})

# Java, and --command-config of these commands: client.properties
security.protocol=SASL_SSL
sasl.mechanism={mechanism}
sasl.jaas.config={jaas} required username="{user}" password="PASSWORD";
ssl.truststore.type=PEM
ssl.truststore.location={ca}

# Spark
spark.readStream.format("kafka").option("kafka.bootstrap.servers", "{address}") \\
  .option("kafka.security.protocol", "SASL_SSL").option("kafka.sasl.mechanism", "{mechanism}") \\
  .option("kafka.sasl.jaas.config", '{jaas} required username="{user}" password="PASSWORD";') \\
  .option("kafka.ssl.truststore.type", "PEM").option("kafka.ssl.truststore.location", "{ca}")"""


def text(address: str, user: str, mechanism: str) -> str:
    """The lines for a client of the broker at `address`; the certificates are those of `odradek tls init`."""
    folder = Path("tls").absolute()
    user = user.replace("\\", "\\\\").replace('"', '\\"')
    return _TEXT.format(
        address=address, port=address.rpartition(":")[2], user=user, mechanism=mechanism, jaas=_JAAS,
        server=folder / "server.pem", ca=folder / "ca.pem",
    )  # fmt: skip
