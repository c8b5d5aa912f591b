"""How the swarm's clients reach the broker: its address, and the settings in the file of LOCUST_CLIENT_CONFIG, if set.

The file has librdkafka's names, as kcat's. kafka-python, whose names differ, knows those of its clients in `_PYTHON`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

VARIABLE = "LOCUST_CLIENT_CONFIG"
_PYTHON = {
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}


def librdkafka(bootstrap: str) -> dict[str, Any]:
    """For confluent-kafka."""
    return _given() | {"bootstrap.servers": bootstrap}


def kafka_python(bootstrap: str) -> dict[str, Any]:
    """For kafka-python."""
    given = {_PYTHON[name]: value for name, value in _given().items() if name in _PYTHON}
    if "security_protocol" in given:
        given["security_protocol"] = given["security_protocol"].upper()
    return given | {"bootstrap_servers": bootstrap}


def _given() -> dict[str, str]:
    path = os.environ.get(VARIABLE)
    lines = Path(path).read_text().splitlines() if path else []
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}
