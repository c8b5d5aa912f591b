"""Carries out the effects of a coordinator's state machine until all that is left must wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from odradek.broker.coordinator.internal_topic_log import InternalTopicLog
from odradek.groups.events import Now
from odradek.groups.log_writer import LogWriter
from odradek.groups.ownership import Ownership

log = logging.getLogger(__name__)


def settle(
    machine: Ownership, do: Callable[[Any], None], writer: LogWriter, topic_log: InternalTopicLog, now: Now
) -> None:
    """Carry out the machine's effects, write their appends, repeat; then request doorbells for awaited partitions."""
    effects = machine.effects
    writer.write(now)
    while True:
        while effects:
            some, effects[:] = list(effects), []
            for effect in some:
                _do_one(effect, do, machine, now)
            writer.write(now)
        if not writer.awaited:
            return
        topic_log.request_ring(writer.awaited)
        writer.check(now)
        if not effects:
            return


def _do_one(effect: Any, do: Callable[[Any], None], machine: Ownership, now: Now) -> None:
    """An exception in one effect does not affect the others; the machine goes on without it."""
    try:
        do(effect)
    except Exception:
        log.exception("unexpected error: %.200r failed", effect)
        machine.undone(effect, now)
