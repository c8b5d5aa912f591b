"""Lines about what is read: what is lost of it, and options that have no effect."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading import losses

log = logging.getLogger(__name__)


def tell(lost: Sequence[losses.Loss], options: ReadOptions) -> None:
    """Say what is left out; DataLoss where failOnDataLoss is set."""
    count = losses.report(lost, options.fail_on_data_loss)
    for loss in lost:
        log.warning("%s: left out (failOnDataLoss=false)", loss.text)
    if lost:
        log.warning("%d offsets are lost in all", count)


def warn(options: ReadOptions) -> None:
    """Of options that have no effect."""
    for note in options.notes:
        log.warning("%s", note)
