"""Columns of a partition's row, as snapshots, the view and the cluster's state hold it."""

from __future__ import annotations

SLOT, INCARNATION, LEADER, EPOCH, REPLICAS, ISR, LOG_DIR = range(7)
OFFLINE = 7  # one more, where there are any: replicas that the controller says are offline
NOWHERE = -1  # slot and log directory of a partition that is not on this broker
