"""Columns of a partition's row in snapshots, in the view and in the cluster's state."""

from __future__ import annotations

SLOT, INCARNATION, LEADER, EPOCH, REPLICAS, ISR, LOG_DIR = range(7)
OFFLINE = 7  # optional column: the replicas that the controller reports as offline
NOWHERE = -1  # slot and log directory of a partition that is not on this broker
