"""How `--zookeeper` reads the nodes of brokers and a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.commands._shared import zookeeper
from odradek.cluster.tree import znodes

ENDS = {"OUT": ("h", 1), "IN": ("::1", 2), "PLAINTEXT": ("p", 3)}
PROTOCOLS = {"OUT": "SASL_SSL", "IN": "SSL", "PLAINTEXT": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("protocol", "address"), [("PLAINTEXT", "p:3"), ("SSL", "[::1]:2"), ("SASL_SSL", "h:1"), ("SASL_PLAINTEXT", "h:1")]
)
def test_command_selects_the_listener_with_its_protocol(protocol: str, address: str) -> None:
    node = znodes.decode_broker(znodes.encode_broker(ENDS, PROTOCOLS, None, 0))
    assert zookeeper._address(node, protocol) == address


def test_brokers_properties_file_is_accepted(tmp_path: Path) -> None:
    """Other settings are ignored, even invalid ones; unset ones have the defaults of the broker."""
    file = tmp_path / "server.properties"
    file.write_text("broker.id=many\nzookeeper.set.acl=true\nodradek.zookeeper.auth=digest:a:b\nlisteners=x\n")
    found = zookeeper.credentials(zookeeper.settings(str(file)))
    assert found == {"auth": "digest:a:b", "set_acl": True, "tls": None, "login": None}
