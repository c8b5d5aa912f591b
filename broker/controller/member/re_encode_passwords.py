"""At the start of a controller process: passwords of this broker that `password.encoder.old.secret` encrypted.

One write replaces all of them. A crash before it leaves the old ones, which the next start finds; after it, none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from odradek.cluster.configs import dynamic_passwords
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import MalformedNode

log = logging.getLogger(__name__)


def re_encode(tree: Tree, broker: int, config: Mapping[str, Any]) -> None:
    """Encrypt them by password.encoder.secret. Raises TreeError."""
    path = znodes.broker_config_path(broker)
    if not config["password.encoder.old.secret"] or tree.exists(path) is None:
        return
    data, stat = tree.get(path)
    try:
        configs = znodes.decode_config(data)
    except MalformedNode:  # DynamicConfigs logs it when it reads the node
        return
    changed = dynamic_passwords.re_encoded(configs, config)
    if changed != configs:
        tree.set(path, znodes.encode_config(changed), stat.version)
        names = sorted(name for name in changed if changed[name] != configs[name])
        log.info("encoded dynamic passwords with the new password.encoder.secret: %s", ", ".join(names))
