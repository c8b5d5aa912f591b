"""The last steps of a clean stop, when every other process has gone: flush, checkpoints, the mark."""

from __future__ import annotations

from odradek.broker.boot import Boot


def finish(boot: Boot) -> None:
    """Sync all logs, write Kafka's checkpoints and `.kafka_cleanshutdown` in every log directory."""
