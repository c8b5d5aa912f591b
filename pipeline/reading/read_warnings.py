"""Warnings about reading: losses, and options without effect."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.pipeline.reading import losses
from odradek.pipeline.reading.read_options import ReadOptions

log = logging.getLogger(__name__)


def tell(lost: Sequence[losses.Loss], options: ReadOptions) -> None:
    """Log what is left out; DataLoss where failOnDataLoss is set."""
    count = losses.report(lost, options.fail_on_data_loss)
    for loss in lost:
        log.warning("%s: left out (failOnDataLoss=false)", loss.text)
    if lost:
        log.warning("%d offsets are lost in all", count)


def warn(options: ReadOptions) -> None:
    """Log options without effect."""
    for note in options.notes:
        log.warning("%s", note)
