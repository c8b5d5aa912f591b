"""The wait for ZooKeeper of `odradek systemd prepare`: a machine may boot before its ZooKeeper does.

All units of a broker require the one that prepares, and systemd does not restart units whose requirement failed: so
it must not fail while waiting may help. Before each try it asks the manager for as much time as the try may take.
"""

from __future__ import annotations

import logging
import math
import time

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.interbroker import zookeeper_session
from odradek.broker.process import sd_notify

log = logging.getLogger(__name__)

PAUSE_S = 1.0
_REST_S = 60  # for all other steps before the first process, as in TimeoutStartSec=


class ZooKeeperWait:
    """Provides `away` for `boot.prepare`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._where = config["zookeeper.connect"]
        self._try_s = math.ceil(zookeeper_session.settling_s(config) + PAUSE_S) + _REST_S
        sd_notify.extend(self._try_s, f"asking ZooKeeper at {self._where}")

    def away(self, error: OdradekError) -> None:
        """Log the reason for the wait, send it to the manager, and wait for a moment."""
        log.warning("waiting for ZooKeeper: %s", error)
        sd_notify.extend(self._try_s, f"waiting for ZooKeeper: {error}")
        time.sleep(PAUSE_S)
